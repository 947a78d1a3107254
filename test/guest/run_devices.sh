#!/usr/bin/env bash
# RDMA within one guest that has two devices: every pair of ranks may use both ports.
#   run_devices.sh             the stages that are judged
#   run_devices.sh STAGE...    these, as in run_one.sh: "conform" is the conformance suite
# TEST_TIMEOUT: 7200
set -eu
GUEST_DEVICES=2
. "${top_srcdir:?}/test/guest/host.sh"
. "${top_srcdir:?}/test/guest/programs.sh"

judged='replay short churn replay_kill' # perf: run_one.sh, and between two ports run_two.sh

if [ $# = 0 ]; then
  [ "${TEST_RING:-night}" = night ] || skip 'it takes minutes, and runs at night only (TEST_RING=night)'
  set -- $judged
fi
open_guests devices
write_start one one.sh "$@"
boot one 2048 2 || no_guest
wait_guests
verdict one
