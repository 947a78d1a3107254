#!/bin/sh
# A rank drains its part of a store, by shared memory and by TCP: what the directory says of other ranks' blocks is not
# so (drain_sure); another rank, the home of some blocks, is stopped (drain_silent).
set -eu
: "${top_builddir:?}"
. "$(dirname "$0")/secret.sh"
export KVCL_NET=lo
passed=0 failed=0
for path in shm tcp; do
  for program in "$top_builddir/test/multi/drain_sure" "$top_builddir/test/multi/drain_silent"; do
    rc=0
    KVCL_PATH=$path timeout -k 10 300 "$program" >"$tmp/out" || rc=$?
    sed "s/^/-- KVCL_PATH=$path: /" "$tmp/out"
    passed=$((passed + $(grep -c '^ok ' "$tmp/out" || :)))
    [ $rc = 0 ] || failed=$((failed + 1))
  done
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
