#!/bin/sh
# The conformance suite's tcp part over the wires that are not the default on loopback.
#   gate   the programs that find most, encrypted
#   night  all programs that have a tcp part, encrypted and over UCX's TCP; with the thread sanitizer as in the gate
# TEST_TIMEOUT: 900
set -eu
: "${top_builddir:?}"
wires=aead programs="rma vec msg fence unsent death"
if [ "${TEST_RING:-gate}" = night ] && [ "${TEST_SANITIZE:-no}" != thread ]; then
  wires="aead ucx"
  programs="rma vec msg fence unsent death ctx req callback prepare fork loop layers layers_stop tokens stream latency \
    gpu lies flood"
fi
for wire in $wires; do
  for program in $programs; do
    echo "== conform_$program over $wire"
    KVCL_WIRE=$wire "$top_builddir/test/conform/conform_$program" tcp
  done
done
