#!/bin/sh
# The line of kvcl_top that shows the view: its number, the mask, suspects, the lease. A second server joins, is stopped,
# goes on, and is killed; what changes must be in the line. A stopped rank stays a member for KVCL_DEAD.
set -eu
: "${top_builddir:?}" "${top_srcdir:?}"
serve=$top_builddir/src/tools/kvcl_serve top=$top_builddir/src/tools/kvcl_top
. "$top_srcdir/test/multi/secret.sh"
pids=
cleanup() {
  # shellcheck disable=SC2086
  [ -z "$pids" ] || kill -9 $pids 2>/dev/null || :
  rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM
passed=0 failed=0
# says TEXT: until kvcl_top's line of the view is this, but for its number.
says() {
  turns=600
  until "$top" --once "$http" 2>/dev/null >"$tmp/table" && sed -n 's/^view [0-9]*: //p' "$tmp/table" | grep -q "^$1"; do
    turns=$((turns - 1))
    if [ $turns = 0 ]; then
      failed=$((failed + 1))
      echo "not so: $1"
      cat "$tmp/table"
      return 0
    fi
    sleep 0.05
  done
  passed=$((passed + 1))
}

unset KVCL_RANK KVCL_SIZE KVCL_BOOT
export KVCL_NET=lo KVCL_LOG=info KVCL_DEAD=60s
. "$top_srcdir/test/multi/ports.sh"
next_port
rendezvous=$port
next_port
http=127.0.0.1:$port
KVCL_VIEWS=yes KVCL_SLOTS=3 KVCL_JOIN_AT=127.0.0.1:0 KVCL_RENDEZVOUS=tcp://127.0.0.1:$rendezvous KVCL_SIZE=1 \
  KVCL_RANK=0 "$serve" --block 4K --pool 1M --http "$http" 2>"$tmp/first" >/dev/null &
pids=$!
says '1 of 3 ranks, not active: 1 2, 0 suspected, lease: yes'
at=$(sed -n 's/.*processes may join through rank 0 at \([0-9.:]*\).*/\1/p' "$tmp/first" | head -n 1)
"$serve" --block 4K --pool 1M --join "$at" 2>"$tmp/second" >/dev/null &
second=$!
pids="$pids $second"
says '2 of 3 ranks, not active: 2, 0 suspected, lease: yes'
kill -STOP $second
says '2 of 3 ranks, not active: 2, 1 suspected: 1, lease: '
kill -CONT $second
says '2 of 3 ranks, not active: 2, 0 suspected, lease: yes, .* changes, [1-9][0-9]* false suspicions'
kill -9 $second
wait $second 2>/dev/null || :
says '1 of 3 ranks, not active: 1 2, 0 suspected, lease: yes'
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
