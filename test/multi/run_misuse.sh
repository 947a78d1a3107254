#!/bin/sh
# Misuse of the environment and of the tools' options. Each case ends with the right status, soon and without a crash,
# prints nothing to stdout that a program would take for a result, and names the mistake and the correction. (Misuse of
# calls: test/api/test_errors*.c.) A table: one case a line.
set -eu
: "${top_builddir:?}"
tools=$(cd "$top_builddir" && pwd)/src/tools
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
. "$(dirname "$0")/ports.sh"
new_user "$tmp"
cd "$tmp"
umask 077
mkdir secrets
: >empty
printf 'fifteen bytes..' >short
printf 'thirty-two bytes that others see' >open
chmod 644 open
printf '{"timestamp": 1}\nnonsense\n' >trace
printf 'not a tier, but a file that somebody needs' >file

passed=0 failed=0 n_env=0 n_tool=0
# check STATUS WORDS COMMAND...: words are separated by ";".
check() {
  due=$1 words=$2 rc=0
  shift 2
  timeout 60 "$@" >out 2>err </dev/null || rc=$?
  ok=1
  [ "$rc" = "$due" ] || ok=0
  [ "$due" = 0 ] || [ ! -s out ] || ok=0
  rest=$words
  while [ -n "$rest" ]; do
    word=${rest%%;*}
    [ "$rest" = "$word" ] && rest='' || rest=${rest#*;}
    grep -qF -e "$word" err || ok=0
  done
  if [ $ok = 1 ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "not so: $*: ended with $rc, not $due, or does not say \"$words\", or has a result:"
    sed 's/^/    /' err
  fi
}
# by SETTINGS STATUS WORDS: the output of a program that starts.
by() {
  n_env=$((n_env + 1))
  # shellcheck disable=SC2086
  check "$2" "$3" env KVCL_PATH=loop $1 "$tools/kvcl_perf" lookup --count 8 --iters 1 --json
}
# tool STATUS WORDS TOOL [ARGUMENTS...]
tool() {
  n_tool=$((n_tool + 1))
  due_t=$1 words_t=$2 name_t=$3
  shift 3
  check "$due_t" "$words_t" "$tools/$name_t" "$@"
}

# ---- the environment ----

by KVCL_BOOT=pigeon 1 'pigeon;KVCL_BOOT;oob'
by KVCL_BOOT=oob 1 'oob;params.oob'
by KVCL_BOOT=tcp 1 'KVCL_RENDEZVOUS=tcp://host:port'
by 'KVCL_BOOT=self KVCL_SIZE=2 KVCL_RANK=1' 1 'KVCL_SIZE=2 (or params.nranks);KVCL_RENDEZVOUS=tcp://;unset KVCL_SIZE'
by KVCL_SIZE=4 1 'KVCL_SIZE=4 (or params.nranks), but the ranks have no way to meet'
by KVCL_RANK=3 1 'KVCL_RANK=3 (or params.rank), but the ranks have no way to meet'
by 'KVCL_RENDEZVOUS=here KVCL_SIZE=1' 1 'here;tcp://'
by 'KVCL_RENDEZVOUS=udp://127.0.0.1:4000 KVCL_SIZE=1' 1 'udp://;tcp://'
by 'KVCL_RENDEZVOUS=tcp://127.0.0.1 KVCL_SIZE=1' 1 'tcp://127.0.0.1;port'
by 'KVCL_RENDEZVOUS=tcp://127.0.0.1:0 KVCL_SIZE=1' 1 'port'
by 'KVCL_RENDEZVOUS=tcp://127.0.0.1:65536 KVCL_SIZE=1' 1 '65536'
by 'KVCL_RENDEZVOUS=tcp://127.0.0.1:40x KVCL_SIZE=1' 1 '40x'
by KVCL_RENDEZVOUS=tcp://127.0.0.1:4000 1 'KVCL_SIZE'
by 'KVCL_RENDEZVOUS=tcp://127.0.0.1:4000 KVCL_SIZE=2 KVCL_RANK=5' 1 \
  'KVCL_RANK=5;with KVCL_SIZE=2 (or params.nranks) the ranks are 0 to 1'
by 'KVCL_RENDEZVOUS=tcp://192.0.2.1:4000 KVCL_SIZE=2 KVCL_RANK=0' 1 'KVCL_SECRET_FILE'
by KVCL_RANK=first 1 'KVCL_RANK=first'
by KVCL_RANK=65536 1 'KVCL_RANK=65536;65535'
by KVCL_SIZE=-3 1 'KVCL_SIZE=-3'
by KVCL_BOOT_TIMEOUT=soon 1 'KVCL_BOOT_TIMEOUT=soon'
by KVCL_PATH=tunnel 1 'KVCL_PATH=tunnel;shm'
by KVCL_TIMEOUT=10us 1 'KVCL_TIMEOUT=10us'
by KVCL_TIMEOUT=1x 1 'KVCL_TIMEOUT=1x'
by KVCL_SPIN=2s 1 'KVCL_SPIN=2s'
by KVCL_LOG=loud 1 'KVCL_LOG;loud;debug'
by KVCL_KEEPALIVE=1ms 1 'KVCL_KEEPALIVE=1ms;10ms'
by KVCL_COLL_TABLE=rubble 1 'KVCL_COLL_TABLE;too few fields'
by KVCL_NATIVE_TABLE=rubble 1 'KVCL_NATIVE_TABLE;KIND:FROM-TO:WAY'
by KVCL_COLL_CHUNK=1 1 'KVCL_COLL_CHUNK=1'
by KVCL_INLINE_COPY=-1 1 'KVCL_INLINE_COPY=-1'
by KVCL_FRAME=1G 1 'KVCL_FRAME=1G'
by KVCL_WINDOW=0 1 'KVCL_WINDOW=0;1024'
by KVCL_EAGER=2M 1 'KVCL_EAGER=2M'
by KVCL_NUMA=moon 1 'KVCL_NUMA=moon;interleave'
by KVCL_BACKGROUND_SHARE=91 1 'KVCL_BACKGROUND_SHARE=91;90'
by KVCL_LANE_MIN=z 1 'KVCL_LANE_MIN=z'
by KVCL_STORE_HEDGE=x 1 'KVCL_STORE_HEDGE=x'
by KVCL_STORE_HEDGE_AUTO=maybe 1 'KVCL_STORE_HEDGE_AUTO=maybe'
by KVCL_STORE_HOT=256 1 'KVCL_STORE_HOT=256;255'
by KVCL_STORE_STRIPE_RANKS=0 1 'KVCL_STORE_STRIPE_RANKS=0'
by KVCL_STORE_REPAIR=-1 1 'KVCL_STORE_REPAIR=-1'
by 'KVCL_NET=nosuch0 KVCL_PATH=tcp' 1 'nosuch0;KVCL_NET;RDMA device'
by 'KVCL_NET=lo,nosuch_0:1/3 KVCL_PATH=auto' 1 'KVCL_NET;no RDMA device "nosuch_0";can be used'
by KVCL_PATH=tcp 1 'KVCL_PATH=tcp needs KVCL_NET to name a network interface'
by KVCL_PATH=rdma 1 'KVCL_PATH=rdma needs KVCL_NET to name an RDMA port;mlx5_0:1;can be used'
by 'KVCL_PATH=rdma KVCL_NET=lo' 1 'KVCL_PATH=rdma needs KVCL_NET;"lo" names none;can be used'
by KVCL_SECRET_FILE=gone 1 'KVCL_SECRET_FILE;gone;is not there;head -c 32'
by KVCL_SECRET_FILE=secrets 1 'KVCL_SECRET_FILE;secrets;directory'
by KVCL_SECRET_FILE=empty 1 'KVCL_SECRET_FILE;empty;16'
by KVCL_SECRET_FILE=short 1 'KVCL_SECRET_FILE;15 bytes;16'
by KVCL_SECRET_FILE=open 1 'KVCL_SECRET_FILE;0644;chmod 600'
by KVCL_SECRET_FILE=/dev/null 1 'KVCL_SECRET_FILE;regular file'
by KVCL_TIMEOT=1s 0 'KVCL_TIMEOT;KVCL_TIMEOUT'

# ---- tools ----

for name in kvcl_info kvcl_perf kvcl_replay kvcl_serve kvcl_top; do
  tool 2 "$name;--nonsense" $name --nonsense
  tool 2 "$name;-z" $name -z
  tool 2 '--versio' $name --versio
done
for name in kvcl_info kvcl_replay; do
  tool 2 'unexpected argument;more' $name more
  tool 2 '--json takes no value' $name --json=yes
done
tool 2 'name one test;send put get' kvcl_perf
tool 2 'juggle;send put get' kvcl_perf juggle
tool 2 'unexpected argument' kvcl_perf get put
tool 2 '--unit needs a value;BYTES' kvcl_perf get --unit
tool 2 '--unit;"x"' kvcl_perf get --unit x
tool 2 '--unit;0' kvcl_perf get --unit 0
tool 2 '--count: "-1" is not a number of 0 or more (K, M, G or T may follow)' kvcl_perf get --count -1
tool 2 '--count;0' kvcl_perf get --count 0
tool 2 '--order;sideways;random' kvcl_perf get --order sideways
tool 2 '--threads' kvcl_perf get --threads 0
tool 2 '--threads' kvcl_perf get --threads 1000000
tool 2 '--iters;"many"' kvcl_perf get --iters many
tool 2 '--batch' kvcl_perf get --batch 4
tool 2 '--apart;store-get' kvcl_perf get --apart
tool 2 '--beside' kvcl_perf send --beside 4K
tool 2 '--beside;"x"' kvcl_perf get --beside x
tool 2 '--verify takes no value' kvcl_perf get --verify=yes
tool 2 'kvcl_replay: --trace gone: No such file' kvcl_replay --trace gone
tool 2 'kvcl_replay: --trace empty: no requests' kvcl_replay --trace empty
tool 2 'trace:1;input_length' kvcl_replay --trace trace --strict
tool 2 '--trace needs a value' kvcl_replay --trace
tool 2 '--model;nobody' kvcl_replay --model nobody
tool 2 '--bytes-per-token;"x"' kvcl_replay --bytes-per-token x
tool 2 '--bytes-per-token;0' kvcl_replay --bytes-per-token 0
tool 2 '--bytes-per-token;larger than 4 GiB' kvcl_replay --bytes-per-token 9223372036854775808
tool 2 '--pool;"x"' kvcl_replay --pool x
tool 2 '--pool;percentage;--store' kvcl_replay --pool 10%
tool 2 '--speed;"fast"' kvcl_replay --speed fast
tool 2 '--speed;"-1"' kvcl_replay --speed -1
tool 2 '--requests;0' kvcl_replay --requests 0
tool 2 '--seed;"x"' kvcl_replay --seed x
tool 2 '--replicas;--store' kvcl_replay --replicas 2
tool 2 '--replicas;9' kvcl_replay --store --replicas 9
tool 2 '--nvme;--store' kvcl_replay --nvme /tmp/x:1M
tool 2 '--kill;--store' kvcl_replay --kill 0@1
tool 2 '--kill;RANK@SECOND' kvcl_replay --store --kill first
tool 1 '(--nvme;file' kvcl_replay --store --pool 64M --requests 10 --nvme "$tmp/file:64M"
tool 2 'block' kvcl_serve
tool 2 '--block;"x"' kvcl_serve --block x
tool 2 '--block;0' kvcl_serve --block 0
tool 2 '--block;twice' kvcl_serve --block 4K,4096
tool 2 '--pool' kvcl_serve --block 4K --pool 1
tool 2 '--replicas' kvcl_serve --block 4K --replicas 5
tool 2 '--replicas' kvcl_serve --block 4K --replicas 0
tool 2 '--entries' kvcl_serve --block 4K --entries x
tool 2 '--drain;"soon"' kvcl_serve --block 4K --drain soon
tool 2 '--drain: "-3" is not a number of 0 or more' kvcl_serve --block 4K --drain -3
tool 2 '--nvme-format without --nvme or KVCL_STORE_NVME' kvcl_serve --block 4K --nvme-format
tool 2 '--pool;4294967295 blocks of 4096 bytes, 17592186040320 bytes' kvcl_serve --block 1M,4K --pool 999T
tool 1 '(--nvme: ;nowhere;/path' kvcl_serve --block 4K --pool 64K --nvme nowhere
tool 1 'file' kvcl_serve --block 4K --pool 64K --nvme "$tmp/file:64M"
tool 1 'nonsense' kvcl_serve --block 4K --pool 64K --http nonsense
tool 1 '65536' kvcl_serve --block 4K --pool 64K --http 65536
tool 2 'HOST:PORT' kvcl_top
tool 2 'unexpected argument' kvcl_top a:1 b:2
tool 1 '127.0.0.1:1: ;is a kvcl_serve --http running there?' kvcl_top --once 127.0.0.1:1
tool 2 'nowhere' kvcl_top --once nowhere
tool 2 '99999' kvcl_top --once 127.0.0.1:99999
tool 2 '--interval' kvcl_top --interval 0 127.0.0.1:1
tool 2 '--interval;"x"' kvcl_top --interval x 127.0.0.1:1
tool 2 '--interval needs a value' kvcl_top --interval

echo "$n_env cases of the environment, $n_tool of tools"
[ $n_env -ge 31 ] && [ $n_tool -ge 60 ] || { echo "too few cases"; failed=$((failed + 1)); }
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
