#!/bin/sh
# The store, by shared memory; STORE_PATHS names other paths. TEST_SEED=N replays.
#   gate   all tests once: on 4 ranks by shared memory, on 2 by TCP; also those that need another number of ranks
#   night  all tests on 1, 2 and 4 ranks, most on 7
# TEST_TIMEOUT: 1800
set -eu
program=$top_builddir/test/multi/store
. "$(dirname "$0")/seeded.sh"

few=
case ${TEST_SANITIZE-} in
  *thread*)
    echo "SKIP: more than 2 ranks on few cores: too slow for the thread sanitizer"
    few=1
    ;;
esac
# At the gate. It includes the tests that the loops of the night add on TCP.
short() {
  if [ "$1" = tcp ]; then
    run 2 tcp
    (export KVCL_STORE_HOT=3 && run 2 tcp hot)
    [ -n "$few" ] || (export KVCL_STORE_HEDGE=100us && run 4 tcp evict reuse)
  else
    run 1 "$1" bytes pool full tier pins
    run 2 "$1" slabs_places copies hot
    (export KVCL_COPY=weave4 KVCL_COPY_LARGE=64K && run 2 "$1" bytes pool flips many_flips)
    if [ -n "$few" ]; then run 2 "$1"; else run 4 "$1"; fi
  fi
}

for path in ${STORE_PATHS:-auto}; do
  if [ "${TEST_RING:-gate}" = gate ]; then
    short "$path"
    continue
  fi
  run 1 "$path"
  run 2 "$path"
  if [ -z "$few" ]; then
    run 4 "$path"
    run 7 "$path" bytes bcast evict hostile events match_all # seven ranks on few cores: the slow tests are left out
  fi
  if [ "$path" = tcp ]; then # no rank is remote over shared memory
    export KVCL_STORE_HOT=3
    run 2 tcp hot
    [ -n "$few" ] || run 4 tcp hot
    unset KVCL_STORE_HOT
    if [ -z "$few" ]; then # all ranks are taken for silent at once, which makes no get end before its deadline
      export KVCL_STORE_HEDGE=100us
      run 4 tcp evict reuse
      unset KVCL_STORE_HEDGE
    fi
  fi
done
total
