#!/bin/sh
# The conformance suite's tcp part over the wires that are not the default on loopback.
#   gate   the programs that find most, encrypted
#   night  all programs that have a tcp part, encrypted and over UCX's TCP; with the thread sanitizer as in the gate
# TEST_TIMEOUT: 900
set -eu
: "${top_builddir:?}"
conform=$top_builddir/test/conform
wires=aead
set -- "$conform/conform_rma" "$conform/conform_vec" "$conform/conform_msg" "$conform/conform_fence" \
  "$conform/conform_unsent" "$conform/conform_death"
if [ "${TEST_RING:-gate}" = night ] && [ "${TEST_SANITIZE:-no}" != thread ]; then
  wires="aead ucx"
  set -- "$@" "$conform/conform_ctx" "$conform/conform_req" "$conform/conform_callback" "$conform/conform_prepare" \
    "$conform/conform_fork" "$conform/conform_loop" "$conform/conform_layers" "$conform/conform_layers_stop" \
    "$conform/conform_tokens" "$conform/conform_stream" "$conform/conform_latency" "$conform/conform_gpu" \
    "$conform/conform_lies" "$conform/conform_flood"
fi
for wire in $wires; do
  for program in "$@"; do
    echo "== ${program##*/} over $wire"
    KVCL_WIRE=$wire "$program" tcp
  done
done
