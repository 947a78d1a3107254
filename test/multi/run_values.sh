#!/bin/sh
# Values of a store. TEST_SEED=N replays.
#   gate   on 2 ranks by shared memory and on 4 by TCP, without the values of 70 MiB
#   night  on 1, 2 and 4 ranks by both
# Either also on one rank with every put past the caches.
# A holder of values is killed over both paths in either.
set -eu
program=$top_builddir/test/multi/values
. "$(dirname "$0")/seeded.sh"

[ "${TEST_SANITIZE:-no}" = no ] || export VALUES_SMALL=1 # 70 MiB are left out
if [ "${TEST_RING:-gate}" = gate ]; then
  export VALUES_SMALL=1
  run 2 auto
  run 4 tcp
else
  for path in auto tcp; do
    run 1 $path
    run 2 $path
    run 4 $path
  done
fi

export KVCL_COPY=weave4 KVCL_COPY_LARGE=64K
run 1 auto
unset KVCL_COPY KVCL_COPY_LARGE

# A holder is killed.
. "$(dirname "$0")/secret.sh"
trap 'rm -rf "$tmp" "$runs"' EXIT
for path in auto tcp; do
  echo "-- KVCL_PATH=$path"
  KVCL_PATH=$path KVCL_NET=lo timeout -k 10 120 "$top_builddir/test/multi/values_death" 4
done
total 2
