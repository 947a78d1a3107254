# two.sh ROLE STAGE...: inside each of two guests, A and B, which run the same stages. Rank 0 is on A, rank 1 on B.
#
# eth0 and eth1 carry RDMA and can be cut; eth2 carries the rendezvous and what KVCL_NET names, and is never cut. The
# guests meet by files of the folder sync, and A judges by the statuses and logs of both.
set -u
role=$1
shift
. "$top_srcdir/test/guest/in/lib.sh"

sync=/mnt/sync
host=1 other=B
[ "$role" = A ] || { host=2 other=A; }
peer_port=30000
head -c 32 /dev/zero | tr '\0' 'k' >/tmp/secret
chmod 600 /tmp/secret
KVCL_SECRET_FILE=/tmp/secret
KVCL_NET=eth2
export KVCL_SECRET_FILE KVCL_NET
[ "$role" = A ] || judging=no

# wait_for FILE: until it exists; the other guest makes it
wait_for() {
  local k=0
  while [ ! -e "$1" ]; do
    k=$((k + 1))
    [ $k -lt 1500 ] || { fail "guest $other has not written $1 in 150 s"; return 1; }
    sleep 0.1
  done
}

meet() {
  touch "$sync/$1.$role"
  wait_for "$sync/$1.$other"
}

interfaces() {
  local n
  ip link set lo up
  hostname "guest$role"
  for n in 0 1 2; do
    ip link set eth$n mtu 4200 up
    ip addr add 10.0.$n.$host/24 dev eth$n
  done
}

# ports N: software devices rxe0 (and rxe1) on eth0 (and eth1)
ports() {
  local i
  for i in 0 1; do
    if [ $i -ge "$1" ]; then
      [ ! -e /sys/class/infiniband/rxe$i ] || rdma link delete rxe$i
    elif [ ! -e /sys/class/infiniband/rxe$i ]; then
      rdma link add rxe$i type rxe netdev eth$i
    fi
  done
}

# Every packet that this guest sends over these wires is lost, and no process is notified.
cut_wires() {
  local n
  for n in "$@"; do
    tc qdisc add dev "eth$n" root netem loss 100%
  done
  echo "   $role cuts $*: $(packets rxe0) $(packets rxe1) packets sent before"
}

heal_wires() {
  local n
  for n in 0 1; do
    tc qdisc del dev eth$n root 2>/dev/null
    ip neigh flush dev eth$n
  done
}

# know_addresses: the other guest's hardware addresses need not be asked for, as where a firewall drops RDMA alone
know_addresses() {
  local n
  for n in 0 1; do
    ip neigh replace 10.0.$n.$((3 - host)) lladdr 52:54:00:00:0$n:0$((3 - host)) nud permanent dev eth$n
  done
}

during= # a function that runs while the two ranks do

# pair NAME LIMIT PROGRAM ARGUMENT...: one rank on each guest. Logs as those of ranks. The status is 0 if both ended
# with 0; $statuses has both, $sent and $sent_b the packets that A's and B's devices have sent.
pair() {
  local name=$1 time=$2 pid before rc=0 began
  shift 2
  set -- "$(program "$1")" "${@:2}"
  peer_port=$((peer_port + 1))
  meet "$peer_port.begin"
  before=$(($(packets rxe0) + $(packets rxe1)))
  began=$(up)
  KVCL_RENDEZVOUS=tcp://10.0.2.1:$peer_port KVCL_SIZE=2 KVCL_RANK=$((host - 1)) \
    timeout -s KILL "$time" sh -c 'echo $$ >/tmp/pid; exec "$@"' sh "$@" >"$logs/$stage.$name.$((host - 1))" 2>&1 &
  pid=$!
  [ -z "$during" ] || $during "$pid"
  wait "$pid" || rc=$?
  echo "$rc $(($(packets rxe0) + $(packets rxe1) - before))" >"$sync/$peer_port.status.$role"
  meet "$peer_port.end"
  during=
  read -r a sent <"$sync/$peer_port.status.A"
  read -r b sent_b <"$sync/$peer_port.status.B"
  statuses=" $a $b"
  [ "$role" = A ] || return 0
  echo "   $name: ${1##*/} ${*:2}: statuses$statuses, $sent and $sent_b packets, $(took "$began")"
  [ "$statuses" = ' 0 0' ] || { tail -qn 4 "$logs/$stage.$name".*; return 1; }
}

# traffic: the packets that all devices have sent and received
traffic() { echo $(($(packets rxe0) + $(packets rxe1) + $(hardware rxe0 rcvd_pkts) + $(hardware rxe1 rcvd_pkts))); }

# moving PID: wait until the program's transfers are under way
moving() {
  local before
  before=$(traffic)
  while kill -0 "$1" 2>/dev/null && [ $(($(traffic) - before)) -lt 2000 ]; do
    sleep 0.05
  done
}

# together: A has seen that packets move; then both go on
together() {
  [ "$role" = B ] || moving "$@"
  meet "$peer_port.moving"
}

both_right() {
  [ "$statuses" = ' 0 0' ] && [ "$sent" -gt 0 ] && [ "$sent_b" -gt 0 ] && says '"wrong": 0}' "$logs/$stage.$1.0"
}
# Neither rank was ended by a signal, its own (134) or the limit's (137).
no_signal() { case "$statuses " in *' 1'[2-9][0-9]' '*) return 1 ;; esac; }

perf_test() {
  local name=$n_perf.$1
  n_perf=$((n_perf + 1))
  pair "$name" 90 "$tools/kvcl_perf" "$@" --verify --iters 4 --json
  is "$*: right bytes, over the device" both_right "$name"
}
n_perf=0

stage_paths() {
  ports 1
  pair info 60 "$tools/kvcl_info" --paths
  is 'kvcl_info names RDMA' says 'rdma, native \(rc_verbs/rxe0:1\)' "$logs/$stage.info.0"
  export KVCL_LOG=debug
  for test in get put; do
    pair $test 60 "$tools/kvcl_perf" $test --unit 64K --count 16 --order random --verify --iters 2 --json
    is "$test: right bytes, over the device" both_right $test
    is "$test: the cache is native" says 'described a cache: .*, native' "$logs/$stage.$test.0"
    is "$test: native runs" says 'rdma: native' "$logs/$stage.$test.0"
  done
  unset KVCL_LOG
}

stage_perf() {
  ports 1
  perf_test get --unit 4K --count 8
  perf_test get --unit 3M --count 2
  perf_test put --unit 4K --count 8
  perf_test send --unit 1K --count 4
  perf_test send --unit 64K --count 16
  perf_test store-get --unit 4K --count 16
  perf_test store-get --unit 64K --count 16
  perf_test store-put --unit 16K --count 16
  perf_test bcast --unit 256K --count 2
}

stage_programs() {
  ports 1
  pair p2p 100 "$top_builddir/test/multi/p2p" 3
  is p2p [ "$statuses" = ' 0 0' ]
  pair coll 150 "$top_builddir/test/multi/coll"
  is coll [ "$statuses" = ' 0 0' ]
  VALUES_SMALL=1 KVCL_STORE_HEDGE=10s pair values 150 "$top_builddir/test/multi/values" --seed "$seed"
  is values [ "$statuses" = ' 0 0' ]
}

stage_stop() {
  ports 1
  for test in get send store-get; do
    during=stop_and_go
    pair stop.$test 90 "$tools/kvcl_perf" $test --unit 64K --count 16 --iters 40 --json
    is "rank 1 stops for 5 s in $test: it has not failed" both_right stop.$test
  done
}
stop_and_go() {
  together "$@"
  [ "$role" = B ] || return 0
  kill -STOP "$(cat /tmp/pid)"
  sleep 5
  kill -CONT "$(cat /tmp/pid)"
}

stage_kill() {
  ports 1
  for test in get put send store-get; do
    during=kill_one
    KVCL_TIMEOUT=15s pair kill.$test 60 "$tools/kvcl_perf" $test --unit 256K --count 8 --iters 3000
    is "rank 1 is killed in $test: rank 0 ends by itself" case_a_ends
  done
}
kill_one() {
  together "$@"
  [ "$role" = A ] || kill -9 "$(cat /tmp/pid)"
}
case_a_ends() { case $statuses in ' 0 '* | ' 1'[2-9][0-9]' '*) return 1 ;; esac; }

stage_cut() {
  ports 1
  for test in get put send store-get; do
    during=cut_both
    KVCL_TIMEOUT=15s pair cut.$test 60 "$tools/kvcl_perf" $test --unit 256K --count 8 --iters 3000
    is "the wire is cut in $test: both ranks end by themselves" no_signal
    heal_wires
  done
}
cut_both() {
  together "$@"
  cut_wires 0
}

# One of two wires is cut.
stage_cut_rail() {
  ports 2
  for test in get put send store-get; do
    during=cut_both
    KVCL_TIMEOUT=15s pair cut.$test 60 "$tools/kvcl_perf" $test --unit 256K --count 8 --iters 3000
    is "one of two wires is cut in $test: both ranks go on" [ "$statuses" = ' 0 0' ]
    heal_wires
  done
  ports 1
}

stage_two_ports() {
  ports 2
  perf_test get --unit 64K --count 16
  perf_test send --unit 64K --count 16
  for i in 1 2 3; do
    perf_test store-get --unit 64K --count 16
  done
  ports 1
}

# No packet gets through from the start, not even the question for a hardware address: no endpoint can be made.
stage_no_wire() {
  ports 1
  cut_wires 0
  pair info 60 "$tools/kvcl_info" --paths
  is 'both ranks use TCP' says '0 -> 1  served \(tcp' "$logs/$stage.info.0"
  pair get 60 "$tools/kvcl_perf" get --unit 64K --count 16 --iters 2 --verify --json
  is 'get: right bytes' [ "$statuses" = ' 0 0' ]
  heal_wires
}

# No packet gets through from the start, and the endpoints can be made: a firewall.
stage_unreach() {
  local i
  ports 1
  know_addresses
  cut_wires 0
  for i in $(seq "${GUEST_ROUNDS:-2}"); do
    KVCL_TIMEOUT=10s pair info$i 60 "$tools/kvcl_info" --paths
    is "no packet gets through, round $i: both ranks end by themselves" no_signal
    is "round $i: TCP, or the peer is unreachable" says 'served \(tcp|unreachable' "$logs/$stage.info$i.0"
    KVCL_TIMEOUT=10s pair get$i 60 "$tools/kvcl_perf" get --unit 64K --count 16 --iters 2
    is "get, round $i: both ranks end by themselves" no_signal
  done
  heal_wires
}

interfaces
stages "$@"
