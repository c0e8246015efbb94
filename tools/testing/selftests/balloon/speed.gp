# SPDX-License-Identifier: GPL-2.0
# gnuplot -c speed.gp RATIOS.dat PICTURE: a line is "name" TAB ratio TAB what is wanted or NaN
set datafile separator tab
stats ARG1 using 2 nooutput
rows = STATS_records
set terminal pngcairo rounded size 1200,120 + 44 * rows font "DejaVu Sans,13" background "#ffffff"
set output ARG2
set title "How many times better than the kernel's driver (logarithmic)" font ",18"
set border 1 lc rgb "#606060"
set tics out nomirror
set ytics scale 0
set grid x lc rgb "#e4e4e4" lt 1
set logscale x 2
set xrange [(STATS_min < 0.7 ? STATS_min / 2 : 0.5):STATS_max * 2.2]
set yrange [rows - 0.4:-0.6]
set lmargin 32
set style fill solid noborder
set arrow 1 from 1, -0.6 to 1, rows - 0.4 nohead front lc rgb "#404040" lw 1.5
set label 1 "as fast as stock" at 1, -0.35 right offset -0.5, 0 tc rgb "#404040" font ",11"
set key bottom right
plot ARG1 using (1):0:(1):2:($0 - 0.32):($0 + 0.32):ytic(1) with boxxyerror lc rgb "#0072b2" notitle, \
     ARG1 using ($2 > 1 ? $2 : 1):0:(sprintf("%.1f", $2)) with labels left offset 0.6, 0 notitle, \
     ARG1 using 3:0 with points pt 9 ps 1.6 lc rgb "#d55e00" title "wanted at least"
