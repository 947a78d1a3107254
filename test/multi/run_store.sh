#!/bin/sh
# The store over 1, 2, 4 and 7 ranks, by shared memory; STORE_PATHS names other paths. KVCL_TEST_SEED=N replays.
set -eu
program=store
. "$(dirname "$0")/seeded.sh"

few=
case ${TEST_SANITIZE-} in
  *thread*)
    echo "SKIP: more than 2 ranks on few cores: too slow for the thread sanitizer"
    few=1
    ;;
esac
for path in ${STORE_PATHS:-auto}; do
  run 1 "$path"
  run 2 "$path"
  if [ -z "$few" ]; then
    run 4 "$path"
    run 7 "$path" bytes bcast evict hostile events match_all # seven on few cores: the slow ones are left out
  fi
  if [ "$path" = tcp ]; then # nothing is far over shared memory
    export KVCL_STORE_HOT=3
    run 2 tcp hot
    [ -n "$few" ] || run 4 tcp hot
    unset KVCL_STORE_HOT
    if [ -z "$few" ]; then # everybody is thought silent at once, and no get ends before its deadline for that
      export KVCL_STORE_HEDGE=100us
      run 4 tcp evict reuse
      unset KVCL_STORE_HEDGE
    fi
  fi
done
