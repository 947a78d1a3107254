#!/bin/sh
# kvcl_serve --join: a server joins the job of another one, through its address, and comes to its store; it is killed,
# and another one comes in its slot; that one ends by SIGTERM. Refused: other replicas, an address at which nobody is.
set -eu
: "${top_builddir:?}" "${top_srcdir:?}"
serve=$top_builddir/src/tools/kvcl_serve
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
is() {
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "not so: $*"
  fi
}
# here FILE TEXT: wait until the file has the text.
here() {
  turns=1200
  until grep -q "$2" "$1" 2>/dev/null; do
    turns=$((turns - 1))
    [ $turns -gt 0 ] || { echo "no \"$2\" in $1:"; cat "$1"; return 1; }
    sleep 0.05
  done
}

unset KVCL_RANK KVCL_SIZE KVCL_BOOT
export KVCL_NET=lo KVCL_LOG=info
. "$top_srcdir/test/multi/ports.sh"
next_port
KVCL_VIEWS=yes KVCL_SLOTS=2 KVCL_JOIN_AT=127.0.0.1:0 KVCL_RENDEZVOUS=tcp://127.0.0.1:$port KVCL_SIZE=1 KVCL_RANK=0 \
  "$serve" --block 4K --pool 1M 2>"$tmp/first" >/dev/null &
first=$!
pids=$first
is here "$tmp/first" 'processes may join through rank 0 at'
at=$(sed -n 's/.*processes may join through rank 0 at \([0-9.:]*\).*/\1/p' "$tmp/first" | head -n 1)

"$serve" --block 4K --pool 1M --join "$at" 2>"$tmp/second" >/dev/null &
second=$!
pids="$pids $second"
is here "$tmp/first" 'rank 1 comes to a store'
is here "$tmp/second" 'shards have moved'
kill -9 $second
wait $second 2>/dev/null || :
is here "$tmp/first" 'rank 1 no longer takes part in a store'

rc=0; "$serve" --block 4K --pool 1M --replicas 3 --join "$at" 2>"$tmp/other" >/dev/null || rc=$?
is [ $rc = 1 ]
is grep -q 'replicas is 3, but 2 in the store' "$tmp/other"
"$serve" --block 4K --pool 1M --join "$at" 2>"$tmp/third" >/dev/null &
third=$!
pids="$first $third"
is here "$tmp/third" 'shards have moved'
kill -TERM $third
rc=0; wait $third || rc=$?
is [ $rc = 0 ]
rc=0; KVCL_BOOT_TIMEOUT=2s "$serve" --block 4K --pool 1M --join 127.0.0.1:1 2>"$tmp/nobody" >/dev/null || rc=$?
is [ $rc = 1 ]
kill -TERM $first
rc=0; wait $first || rc=$?
is [ $rc = 0 ]
pids=
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
