#!/bin/sh
# Stores whose maps follow views: ranks are killed and stopped while others put, remove and get.
#   gate   each case once, over shared memory or TCP
#   night  each case over both, 10 seeds
# Then put_stopped: ranks are stopped while the copies of a put are fetched. Then zombies: many ranks are stopped, and go
# on when they have been excluded: 3 over each path, at night 30; TEST_ZOMBIES=N: N.
# TEST_TIMEOUT: 3600
set -eu
: "${top_builddir:?}"
. "$(dirname "$0")/secret.sh"
export KVCL_NET=lo
passed=0 failed=0
seed=${TEST_SEED:-$(date +%s)}
cases="shm/killed tcp/stopped shm/alone shm/holds"
turns=1
if [ "${TEST_RING:-gate}" != gate ]; then
  cases="shm/killed tcp/killed shm/both tcp/both shm/stopped tcp/stopped shm/alone tcp/alone shm/holds tcp/holds"
  turns=10
fi
while [ $turns -gt 0 ]; do
  for case in $cases; do
    echo "-- TEST_SEED=$seed KVCL_PATH=${case%/*}"
    if KVCL_PATH=${case%/*} TEST_SEED=$seed timeout -k 10 100 "$top_builddir/test/multi/store_views" "${case#*/}"; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1))
    fi
  done
  turns=$((turns - 1))
  seed=$((seed + 1))
done
if timeout -k 10 500 "$top_builddir/test/multi/put_stopped"; then
  passed=$((passed + 1))
else
  failed=$((failed + 1))
fi
zombies=3
[ "${TEST_RING:-gate}" = gate ] || zombies=30
for path in shm tcp; do
  if KVCL_PATH=$path timeout -k 10 $((200 + (10 * ${TEST_ZOMBIES:-$zombies}))) "$top_builddir/test/multi/zombies" \
    "${TEST_ZOMBIES:-$zombies}"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
  fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
