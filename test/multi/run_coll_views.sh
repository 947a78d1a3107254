#!/bin/sh
# Ranks that are killed at random moments of each collective, with views: the others learn it, and go on.
#   gate   4 ranks, 6 kills for each collective (of 3 sizes, with and without revoke), over shared memory
#   night  18 kills for each, over shared memory and TCP
# TEST_TIMEOUT: 1800
set -eu
: "${top_builddir:?}"
. "$(dirname "$0")/secret.sh"
export KVCL_NET=lo
passed=0 failed=0
kills=6 paths=shm
[ "${TEST_RING:-gate}" = gate ] || { kills=18 paths="shm tcp"; }
for path in $paths; do
  rc=0
  KVCL_PATH=$path timeout -k 10 1500 "$top_builddir/test/multi/coll_views" 4 $kills >"$tmp/out" 2>"$tmp/err" || rc=$?
  passed=$((passed + $(grep -c '^ok ' "$tmp/out" || :)))
  sed 's/^/   /' "$tmp/out"
  if [ $rc != 0 ]; then
    failed=$((failed + 1))
    echo "FAIL: over $path (status $rc)"
    tail -n 20 "$tmp/err" | sed 's/^/   /'
  fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
