#!/bin/sh
# Processes that join a running job, in slots of ranks that were killed or stopped, and in free ones.
# Then processes that join, and wait until a member activates them; then kills while a process joins; then those of
# another version, and strangers at a member's port.
#   gate   4 ranks over shared memory, 3 over TCP
#   night  also 6 ranks, and 100 kills and joins in a row over both
# TEST_TIMEOUT: 1800
set -eu
: "${top_builddir:?}"
tests=$top_builddir/test/multi
. "$(dirname "$0")/secret.sh"
passed=0 failed=0

# check NAME COMMAND...: each line "ok ..." counts, any other failure counts once.
check() {
  name=$1
  shift
  rc=0
  timeout -k 10 600 "$@" >"$tmp/out" 2>"$tmp/err" || rc=$?
  passed=$((passed + $(grep -c '^ok ' "$tmp/out" || :)))
  sed 's/^/   /' "$tmp/out"
  if [ $rc != 0 ]; then
    failed=$((failed + 1))
    echo "FAIL: $name (status $rc)"
    tail -n 20 "$tmp/err" | sed 's/^/   /'
  fi
}

head -c 32 /dev/urandom >"$tmp/secret.other"
chmod 600 "$tmp/secret.other"
export KVCL_NET=lo
cases="shm/4 tcp/3"
if [ "${TEST_RING:-gate}" != gate ]; then
  cases="$cases shm/6 tcp/6"
  export TEST_CYCLES=100 TEST_KILLS=20
fi
for case in $cases; do
  check "${case#*/} ranks over ${case%/*}" env KVCL_PATH="${case%/*}" "$tests/rejoin" "${case#*/}"
  check "${case#*/} ranks that activate others over ${case%/*}" env KVCL_PATH="${case%/*}" "$tests/join_waits" \
    "${case#*/}"
  check "kills while processes join ${case#*/} ranks over ${case%/*}" env KVCL_PATH="${case%/*}" "$tests/join_kills" \
    "${case#*/}"
done
check "strangers where processes join" env KVCL_PATH=shm "$tests/join_strangers" 3
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
