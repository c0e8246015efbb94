# SPDX-License-Identifier: GPL-2.0
# gnuplot -c timeline.gp TIMELINE.csv STEPS.csv PICTURE.png TITLE MEM_MIB
set datafile separator comma
stats ARG1 using 1 every ::1 nooutput
end = STATS_max
stats ARG1 using 5 every ::1 nooutput
# QEMU needs some memory for itself: in a small guest its RSS is above the guest's memory.
top = 1.19 * (STATS_max > ARG5 ? STATS_max : ARG5)

set terminal pngcairo rounded size 1400,820 font "DejaVu Sans,13" background "#ffffff"
set output ARG3
set title ARG4 font ",16" offset 0,0.4
set xlabel "time (seconds)"
set ylabel "memory (MiB)" offset -1,0
set xrange [0:end * 1.02]
set yrange [0:top]
set ytics 0, 256 * ceil(ARG5 / 2048.0), ARG5
set tics out nomirror
set border 3 lc rgb "#606060"
set grid y lc rgb "#e4e4e4" lt 1
set key outside bottom center horizontal maxrows 2 Left reverse samplen 3 spacing 1.3 width 2
set lmargin 11
set rmargin 4

# A step's label stands right of its line, in two heights so that short steps do not collide; one
# that begins near the end stands left of it.
height(n) = top * (int(n) % 2 ? 0.985 : 0.935)
early(t) = t < 0.85 * end ? t : NaN
late(t) = t < 0.85 * end ? NaN : t

# Colours that stay apart for most colour-blind eyes (Okabe and Ito's).
plot ARG2 using 1:(top) every ::1 with impulses lc rgb "#909090" dt 3 lw 1.2 notitle, \
     ARG1 using 1:7 every ::1 with filledcurves y1=0 fc rgb "#e6d5e8" notitle, \
     ARG1 using 1:3 every ::1 with steps lc rgb "#f0d060" lw 8 title "target", \
     ARG1 using 1:4 every ::1 with lines lc rgb "#0072b2" lw 2.5 title "actual: what the guest keeps", \
     ARG1 using 1:5 every ::1 with lines lc rgb "#d55e00" lw 2.5 title "RSS: what QEMU holds of the host", \
     ARG1 using 1:6 every ::1 with lines lc rgb "#009e73" lw 2.5 title "guest: free memory", \
     ARG1 using 1:7 every ::1 with lines lc rgb "#a0569e" lw 2.5 title "guest: page cache", \
     ARG2 using (early($1)):(height($0)):2 every ::1 with labels left offset 0.4,0 font ",11" tc rgb "#303030" notitle, \
     ARG2 using (late($1)):(height($0)):2 every ::1 with labels right offset -0.4,0 font ",11" tc rgb "#303030" notitle
