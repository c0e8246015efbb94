# SPDX-License-Identifier: GPL-2.0
# gnuplot -c pressure.gp UNBALLOONED.csv STOCK.csv OURS.csv PICTURE.png MEM_MIB NEED_MIB
set datafile separator comma
array name[3] = ["no balloon", "the kernel's driver", "this driver"]
array file[3] = [ARG1, ARG2, ARG3]
array full[3]
end = 0
do for [i = 1:3] {
	stats file[i] using 1 every ::1 nooutput
	end = STATS_max > end ? STATS_max : end
	stats file[i] using 6 every ::1 nooutput
	full[i] = STATS_max
}

set terminal pngcairo rounded size 1400,1000 font "DejaVu Sans,13" background "#ffffff"
set output ARG4
set multiplot layout 3,1 title sprintf("A program takes %s MiB in a guest whose balloon has them", ARG6) font ",18"
set tics out nomirror
set border 3 lc rgb "#606060"
set lmargin 11
set rmargin 4
set tmargin 2.5
set bmargin 3.5
set xrange [-2:end * 1.02]
set yrange [0:ARG5]
set ytics 0, 256, ARG5
set key at graph 1, graph 1.13 right horizontal samplen 2 width 1
set style fill solid noborder

# From below: the program, what else is in use, what is free, the balloon. Colours that stay apart
# for most colour-blind eyes (Okabe and Ito's). Between the two lines the program waits for memory.
do for [i = 1:3] {
	set ylabel name[i]." (MiB)" font ",14"
	set arrow 1 from 0, graph 0 to 0, graph 1 nohead front lc rgb "#000000" lw 1.5
	set arrow 2 from full[i], graph 0 to full[i], graph 1 nohead front lc rgb "#000000" lw 1.5
	set label 1 sprintf("%.1f s", full[i]) at full[i], graph 1.1 center front font ",18"
	if (i == 3) { set xlabel "time since the program began (seconds)" }
	plot file[i] using 1:(ARG5 - $2):(ARG5 + 0) every ::1 with filledcurves fc rgb "#e69f00" title "the balloon", \
	     file[i] using 1:3:(ARG5 - $2 - $4 > $3 ? ARG5 - $2 - $4 : $3) every ::1 with filledcurves fc rgb "#a0a0a0" title "kernel, cache", \
	     file[i] using 1:3 every ::1 with filledcurves y1=0 fc rgb "#0072b2" title "the program"
	unset key
}
