#!/bin/sh
# Limits of size: .c and .cc <= 600 lines, .h and .hh <= 400, a function <= 60, a room (a folder of the library) <=
# 4,000; few files of the library over 400 lines; a line <= 120 columns. A function's body is between "{" and "}" in
# the first column.
set -eu
: "${top_srcdir:?}"
cd "$top_srcdir"
files=$(find src ucx_glue collectives bindings test contrib -name '*.c' -o -name '*.cc' | LC_ALL=C sort)
lines=$(find include src ucx_glue collectives bindings test contrib -name '*.[ch]' -o -name '*.cc' -o -name '*.hh' |
  LC_ALL=C sort)
headers=$(find include src ucx_glue collectives bindings -name '*.h' -o -name '*.hh' | LC_ALL=C sort)

# The current excesses, each with its size, rounded up to hundreds, and the number of files over 400 lines (the goal is
# 10). These may only shrink.
rooms=''
long_files=4

# shellcheck disable=SC2086 # words are meant
awk 'length($0) > 120 { print FILENAME ":" FNR ": " length($0) " columns, at most 120"; bad = 1 } END { exit bad }' $lines

# shellcheck disable=SC2086 # words are meant
awk -v rooms="$rooms" -v long_files="$long_files" '
  function over(what, n, most) { printf "%s: %d lines, at most %d\n", what, n, most; bad = 1 }
  function file_end(    room) {
    if (name == "") return
    if (lines > most) over(name, lines, most)
    room = name
    sub(/\/[^\/]*$/, "", room)
    if (room ~ /^(src|ucx_glue|collectives|bindings)/) size[room] += lines
    if (lines > 400 && name ~ /^(src|ucx_glue|collectives)/) { ++n_long; long[n_long] = name ": " lines " lines" }
  }
  FNR == 1 {
    file_end()
    name = FILENAME; most = (name ~ /\.hh?$/) ? 400 : 600; open = 0
  }
  { lines = FNR }
  /^\{/ { open = FNR }
  /^\}/ { if (open && FNR - open + 1 > 60) over(name ":" open " function", FNR - open + 1, 60); open = 0 }
  END {
    file_end()
    n = split(rooms, words, " ")
    for (i = 1; i < n; i += 2) limit[words[i]] = words[i + 1]
    for (room in size) {
      most = (room in limit) ? limit[room] : 4000
      if (size[room] > most) over(room " (all its files)", size[room], most)
      if ((room in limit) && size[room] <= 4000)
        print room " is small enough: it needs no exception in test/check_size.sh"
    }
    if (n_long > long_files) {
      for (i = 1; i <= n_long; ++i) print long[i]
      printf "%d files are over 400 lines, at most %d may be\n", n_long, long_files; bad = 1
    }
    exit bad
  }
' $files $headers
echo "sizes hold"
