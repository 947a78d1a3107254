#!/usr/bin/env bash
# RDMA within one guest that has two devices: every pair of ranks may use both ports.
#   run_devices.sh             the stages that are judged
#   run_devices.sh STAGE...    these, as in run_one.sh
# TEST_TIMEOUT: 7200
set -eu
GUEST_DEVICES=2
. "${top_srcdir:?}/test/guest/host.sh"

judged='perf replay conform churn replay_kill'

# The programs beside the tools, by which contrib/check knows what to build:
: "$top_builddir/test/conform/conform_fence" "$top_builddir/test/conform/conform_msg" \
  "$top_builddir/test/conform/conform_req" "$top_builddir/test/conform/conform_layers" \
  "$top_builddir/test/conform/conform_layers_stop" "$top_builddir/test/conform/conform_rma" \
  "$top_builddir/test/conform/conform_prepare" "$top_builddir/test/conform/conform_tokens" \
  "$top_builddir/test/conform/conform_keys" "$top_builddir/test/conform/conform_ctx" \
  "$top_builddir/test/conform/conform_callback" "$top_builddir/test/conform/conform_stream" \
  "$top_builddir/test/conform/conform_loop" \
  "$top_builddir/test/conform/conform_coll" "$top_builddir/test/conform/conform_unsent" \
  "$top_builddir/test/conform/conform_death"

if [ $# = 0 ]; then
  [ "${TEST_RING:-night}" = night ] || skip 'it takes minutes, and runs at night only (TEST_RING=night)'
  set -- $judged
fi
open_guests devices
write_start one one.sh "$@"
boot one 2048 2 || no_guest
wait_guests
verdict one
