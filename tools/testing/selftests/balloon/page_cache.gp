# SPDX-License-Identifier: GPL-2.0
# gnuplot -c page_cache.gp SHRINKER.csv NOTIFIER.csv PICTURE MEM_MIB TARGET_MIB READ_S
set datafile separator comma
stats ARG1 using 1 every ::1 nooutput
end = STATS_max

if (ARG3[strlen(ARG3) - 3:] eq ".svg") {
	set terminal svg rounded size 1400,900 font "sans-serif,16" background "#ffffff"
} else {
	set terminal pngcairo rounded size 1400,900 font "DejaVu Sans,13" background "#ffffff"
}
set output ARG3
set multiplot layout 2,1 title sprintf("A %s MiB guest reads a large file in a loop; the host wants it down to %s MiB", ARG4, ARG5) font ",18"
set tics out nomirror
set border 3 lc rgb "#606060"
set grid y lc rgb "#e4e4e4" lt 1
set lmargin 11
set rmargin 4
set xrange [0:end * 1.02]
set style line 1 lc rgb "#d55e00" lw 2.5
set style line 2 lc rgb "#0072b2" lw 3
set style line 3 lc rgb "#a0a0a0" lw 1.5 dt 2

# The reader was stopped because the target was not reached.
if (ARG6 < end) {
	set arrow 1 from ARG6, graph 0 to ARG6, graph 1 nohead lc rgb "#808080" dt 3
	set label 1 "the reader is stopped" at ARG6, graph 0.06 right offset -1, 0 tc rgb "#404040"
}

set ylabel "what the guest keeps (MiB)"
set yrange [0:ARG4 * 1.05]
set ytics 0, 512, ARG4
set key top center
plot ARG5 + 0 with lines lc rgb "#f0d060" lw 8 title "target", \
     ARG1 using 1:($6 == 0 ? $2 : NaN) every ::1 with lines ls 1 title "deflating from a shrinker, as once", \
     ARG2 using 1:($6 == 0 ? $2 : NaN) every ::1 with lines ls 2 title "deflating from the OOM notifier", \
     ARG1 using 1:($6 == 0 ? NaN : $2) every ::1 with lines ls 3 title "the way back, when the target was reached", \
     ARG2 using 1:($6 == 0 ? NaN : $2) every ::1 with lines ls 3 notitle

unset label 1
set ylabel "given back while inflating (GiB)"
set xlabel "time since the target was set (seconds)"
set yrange [0:*]
set ytics auto
set key top left Left reverse
plot ARG1 using 1:($6 == 0 ? $4 / 262144 : NaN) every ::1 with lines ls 1 title "from a shrinker: page cache pushes the balloon out, again and again", \
     ARG2 using 1:($6 == 0 ? $4 / 262144 : NaN) every ::1 with lines ls 2 title "from the OOM notifier: nothing"
