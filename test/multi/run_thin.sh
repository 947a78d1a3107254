#!/bin/sh
# run_thin.sh [PATH...]: two kvcl_serve with pools and two workers without, by shared memory and by TCP.
set -eu
: "${top_builddir:?}" "${top_srcdir:?}"
serve=$top_builddir/src/tools/kvcl_serve
tmp=$(mktemp -d)
pids=
cleanup() {
  # shellcheck disable=SC2086
  [ -z "$pids" ] || kill -9 $pids 2>/dev/null || :
  rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM
HOME=$tmp/home
mkdir -m 700 "$HOME"
export HOME
unset KVCL_RANK KVCL_BOOT KVCL_NET KVCL_SECRET_FILE
. "$top_srcdir/test/multi/ports.sh"
KVCL_SIZE=4 KVCL_BOOT_TIMEOUT=60s
export KVCL_SIZE KVCL_BOOT_TIMEOUT
passed=0 failed=0
for path in ${*:-auto tcp}; do
  next_port
  KVCL_PATH=$path KVCL_NET=
  [ $path = auto ] || KVCL_NET=lo
  KVCL_RENDEZVOUS=tcp://127.0.0.1:$port
  export KVCL_PATH KVCL_NET KVCL_RENDEZVOUS
  pids=
  for rank in 0 1; do
    KVCL_RANK=$rank "$serve" --block 4K --pool 1M --entries 65536 >"$tmp/serve$rank" 2>&1 &
    pids="$pids $!"
  done
  for rank in 2 3; do
    KVCL_RANK=$rank timeout -k 5 100 "$top_builddir/test/multi/thin" >"$tmp/worker$rank" 2>&1 &
    [ $rank = 2 ] && lead=$! || other=$!
  done
  right=1
  wait "$lead" || right=0
  wait "$other" || right=0
  # shellcheck disable=SC2086
  kill -TERM $pids
  for pid in $pids; do
    wait "$pid" || right=0
  done
  pids=
  echo "-- KVCL_PATH=$path"
  cat "$tmp/worker2" "$tmp/worker3"
  if [ $right = 1 ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    cat "$tmp/serve0" "$tmp/serve1"
  fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
