#!/bin/sh
# Two hosts on one machine: network namespaces joined by a cable (veth). Messages to the other host use TCP. All ranks
# map the memory that KVCL allocated, since they share process ids.
set -eu
: "${top_builddir:?}"

skip() {
  echo "SKIP: no test across two hosts: $*"
  exit 77
}
[ "$(id -u)" = 0 ] || skip "only root can make network namespaces"
for tool in ip unshare; do
  command -v $tool >/dev/null || skip "no $tool (Debian: iproute2, util-linux)"
done

. "$(dirname "$0")/secret.sh"
hosts=
pids=
cleanup() {
  # The cable is removed with its ends.
  for host in $hosts; do
    for pid in $(ip netns pids "$host"); do
      kill -9 "$pid" 2>/dev/null || :
    done
    ip netns del "$host" || :
  done
  rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM

h1=kvcl-$$-h1 h2=kvcl-$$-h2
for host in $h1 $h2; do
  ip netns add "$host" 2>"$tmp/err" || skip "$(cat "$tmp/err")"
  hosts="$hosts $host"
done
ip link add kvcl0 netns $h1 type veth peer name kvcl0 netns $h2 2>"$tmp/err" || skip "$(cat "$tmp/err")"
n=0
for host in $h1 $h2; do
  n=$((n + 1))
  ip -n "$host" addr add 192.168.77.$n/24 dev kvcl0
  ip -n "$host" link set lo up
  ip -n "$host" link set kvcl0 up
done
# UCX ignores a device that has no carrier yet.
for host in $h1 $h2; do
  tries=600
  until ip -n "$host" link show kvcl0 | grep -q 'state UP'; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || skip "the cable does not come up"
    sleep 0.1
  done
done
ip netns exec $h1 unshare --uts --ipc true 2>"$tmp/err" || skip "$(cat "$tmp/err")"

KVCL_NET=kvcl0 KVCL_RENDEZVOUS=tcp://192.168.77.1:7777 KVCL_SIZE=4 KVCL_BOOT_TIMEOUT=60s
export KVCL_NET KVCL_RENDEZVOUS KVCL_SIZE KVCL_BOOT_TIMEOUT

# The ranks of a host share its IPC namespace, without which UCX maps nothing.
r=0
for host in $h1 $h2; do
  # shellcheck disable=SC2016
  ip netns exec "$host" unshare --uts --ipc sh -c 'hostname "$1"
    for r in $2 $(($2 + 1)); do
      (
        rc=0
        KVCL_RANK=$r "$4" 12 paths >"$3/$r.out" 2>"$3/$r.err" || rc=$?
        echo $rc >"$3/$r.rc"
      ) &
    done
    wait' sh "$host" $r "$tmp" "$top_builddir/test/multi/p2p" &
  pids="$pids $!"
  r=$((r + 2))
done
for pid in $pids; do
  wait "$pid" || :
done
pids=
passed=0 failed=0
for r in 0 1 2 3; do
  if [ "$(cat "$tmp/$r.rc")" = 0 ] && grep -q "^ok $r of 4" "$tmp/$r.out"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAIL: rank $r (status $(cat "$tmp/$r.rc"))"
    sed 's/^/   /' "$tmp/$r.out" "$tmp/$r.err" | tail -n 20
  fi
done
for from in 0 1 2 3; do
  for to in 0 1 2 3; do
    [ $from != $to ] || continue
    want='mapped (tcp' # the processes of one host map each other's memory through /proc
    [ $((from / 2)) != $((to / 2)) ] || want='mapped (posix'
    if grep -q "^path $from -> $to $want" "$tmp/$from.out"; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1))
      echo "FAIL: expected path $from -> $to $want...; there is: $(grep "^path $from -> $to" "$tmp/$from.out" || :)"
    fi
  done
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
