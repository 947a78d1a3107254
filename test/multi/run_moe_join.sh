#!/bin/sh
# The example moe: a rank is killed, a process joins in its place and gets experts, and the lines go on.
#   gate   4 ranks: rank 2 comes back
#   night  then also rank 0, through the one that has joined
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
. "$(dirname "$0")/secret.sh"
pids=
trap 'for pid in $pids; do kill "$pid" 2>/dev/null || :; done; rm -rf "$tmp"' EXIT
passed=0 failed=0

fail() {
  echo "FAIL: $*"
  for file in "$tmp"/*.out; do
    echo "-- ${file##*/}"
    tail -n 15 "$file"
  done
  echo "$passed passed, 1 failed, 0 skipped"
  exit 1
}

# shows FILE PATTERN: waits until a line has it.
shows() {
  tries=0
  until grep -q "$2" "$tmp/$1" 2>/dev/null; do
    sleep 0.1
    tries=$((tries + 1))
    [ $tries -lt 900 ] || fail "no line \"$2\" of ${1%.out}"
  done
}

# lines FILE PATTERN: how many.
lines() { grep -c "$2" "$tmp/$1" || :; }

# more FILE PATTERN COUNT: waits until there are more such lines.
more() {
  tries=0
  until [ "$(lines "$1" "$2")" -gt "$3" ]; do
    sleep 0.1
    tries=$((tries + 1))
    [ $tries -lt 900 ] || fail "no further line \"$2\" of ${1%.out}"
  done
}

ends_well() {
  wait "$1" || fail "a process of $2 ends with status $?"
  grep -q 'all ranks that lived were right' "$tmp/$2.out" || fail "$2 says nothing of its end"
}

moe=$top_builddir/contrib/examples/moe
"$moe" --ranks 4 >"$tmp/first.out" 2>&1 &
first=$!
pids=$first
shows first.out 'processes may join at'
shows first.out 'alive 4 of 4'
kill -9 "$(sed -n 's/^rank 2: pid //p' "$tmp/first.out")"
shows first.out 'alive 3 of 4'
shows first.out 'rank 2.*to bring it back'
whole=$(lines first.out 'alive 4 of 4')
"$moe" --join "$(sed -n 's/^rank 2.*moe --join //p' "$tmp/first.out")" >"$tmp/second.out" 2>&1 &
second=$!
pids="$first $second"
shows second.out 'alive 4 of 4'
more first.out 'alive 4 of 4' "$whole"
passed=$((passed + 1))
if [ "${TEST_RING:-gate}" != gate ]; then
  kill -9 "$(sed -n 's/^rank 0: pid //p' "$tmp/first.out")"
  shows first.out 'rank 0.*to bring it back'
  more second.out 'alive 3 of 4' 0
  whole=$(lines second.out 'alive 4 of 4')
  "$moe" --join "$(sed -n 's/^processes may join at //p' "$tmp/second.out")" >"$tmp/third.out" 2>&1 &
  third=$!
  pids="$pids $third"
  shows third.out 'alive 4 of 4'
  more second.out 'alive 4 of 4' "$whole"
  passed=$((passed + 1))
fi
kill "$first"
ends_well "$first" first
ends_well "$second" second
[ -z "${third-}" ] || ends_well "$third" third
if grep -h 'wrong [1-9]' "$tmp"/*.out; then
  fail "outputs were wrong"
fi
pids=
passed=$((passed + 1))
echo "$passed passed, $failed failed, 0 skipped"
