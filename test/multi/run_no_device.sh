#!/bin/sh
# RDMA ports that the kernel lists and UCX cannot open, as in a container that lacks /dev/infiniband: a port that is
# named is refused with what to check, one that an interface brings is left out with a warning. The ports are made, in a
# mount namespace of this test. (How a list is read: test/unit/test_net.c. Ports that work: test/guest.)
set -eu
: "${top_builddir:?}"
info=$(cd "$top_builddir" && pwd)/src/tools/kvcl_info

skip() {
  echo "SKIP: no made ports: $*"
  exit 77
}
if [ "${1-}" != inside ]; then
  [ "$(id -u)" = 0 ] || skip "only root can mount them"
  command -v unshare >/dev/null || skip "no unshare (Debian: util-linux)"
  unshare -m true 2>/dev/null || skip "this user cannot make a mount namespace"
  exec unshare -m sh "$0" inside
fi

tmp=$(mktemp -d)
cleanup() {
  umount -l "$tmp/class" 2>/dev/null || :
  rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM
mkdir "$tmp/class"
mount -t tmpfs none "$tmp/class" 2>/dev/null || skip "nothing can be mounted"
mkdir "$tmp/class/net" "$tmp/class/infiniband_verbs"
mount --rbind /sys/class/net "$tmp/class/net" || skip "/sys/class/net cannot be mounted"

# port DEVICE LAYER STATE: its port 1, with one GID, of lo
port() {
  made=$tmp/class/infiniband/$1/ports/1
  mkdir -p "$made/gids" "$made/gid_attrs/types" "$made/gid_attrs/ndevs"
  echo "$2" >"$made/link_layer"
  echo "$3" >"$made/state"
  echo 0000:0000:0000:0000:0000:ffff:7f00:0001 >"$made/gids/0"
  echo 'RoCE v2' >"$made/gid_attrs/types/0"
  echo lo >"$made/gid_attrs/ndevs/0"
}
port made_0 Ethernet '4: ACTIVE'
port made_1 Ethernet '1: DOWN'
port made_2 InfiniBand '2: INIT'
mount --rbind "$tmp/class" /sys/class || skip "nothing can be mounted on /sys/class"

. "$(dirname "$0")/ports.sh"
new_user "$tmp"
unset UCX_TLS UCX_NET_DEVICES || :
if KVCL_NET=made_0:1 "$info" --paths 2>&1 | grep -q 'may be locked here'; then
  skip "memory cannot be locked here (ulimit -l), which is found first"
fi

passed=0 failed=0
# net PATH NET STATUS WORDS: kvcl_info --paths with these settings; words are separated by ";".
net() {
  rc=0
  KVCL_PATH=$1 KVCL_NET=$2 timeout 60 "$info" --paths >"$tmp/out" 2>"$tmp/err" </dev/null || rc=$?
  ok=1
  [ $rc = "$3" ] || ok=0
  rest=$4
  while [ -n "$rest" ]; do
    word=${rest%%;*}
    [ "$rest" = "$word" ] && rest='' || rest=${rest#*;}
    grep -qF -e "$word" "$tmp/err" || ok=0
  done
  if [ $ok = 1 ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "not so: KVCL_PATH=$1 KVCL_NET=$2: ended with $rc, not $3, or does not say \"$4\":"
    sed 's/^/    /' "$tmp/err"
  fi
}
hint='check that this process may open /dev/infiniband;--device /dev/infiniband;ibv_devices;ucx_info -d'

net auto made_0:1 1 "KVCL_NET: RDMA port made_0:1 cannot be used;$hint"
net auto 'lo, made_0' 1 "KVCL_NET: RDMA port made_0:1 cannot be used;$hint"
net auto lo 0 "RDMA port made_0:1 of interface lo is not used;$hint"
net rdma lo 1 "KVCL_NET: RDMA port made_0:1 cannot be used;$hint"
net tcp made_0:1 1 'KVCL_PATH=tcp needs KVCL_NET to name a network interface'
down='port made_1:1 is not active (1: DOWN): bring up its link and its interface'
net auto 'lo, made_1:1' 1 "$down;can be used: made_0:1 (lo)"
net rdma made_2:1 1 'port made_2:1 is not active (2: INIT);subnet manager'
net auto made_0:1/7 1 'no GID of index "7" (/sys/class/infiniband/made_0/ports/1/gids lists them)'

echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
