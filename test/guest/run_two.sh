#!/usr/bin/env bash
# RDMA between two guests, over software devices, and three wires: eth0 and eth1 for RDMA, which can be cut, and eth2.
#   run_two.sh             the stages that are judged
#   run_two.sh STAGE...    these, judged or not; "later": all that are not judged yet
# TEST_TIMEOUT: 7200
set -eu
. "${top_srcdir:?}/test/guest/host.sh"
. "${top_srcdir:?}/test/guest/programs.sh"

judged='paths perf replay store two_ports net no_wire wrong_gid unreach stop kill cut cut_rail deadlines churn programs
replay_kill conform keys'

# Not judged:
#   conform_more   programs once more without a progress thread, and over two ports
later='conform_more'

# The programs beside these and the tools, by which contrib/check knows what to build:
: "$top_builddir/test/multi/deadlines" "$top_builddir/test/multi/rails" \
  "$top_builddir/test/multi/p2p" "$top_builddir/test/multi/coll" "$top_builddir/test/multi/values"

if [ "${*-}" = later ]; then
  set -- $later
elif [ $# = 0 ]; then
  [ "${TEST_RING:-night}" = night ] || skip 'it takes minutes, and runs at night only (TEST_RING=night)'
  set -- $judged
fi

open_guests two
write_start A two.sh "$@"
write_start B two.sh "$@"
boot_two || no_guest
wait_guests
verdict A B
