#!/bin/sh
# Dispatch and combine: ranks that die and are late; experts that are restored; on every path.
#   gate   3 ranks over each path, 1 rank alone
#   night  also 2 and 6 ranks, and without eager bytes
# TEST_TIMEOUT: 1800
set -eu
: "${top_builddir:?}"
tests=$top_builddir/test/multi
. "$(dirname "$0")/secret.sh"
passed=0 failed=0
ring=${TEST_RING:-gate}

# check NAME COMMAND...: each line "ok ..." counts, any other failure counts once.
check() {
  name=$1
  shift
  rc=0
  timeout -k 10 250 "$@" >"$tmp/out" 2>"$tmp/err" || rc=$?
  passed=$((passed + $(grep -c '^ok ' "$tmp/out" || :)))
  if [ $rc != 0 ]; then
    failed=$((failed + 1))
    echo "FAIL: $name (status $rc)"
    { tail -n 20 "$tmp/err"; grep -v '^ok ' "$tmp/out"; } | sed 's/^/   /'
  fi
}

check "alone" "$tests/ep_step" 1
for path in shm tcp; do
  check "3 ranks over $path" env KVCL_PATH=$path KVCL_NET=lo "$tests/ep_step" 3
done
for path in shm tcp; do
  check "restoring over $path" env KVCL_PATH=$path KVCL_NET=lo "$tests/ep_restore"
done
check "restoring, with sums of the copying pass" env KVCL_PATH=shm KVCL_INLINE_COPY=0 "$tests/ep_restore"
if [ "$ring" = night ]; then
  check "2 ranks" "$tests/ep_step" 2
  check "6 ranks" "$tests/ep_step" 6
  check "no eager bytes" env KVCL_EAGER=0 "$tests/ep_step" 3
fi

echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
