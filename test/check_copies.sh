#!/bin/sh
# Payload is copied in one place: memcpy and memmove copy objects, so that their length has a sizeof or is a constant.
# Bytes of any other length go through src/weave: a buffer (kvcl_copy_bytes), a list (kvcl_copy_pieces, kvcl_bulk_copy),
# bytes that their owner may be writing (kvcl_copy_racy), blocks with their sums (kvcl_sum_copy, kvcl_sum_four_end). The
# rooms below hold no payload. The bindings see the public interface only: their one copy is of a launcher's value.
set -eu
: "${top_srcdir:?}"
cd "$top_srcdir"
without='src/(base|boot|dir|door|enter|join|query|sched|tools|topo|weave|wire)/|bindings/python/kvcl/ext/oob\.c$'

found=$(find src ucx_glue collectives bindings -name '*.[ch]' | LC_ALL=C sort | grep -vE "^($without)" | xargs awk '
  FNR == 1 { call = "" }
  {
    line = $0
    sub(/^[ \t]*(\/?\*|\/\/).*/, "", line) # comments
    if (call == "" && match(line, /(^|[^A-Za-z_0-9])(memcpy|memmove|mempcpy|bcopy)[ \t]*\(/)) {
      call = substr(line, RSTART)
      at = FILENAME ":" FNR
    } else if (call != "") call = call line
    if (call != "" && call ~ /;/) {
      length_of = call
      sub(/\);.*/, "", length_of)
      sub(/.*,[ \t]*/, "", length_of)
      if (call !~ /sizeof/ && length_of !~ /^[A-Z_0-9]+$/) print at ": " $0
      call = ""
    }
  }')
if [ -n "$found" ]; then
  echo "a copy of a length that is known at run time: call kvcl_copy_bytes() of weave/pieces.h"
  echo "$found"
  exit 1
fi
echo "payload is copied by src/weave"
