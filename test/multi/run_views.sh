#!/bin/sh
# Ranks that are killed, stopped or leave, and callbacks that block: the others agree on who is left, and the excluded
# are fenced. Then ranks that agree and shrink meanwhile, communicators that are revoked, and ranks that a killed one
# leaves deaf.
#   gate   3 ranks over shared memory; 4 over TCP
#   night  also 2 and 8 ranks, over both
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
  timeout -k 10 300 "$@" >"$tmp/out" 2>"$tmp/err" || rc=$?
  passed=$((passed + $(grep -c '^ok ' "$tmp/out" || :)))
  sed 's/^/   /' "$tmp/out"
  if [ $rc != 0 ]; then
    failed=$((failed + 1))
    echo "FAIL: $name (status $rc)"
    tail -n 20 "$tmp/err" | sed 's/^/   /'
  fi
}

export KVCL_NET=lo
cases="shm/3 tcp/4"
[ "${TEST_RING:-gate}" = gate ] || cases="$cases shm/2 shm/8 tcp/2 tcp/8"
for case in $cases; do
  check "${case#*/} ranks over ${case%/*}" env KVCL_PATH="${case%/*}" "$tests/views" "${case#*/}"
  check "recovery of ${case#*/} ranks over ${case%/*}" env KVCL_PATH="${case%/*}" "$tests/recover" "${case#*/}"
  check "${case#*/} ranks that go over ${case%/*}" env KVCL_PATH="${case%/*}" "$tests/leave" "${case#*/}"
  check "bad luck of ${case#*/} ranks over ${case%/*}" env KVCL_PATH="${case%/*}" "$tests/recover_bad" "${case#*/}"
  [ "${case%/*}" != shm ] ||
    check "deaf ranks of ${case#*/}" env KVCL_PATH=shm "$tests/deaf" "${case#*/}"
  check "revocation in ${case#*/} ranks over ${case%/*}" env KVCL_PATH="${case%/*}" "$tests/revoke" "${case#*/}"
done
check "slots of nobody" "$tests/slots" 3
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
