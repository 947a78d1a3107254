#!/bin/sh
# What two ranks print when they fail together: each rank prints the reason of its own failure, with the name of the
# setting to change, and not what it met afterwards.
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
. "$top_srcdir/test/multi/ports.sh"
new_user "$tmp"
passed=0 failed=0 skipped=0
is() {
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "not so: $*"
    tail -n 5 "$tmp/0" "$tmp/1"
  fi
}
# two SETTINGS_OF_0 SETTINGS_OF_1 [OPTION...]: two ranks of kvcl_serve, which must both fail. Rank R's output is in R.
two() {
  settings0=$1 settings1=$2
  shift 2
  next_port
  # shellcheck disable=SC2086
  for rank in 0 1; do
    [ $rank = 0 ] && settings=$settings0 || settings=$settings1
    env KVCL_BOOT_TIMEOUT=30s KVCL_RENDEZVOUS=tcp://127.0.0.1:$port KVCL_SIZE=2 KVCL_RANK=$rank $settings \
      timeout 60 "$serve" --block 4K --pool 64K "$@" >"$tmp/$rank" 2>&1 </dev/null &
    pids="$pids $!"
    [ $rank = 0 ] && pid0=$! || pid1=$!
  done
  rc0=0 rc1=0
  wait "$pid0" || rc0=$?
  wait "$pid1" || rc1=$?
  pids=
  is [ "$rc0 $rc1" = '1 1' ]
}
says() { grep -qF -e "$2" "$tmp/$1"; }
says_not() { ! says "$@"; }

# ---- a store that does not open ----

: >"$tmp/file"
ln -s "$tmp/file" "$tmp/link"
printf 'not a tier, but a file that somebody needs' >"$tmp/needed"
printf 'not a tier, but a file that others can read' >"$tmp/open"
chmod 600 "$tmp/needed"
chmod 644 "$tmp/open"
# both WORDS [OPTION...]: both ranks have this reason.
both() {
  words=$1
  shift
  two '' '' "$@"
  is says 0 "$words"
  is says 1 "$words"
}
both 'symbolic link' --nvme "$tmp/link:64M"
both 'has mode 0644' --nvme "$tmp/open:64M"
both 'needed' --nvme "$tmp/needed:64M"
both '/path' --nvme nowhere
two KVCL_STORE_NVME_KEY="$tmp/nothing/key" KVCL_STORE_NVME_KEY="$tmp/nothing/key" --nvme "$tmp/tier:64M"
is says 0 'nothing/key is not there: make it'
is says 1 'nothing/key is not there: make it'
two '' "KVCL_STORE_NVME=$tmp/link:64M" # one rank alone: the other names it
is says 0 'rank 1 could not open its part: see its error'
is says 1 'symbolic link'

# ---- ranks that cannot reach each other ----

# apart WORDS_OF_0 WORDS_OF_1 SETTINGS_OF_0 SETTINGS_OF_1: each names the reason in its error, and once in its log.
apart() {
  two "$3" "$4"
  is says 0 "bytes): rank 1: $1"
  is says 1 "bytes): rank 0: $2"
  is says_not 0 'has left or failed'
  is says_not 1 'has left or failed'
  is [ "$(grep -c "warn.*$1" "$tmp/0")" = 1 ]
}
tcp='KVCL_PATH=tcp KVCL_NET=lo'
apart "that rank uses KVCL's own TCP connections, and this rank has KVCL_WIRE=ucx: KVCL_WIRE differs" \
  "that rank does not use KVCL's own TCP connections, and this rank has KVCL_WIRE=auto: either KVCL_WIRE differs" \
  "$tcp KVCL_WIRE=ucx" "$tcp"
if [ "$(id -u)" = 0 ] && unshare --pid --fork true 2>/dev/null; then # env starts it
  apart 'that rank is not reached over shared memory' 'that rank is not reached over shared memory' \
    '' 'unshare --pid --fork'
  is says 0 'Set KVCL_NET to the network interface'
  is says 1 'Set KVCL_NET to the network interface'
else
  echo "SKIP: ranks in two namespaces of process ids: only root can make these"
  skipped=$((skipped + 1))
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
