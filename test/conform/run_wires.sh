#!/bin/sh
# The conformance programs that find most, over each wire of KVCL's own TCP connections. Arguments: wires (KVCL_WIRE).
set -eu
: "${top_builddir:?}"
[ $# -gt 0 ] || set -- plain aead
for wire in "$@"; do
  for program in rma msg fence unsent death; do
    echo "== conform_$program over $wire"
    KVCL_WIRE=$wire "$top_builddir/test/conform/conform_$program" tcp
  done
done
