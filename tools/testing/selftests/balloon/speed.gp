# SPDX-License-Identifier: GPL-2.0
# gnuplot -c speed.gp RATIOS.dat PICTURE HIGHEST
# A line is "name" TAB ratio TAB what is wanted TAB what the device allows TAB 1 if that was missed;
# NaN for what there is not.
set datafile separator tab
stats ARG1 using 2 nooutput
rows = STATS_records
lowest = STATS_min
set terminal pngcairo rounded size 1200,150 + 44 * rows font "DejaVu Sans,13" background "#ffffff"
set output ARG2
set title "How many times better than the kernel's driver (logarithmic)" font ",18"
set border 1 lc rgb "#606060"
set tics out nomirror
set ytics scale 0
set grid x lc rgb "#e4e4e4" lt 1
set logscale x 2
set xrange [(lowest < 0.7 ? lowest / 2 : 0.5):ARG3 * 2.2]
set yrange [rows - 0.4:-0.6]
set lmargin 36
set style fill solid noborder
set arrow 1 from 1, -0.6 to 1, rows - 0.4 nohead front lc rgb "#404040" lw 1.5
set key below horizontal samplen 2
plot ARG1 using ($5 > 0 ? NaN : 1):0:(1):2:($0 - 0.32):($0 + 0.32):ytic(1) with boxxyerror lc rgb "#0072b2" title "this driver", \
     ARG1 using ($5 > 0 ? 1 : NaN):0:(1):2:($0 - 0.32):($0 + 0.32) with boxxyerror lc rgb "#d55e00" title "this driver: not what is wanted", \
     ARG1 using 3:0 with points pt 9 ps 1.8 lc rgb "#000000" title "wanted", \
     ARG1 using 4:0 with points pt 12 ps 1.8 lw 2 lc rgb "#000000" title "what the device allows", \
     ARG1 using ($2 > 1 ? $2 : 1):($0 + 0.02):(sprintf("%.1f", $2)) with labels left offset 1.6, 0 notitle
