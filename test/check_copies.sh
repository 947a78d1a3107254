#!/bin/sh
# Payload is copied in one place: in rooms that move it, memcpy and memmove copy objects, so that their length has a
# sizeof or is a constant. Bytes of any other length go through src/weave (kvcl_copy_bytes, kvcl_copy_pieces,
# kvcl_bulk_copy), or through the copies of src/base for bytes that their owner may be writing (copy_racy.h) and for
# sums (sum_copy.h). src/loop, the transport of one process for tests, copies by itself.
set -eu
: "${top_srcdir:?}"
cd "$top_srcdir"
rooms='src/cache src/coll src/device src/gate src/kv src/lane src/mem src/native src/p2p src/serve src/store src/tier
  src/value src/xfer collectives'

# shellcheck disable=SC2086 # words are meant
found=$(find $rooms -name '*.[ch]' | LC_ALL=C sort | xargs awk '
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
