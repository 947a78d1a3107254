#!/bin/sh
# Small pieces: .c <= 600 lines, public .h <= 400, a function <= 100. A function's body is what stands between
# "{" and "}" in the first column.
set -eu
: "${top_srcdir:?}"
cd "$top_srcdir"
files=$(find src ucx_glue collectives bindings test contrib -name '*.c' | LC_ALL=C sort)
headers=$(find include src ucx_glue collectives -name '*.h' | LC_ALL=C sort)

awk '
  function over(what, n, most) { printf "%s: %d lines, at most %d\n", what, n, most; bad = 1 }
  function file_end() { if (name != "" && lines > most) over(name, lines, most) }
  FNR == 1 {
    file_end()
    name = FILENAME; most = (name ~ /\.h$/) ? 400 : 600; open = 0
  }
  { lines = FNR }
  /^\{/ { open = FNR }
  /^\}/ { if (open && FNR - open + 1 > 100) over(name ":" open " function", FNR - open + 1, 100); open = 0 }
  END { file_end(); exit bad }
' $files $headers
echo "sizes hold"
