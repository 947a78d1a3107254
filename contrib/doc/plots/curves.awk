# Lines "CURVE<tab>X<tab>Y" -> a picture (SVG) of these curves, on stdout. Both axes begin at 0; Y ends at 100.
#   awk -v title=T -v x_name=N -f curves.awk
BEGIN {
  FS = "\t"
  left = 70; width = 560; height = 220; top = 60; key = 250
  split("#36c #c33 #282 #a5a", colours, " ")
}
!($1 in rank) { rank[$1] = ++curves; name[curves] = $1 }
{
  n[$1]++
  x[$1, n[$1]] = $2; y[$1, n[$1]] = $3
  if ($2 > most) most = $2
}
function at_x(value) { return left + width * value / most }
function at_y(value) { return top + height - height * value / 100 }
END {
  printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" " \
    "font-size=\"12\">\n", left + width + key, top + height + 50
  print "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
  printf "<text x=\"%d\" y=\"24\" font-size=\"14\">%s</text>\n", left, title
  for (i = 0; i <= 4; ++i)
    printf "<path d=\"M%d %.1fh%d\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%d%%</text>\n",
      left, at_y(25 * i), width, left - 6, at_y(25 * i) + 4, 25 * i
  for (value = 0; value <= most; ++value)
    printf "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n", at_x(value), top + height + 16, value
  printf "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", left + width / 2, top + height + 36, x_name
  for (c = 1; c <= curves; ++c) {
    curve = name[c]
    printf "<path fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" d=\"", colours[c]
    for (i = 1; i <= n[curve]; ++i) printf "%s%.1f %.1f", (i == 1) ? "M" : "L", at_x(x[curve, i]), at_y(y[curve, i])
    print "\"/>"
    for (i = 1; i <= n[curve]; ++i)
      printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", at_x(x[curve, i]), at_y(y[curve, i]), colours[c]
    printf "<text x=\"%d\" y=\"%d\" fill=\"%s\">%s</text>\n", left + width + 14, top + 18 * c - 6, colours[c], curve
  }
  print "</svg>"
}
