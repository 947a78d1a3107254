#!/bin/sh
# Two ranks of a host with a small, a tiny, a read-only or no /dev/shm: a cache of 200 MiB is mapped and read all the
# same. A mount namespace has the /dev/shm; the machine's own is not touched.
set -eu
: "${top_builddir:?}" "${top_srcdir:?}"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
skip() {
  echo "SKIP: no test of a small /dev/shm: $*"
  exit 77
}
command -v unshare >/dev/null || skip "no unshare (Debian: util-linux)"
user=-r
[ "$(id -u)" != 0 ] || user=
unshare $user -m sh -c 'mount -t tmpfs -o size=1m none /dev/shm' 2>"$tmp/err" || skip "$(cat "$tmp/err")"

passed=0 failed=0
cat >"$tmp/ranks" <<'END'
set -eu
if [ "$1" = none ]; then # another /dev, with what programs need
  mkdir "$4"
  mount -t tmpfs none "$4"
  for device in null zero random urandom; do
    : >"$4/$device"
    mount --bind "/dev/$device" "$4/$device"
  done
  mount --rbind "$4" /dev
  [ ! -e /dev/shm ] || exit 99
else
  mount -t tmpfs -o "$1" none /dev/shm
fi
. "$3/test/multi/ports.sh"
next_port
KVCL_RENDEZVOUS=tcp://127.0.0.1:$port KVCL_SIZE=2
export KVCL_RENDEZVOUS KVCL_SIZE
KVCL_RANK=1 timeout -k 5 100 "$2" get --unit 1M --count 200 --iters 1 --verify --json >/dev/null &
rc=0
KVCL_RANK=0 timeout -k 5 100 "$2" get --unit 1M --count 200 --iters 1 --verify --json || rc=$?
wait $! || rc=$?
exit $rc
END
for options in size=64m size=4m ro none; do
  rc=0
  unshare $user -m sh "$tmp/ranks" "$options" "$top_builddir/src/tools/kvcl_perf" "$top_srcdir" \
    "$tmp/dev" \
    >"$tmp/out" 2>"$tmp/err" || rc=$?
  if [ $rc = 0 ] && grep -q '"path": "mapped' "$tmp/out" && grep -q '"wrong": 0}' "$tmp/out"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAIL: /dev/shm with $options (status $rc)"
    sed 's/^/   /' "$tmp/out" "$tmp/err" | tail -n 20
  fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
