#!/usr/bin/env bash
# RDMA within one guest, over software devices: boot, devices, kvcl_perf, a short part of the conformance suite, of
# which run_two.sh runs all but what this part has; run_two.sh also has the keys and the programs.
#   run_one.sh             the stages that are judged
#   run_one.sh STAGE...    these, judged or not; "later": all that are not judged yet
# TEST_TIMEOUT: 7200
set -eu
. "${top_srcdir:?}/test/guest/host.sh"
. "${top_srcdir:?}/test/guest/programs.sh"

judged='devices native perf replay short churn net one_host replay_kill memlock'

# Not judged:
#   keys           those that are revoked, as run_two.sh does
#   programs       of test/multi, as run_two.sh does
#   conform        the conformance suite
#   conform_more   programs once more without a progress thread and with three ranks, and those that take long
#   speed          prints figures for contrib/doc/results
later='keys programs conform conform_more speed'

# The programs beside these and the tools, by which contrib/check knows what to build:
: "$top_builddir/test/conform/conform_latency" "$top_builddir/test/conform/conform_flood" \
  "$top_builddir/test/conform/conform_fork" \
  "$top_builddir/test/multi/p2p" "$top_builddir/test/multi/coll" "$top_builddir/test/multi/values"

if [ "${*-}" = later ]; then
  set -- $later
elif [ $# = 0 ]; then
  [ "${TEST_RING:-night}" = night ] || skip 'it takes minutes, and runs at night only (TEST_RING=night)'
  set -- $judged
fi
open_guests one
write_start one one.sh "$@"
boot one 2048 2 || no_guest
wait_guests
verdict one
