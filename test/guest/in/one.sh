# one.sh ROLE STAGE...: inside one guest. Ranks are as on hosts of their own, so RDMA alone is between them. Most stages
# have $n devices.
set -u
role=$1
shift
. "$top_srcdir/test/guest/in/lib.sh"
n=${GUEST_DEVICES:-1}

stage_devices() {
  devices 1
  is 'a device on one interface' is_active rxe0
  ibv_devices >"$logs/$stage.ibv" 2>&1
  is 'ibv_devices names it' says rxe0 "$logs/$stage.ibv"
  devices 2
  is 'a second one' is_active rxe1
  devices 0
  is 'none after both are deleted' [ ! -e /sys/class/infiniband/rxe0 ]
}

n_perf=0

# perf_test TEST OPTION...: two ranks; no byte may be wrong, and packets must have been sent
perf_test() {
  local name=$n_perf.$1
  n_perf=$((n_perf + 1))
  ranks "$name" 2 150 "$tools/kvcl_perf" "$@" --verify --iters 4 --json || :
  is "$*: right bytes, over the device" verified "$name"
}

verified() {
  [ "$statuses" = ' 0 0' ] && [ "$sent" -gt 0 ] && says '"wrong": 0}' "$logs/$stage.$1.0"
}

stage_perf() {
  devices "$n"
  patient
  perf_tests
}

# Gets and puts between hosts are native.
stage_native() {
  devices 1
  patient
  export KVCL_LOG=debug
  for test in get put; do
    ranks $test 2 150 "$tools/kvcl_perf" $test --unit 64K --count 16 --order random --verify --iters 2 --json || :
    is "$test: right bytes, over the device" verified $test
    is "$test: the cache is native" says 'described a cache: .*, native' "$logs/$stage.$test.0"
    is "$test: native runs" says 'rdma: native' "$logs/$stage.$test.0"
  done
  unset KVCL_LOG
  ranks floor 2 150 "$tools/kvcl_perf" get --unit 64K --count 16 --iters 2 --floor --json || :
  is '--floor: right bytes, over the device' verified floor
  is '--floor: raw UCX is not measured' says '"floor_gbps": null' "$logs/$stage.floor.0"
  is '--floor: a line says so' says 'raw UCX is not measured over RDMA' "$logs/$stage.floor.0"
}

stage_conform() {
  devices "$n"
  patient
  conform_all conform
}

# Without a progress thread, with three ranks, and programs that take long or are not about peers.
stage_conform_more() {
  devices 1
  patient
  conform fence_nothread 300 --rdma=2,nothread conform_fence
  KVCL_NATIVE_TABLE=$served conform rma3 300 --rdma=3 conform_rma
  KVCL_NATIVE_TABLE=$served conform rma_nothread 300 --rdma=2,nothread conform_rma
  conform latency 300 --rdma=2 conform_latency
  conform fork 300 --rdma=2 conform_fork
  conform flood 400 --rdma=6 conform_flood
}

# The part of the gate.
stage_short() {
  devices "$n"
  KVCL_NATIVE_TABLE=$served conform rma 300 --rdma=2 conform_rma
  for p in tokens prepare; do
    conform $p 300 --rdma=2 conform_$p
  done
}

# Keys of memory that is revoked, freed and made again under gets and puts. GUEST_ENV=CF_ROUNDS=1000: about 20 minutes.
stage_keys() {
  devices 1
  for p in revoke_puts free_gets stale_twice; do
    CF_ROUNDS=${CF_ROUNDS:-30} conform $p "${CF_ROUNDS:+2}400" --rdma=3 conform_keys $p
  done
}

# A cache is freed and made again 100 times under the gets of three ranks.
stage_churn() {
  devices "$n"
  CF_ROUNDS=100 conform churn 600 --rdma=4 conform_keys churn
  grep -h 'churn over' "$logs/$stage.churn"
}

# Locked memory is limited: memory that does not fit is served, then a port that does not fit is not used.
stage_memlock() {
  devices 2
  devices 1
  conform locked 200 --rdma=2 conform_keys locked
  is 'one line a context names the bytes and the port' once_a_context "$logs/$stage.locked"
  mkdir -p /tmp/home && chown 65534:65534 /tmp/home # where the user may have the job's secret
  cat >/tmp/user <<END
#!/bin/sh
ulimit -l 64
export HOME=/tmp/home
exec setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set -all --inh-caps -all \
  $(program "$tools/kvcl_perf") "\$@"
END
  chmod 755 /tmp/user
  KVCL_NET=rxe0:1,port1 ranks port 2 150 /tmp/user get --unit 64K --count 16 --verify --iters 4 --json || :
  is 'a user who may lock 64 KiB: right bytes' says '"wrong": 0}' "$logs/$stage.port.0"
  is 'over TCP' [ "$statuses" = ' 0 0' -a "$sent" = 0 ]
  is 'and a line says why not over RDMA' says 'RDMA port rxe0:1.* is not used: .*ulimit -l' "$logs/$stage.port.0"
}
once_a_context() {
  [ "$(grep -c 'bytes cannot be registered with RDMA port rxe0:1.*ulimit -l' "$1")" = 1 ]
}

# KVCL_NET bounds RDMA ports too: port1 is an interface without a device.
stage_net() {
  devices 2
  patient
  devices 1
  where=beside unnamed lo
  unnamed port1
  refused absent port1,nowhere_0:1 'no RDMA device "nowhere_0".*can be used: rxe0:1 \(port0\)'
  refused port rxe0:2 'RDMA device "rxe0" has no port 2.*can be used: rxe0:1'
  refused gid rxe0:1/200 'no GID of index "200".*can be used: rxe0:1'
  ip link set port0 down
  refused down rxe0:1 'rxe0:1 is not active.*can be used: none'
  ip link set port0 up
}
unnamed() { # unnamed NET
  KVCL_NET=$1 ranks "$1" 2 150 "$tools/kvcl_perf" get --unit 64K --count 16 --verify --iters 4 --json || :
  is "KVCL_NET=$1: right bytes" [ "$statuses" = ' 0 0' ]
  is "KVCL_NET=$1: no packet over the device" [ "$sent" = 0 ]
}
refused() { # refused NAME NET TEXT
  KVCL_NET=$2 ranks "$1" 1 60 "$tools/kvcl_info" || :
  is "KVCL_NET=$2 is refused" [ "$statuses" = ' 1' ]
  is "KVCL_NET=$2: the sentence names the ports" says "$3" "$logs/$stage.$1.0"
}

# Programs of test/multi: each verifies all bytes itself. A rank that is slow is not silent.
stage_programs() {
  devices 1
  patient
  ranks p2p 3 300 "$top_builddir/test/multi/p2p" 3 || :
  is p2p [ "$statuses" = ' 0 0 0' ]
  ranks coll 3 300 "$top_builddir/test/multi/coll" || :
  is coll [ "$statuses" = ' 0 0 0' ]
  VALUES_SMALL=1 KVCL_STORE_HEDGE=10s ranks values 2 300 "$top_builddir/test/multi/values" --seed "$seed" || :
  is values [ "$statuses" = ' 0 0' ]
}

# Two ranks of one host with one port, which share memory and may not read each other's. All other bytes are served.
stage_one_host() {
  devices 1
  patient
  for p in msg fence; do
    UCX_TLS=^cma KVCL_NATIVE_TABLE=rdma:0-inf:served timeout -s KILL 300 "$(program "$conform/conform_$p")" --auto \
      >"$logs/$stage.$p" 2>&1
    is "conform_$p" [ $? = 0 ]
  done
}

replay_test() { # replay_test NAME N OPTION...; a rank that is slow is not silent
  KVCL_STORE_HEDGE=10s ranks "$1" "$2" 300 "$tools/kvcl_replay" --requests 40 --json "${@:3}" || :
  is "$1: all ranks end well, over the device" [ "${statuses//[ 0]/}" = '' -a "$sent" -gt 0 ]
}

stage_replay() {
  devices "$n"
  patient
  replay_test plain 2
  is 'plain: all bytes right' no_loss "$logs/$stage.plain.0"
  replay_test store 2 --in-order --store --pool 30% --replicas 2
  is 'a store: all bytes right' no_loss "$logs/$stage.store.0" failed
}

# Gets of 4 MiB and a store's beside UCX's own test, in turn: figures for contrib/doc/results, in MB/s, not judged.
stage_speed() {
  local i name
  devices 1
  for i in $(seq "${GUEST_ROUNDS:-5}"); do
    for test in get store-get 'store-get --no-checksum' put; do
      name=${test// --/-}
      # shellcheck disable=SC2086 # words
      ranks "$name$i" 2 150 "$tools/kvcl_perf" $test --unit 64K --count 64 --iters 20 --json || :
      is "$test $i: it runs" [ "$statuses" = ' 0 0' ]
      echo "FIGURE $name $(sed -n 's/.*"ops_per_s": \([0-9.]*\),.*/\1/p' "$logs/$stage.$name$i.0" |
        awk '{ printf "%.1f", $1 * 0.065536 }')"
    done
    for test in ucp_get ucp_put_bw; do
      perftest $test
      is "$test $i: it runs" says '^ +1000 ' "$logs/$stage.$test"
      echo "FIGURE $test $(awk '$1 == 1000 { printf "%.1f", $6 * 1.048576 }' "$logs/$stage.$test")"
    done
  done
}
perftest() { # perftest TEST: 64 operations at a time
  local pid
  export UCX_TLS=rc_v UCX_NET_DEVICES=rxe0:1
  port=$((port + 1))
  timeout -s KILL 60 ucx_perftest -p $port >"$logs/$stage.$1.server" 2>&1 &
  pid=$!
  sleep 1
  timeout -s KILL 60 ucx_perftest 127.0.0.1 -p $port -t "$1" -s 65536 -n 1000 -w 50 -O 64 -f >"$logs/$stage.$1" 2>&1
  wait $pid
  unset UCX_TLS UCX_NET_DEVICES
}

# Rank 2 is killed as soon as it holds blocks of which others have copies.
stage_replay_kill() {
  devices "$n"
  KVCL_STORE_HEDGE=1s ranks kill 3 300 "$tools/kvcl_replay" --requests 60 --store --replicas 2 --kill 2@held --json || :
  is 'a rank is killed, the others end well' [ "$statuses" = ' 0 0 137' ]
  is 'a killed rank: it held blocks, nothing is lost, all bytes are right' survived "$logs/$stage.kill.0"
}

stages "$@"
