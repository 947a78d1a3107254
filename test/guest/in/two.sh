# two.sh ROLE STAGE...: inside each of two guests, A and B, which run the same stages. Ranks 0, 2, ... are on A, the
# others on B.
#
# eth0 and eth1 carry RDMA and can be cut; eth2 carries the rendezvous and TCP, and is never cut. The guests meet by
# files of the folder sync, and A judges by the statuses and logs of both.
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
export KVCL_SECRET_FILE
[ "$role" = A ] || judging=no

# wait_for FILE: until it exists; the other guest makes it
wait_for() {
  local k=0
  while [ ! -e "$1" ]; do
    k=$((k + 1))
    [ $k -lt 4000 ] || { fail "guest $other has not written $1 in 400 s"; return 1; }
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

# ports N: software devices rxe0 (and rxe1) on eth0 (and eth1); KVCL_NET names them, and eth2
ports() {
  local i
  use "$1" eth2
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

during= # a function that runs while the ranks do; it gets the process of this guest's first one

# spread NAME N LIMIT PROGRAM ARGUMENT...: N ranks, in turn on A and on B; those of one guest share its memory. Logs as
# those of ranks. The status is 0 if all ended with 0; $statuses has each, $sent and $sent_b the packets that A's and
# B's devices have sent.
spread() {
  local name=$1 n=$2 time=$3 pids=() ended='' pid before rc began i a b
  shift 3
  set -- "$(program "$1")" "${@:2}"
  peer_port=$((peer_port + 1))
  meet "$peer_port.begin"
  before=$(($(packets rxe0) + $(packets rxe1)))
  began=$(up)
  for i in $(seq $((host - 1)) 2 $((n - 1))); do
    KVCL_RENDEZVOUS=tcp://10.0.2.1:$peer_port KVCL_SIZE=$n KVCL_RANK=$i \
      timeout -s KILL "$time" sh -c 'echo $$ >/tmp/pid; exec "$@"' sh "$@" >"$logs/$stage.$name.$i" 2>&1 &
    pids+=($!)
  done
  [ -z "$during" ] || $during "${pids[0]}"
  for pid in "${pids[@]}"; do
    rc=0
    wait "$pid" || rc=$?
    ended="$ended $rc"
  done
  echo "$(($(packets rxe0) + $(packets rxe1) - before))$ended" >"$sync/$peer_port.status.$role"
  meet "$peer_port.end"
  during=
  read -r -a a <"$sync/$peer_port.status.A"
  read -r -a b <"$sync/$peer_port.status.B"
  sent=${a[0]} sent_b=${b[0]} statuses=
  for i in $(seq 0 $((n - 1))); do
    [ $((i % 2)) = 0 ] && statuses="$statuses ${a[i / 2 + 1]}" || statuses="$statuses ${b[i / 2 + 1]}"
  done
  [ "$role" = A ] || return 0
  echo "   $name: ${1##*/} ${*:2}: statuses$statuses, $sent and $sent_b packets, $(took "$began")"
  [ "${statuses//[ 0]/}" = '' ] || { tail -qn 4 "$logs/$stage.$name".*; return 1; }
}
pair() { spread "$1" 2 "${@:2}"; } # pair NAME LIMIT PROGRAM ARGUMENT...: rank 0 on A, rank 1 on B

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
  pair "$name" 200 "$tools/kvcl_perf" "$@" --verify --iters 4 --json
  is "$*: right bytes, over the device" both_right "$name"
}
n_perf=0

stage_paths() {
  ports 1
  patient
  pair info 150 "$tools/kvcl_info" --paths
  is 'kvcl_info names RDMA' says 'rdma, native \(rc_verbs/rxe0:1\)' "$logs/$stage.info.0"
  export KVCL_LOG=debug
  for test in get put; do
    pair $test 150 "$tools/kvcl_perf" $test --unit 64K --count 16 --order random --verify --iters 2 --json
    is "$test: right bytes, over the device" both_right $test
    is "$test: the cache is native" says 'described a cache: .*, native' "$logs/$stage.$test.0"
    is "$test: native runs" says 'rdma: native' "$logs/$stage.$test.0"
  done
  unset KVCL_LOG
}

stage_store() {
  ports 1
  patient
  KVCL_LOG=debug pair get 150 "$tools/kvcl_perf" store-get --unit 64K --count 16 --verify --iters 4 --json
  is "a store's gets: right bytes, over the device" both_right get
  is "a store's gets: native runs" says 'rdma: native' "$logs/$stage.get.0"
}

stage_perf() {
  ports 1
  patient
  perf_tests
}

# replay_test NAME N OPTION...: N ranks, in turn on A and on B. A rank that is slow is not silent.
replay_test() {
  KVCL_STORE_HEDGE=10s spread "$1" "$2" 300 "$tools/kvcl_replay" --requests 40 --json "${@:3}"
  is "$1: all ranks end well, over the device" [ "${statuses//[ 0]/}" = '' -a "$sent" -gt 0 -a "$sent_b" -gt 0 ]
}

# Four ranks: each shares memory with one, and has RDMA to two.
stage_replay() {
  ports 1
  patient
  replay_test plain 4
  is 'plain: all bytes right' no_loss "$logs/$stage.plain.0"
  replay_test store 4 --in-order --store --pool 30% --replicas 2
  is 'a store: all bytes right' no_loss "$logs/$stage.store.0" failed
}

# Rank 3 is killed as soon as it holds blocks of which others have copies.
stage_replay_kill() {
  ports 1
  KVCL_STORE_HEDGE=1s spread kill 4 300 "$tools/kvcl_replay" --requests 60 --store --replicas 2 --kill 3@held --json
  is 'a rank is killed, the others end well' [ "$statuses" = ' 0 0 0 137' ]
  is 'a killed rank: it held blocks, nothing is lost, all bytes are right' survived "$logs/$stage.kill.0"
}

# The memory that both guests have (host.sh), or nothing.
memory() {
  local device
  for device in /sys/bus/pci/devices/*; do
    if [ "$(cat "$device/vendor" "$device/device" | paste -sd:)" = 0x1af4:0x1110 ]; then
      echo 1 >"$device/enable"
      echo "$device/resource2"
    fi
  done
}

# conform_pair NAME LIMIT OPTION PROGRAM [FILTER...]: a conformance program, ranks 0, 2, ... on A, the others on B; each
# machine starts and ends its own
conform_pair() {
  # Its ranks meet by that memory. Cases that open a context of one rank would find the job's size.
  pair "$1" "$2" /usr/bin/env -u KVCL_RENDEZVOUS -u KVCL_SIZE -u KVCL_RANK "$(program "$conform/$4")" \
    "$3,machine=$((host - 1))/2:$(memory)" "${@:5}"
  [ "$role" = B ] || grep -hE '^(ok|FAIL|[0-9]+ passed)' "$logs/$stage.$1".*
  is "$4 $3: all cases, over the device" [ "$statuses" = ' 0 0' -a "$sent" -gt 0 -a "$sent_b" -gt 0 ]
}

# run_one.sh and run_devices.sh have the program that is left out, which takes minutes here.
stage_conform() {
  ports 1
  patient
  use 1
  conform_all conform_pair tokens
}

# Without a progress thread, and over two ports.
stage_conform_more() {
  ports 1
  patient
  use 1
  KVCL_NATIVE_TABLE=$served conform_pair rma_nothread 300 --rdma=2,nothread conform_rma
  ports 2
  use 2
  KVCL_NATIVE_TABLE=$served conform_pair rma_two_ports 300 --rdma=2 conform_rma
  conform_pair msg_two_ports 300 --rdma=2 conform_msg
  ports 1
}

# A cache is freed and made again 100 times under the gets of three ranks, of which two are on the other guest.
stage_churn() {
  ports 1
  patient
  use 1
  CF_ROUNDS=100 conform_pair churn 600 --rdma=4 conform_keys churn
  [ "$role" = B ] || grep -h 'churn over' "$logs/$stage.churn".*
}

# Memory is revoked and freed under puts, CF_ROUNDS times. GUEST_ENV=CF_ROUNDS=1000: see contrib/doc/results.
stage_keys() {
  ports 1
  patient
  use 1
  CF_ROUNDS=${CF_ROUNDS:-30} conform_pair revoke_puts "${CF_ROUNDS:+2}400" --rdma=2 conform_keys revoke_puts
}

stage_programs() {
  ports 1
  patient
  pair p2p 300 "$top_builddir/test/multi/p2p" 3
  is p2p [ "$statuses" = ' 0 0' ]
  pair coll 300 "$top_builddir/test/multi/coll"
  is coll [ "$statuses" = ' 0 0' ]
  VALUES_SMALL=1 KVCL_STORE_HEDGE=10s pair values 300 "$top_builddir/test/multi/values" --seed "$seed"
  is values [ "$statuses" = ' 0 0' ]
}

stage_stop() {
  ports 1
  for test in get send store-get; do
    during=stop_and_go
    pair stop.$test 200 "$tools/kvcl_perf" $test --unit 64K --count 16 --iters 40 --json
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

# Stages with rounds: GUEST_ROUNDS runs, by default one of each of four tests.
rounds() { seq 0 $((${GUEST_ROUNDS:-4} - 1)); }
moves=(get put send store-get)

stage_kill() {
  local i test
  ports 1
  for i in $(rounds); do
    test=${moves[i % 4]}
    during=kill_one
    KVCL_TIMEOUT=15s pair kill$i.$test 150 "$tools/kvcl_perf" $test --unit 256K --count 8 --iters 3000
    is "rank 1 is killed in $test: rank 0 ends by itself" case_a_ends
  done
}
kill_one() {
  together "$@"
  [ "$role" = A ] || kill -9 "$(cat /tmp/pid)"
}
case_a_ends() { case $statuses in ' 0 '* | ' 1'[2-9][0-9]' '*) return 1 ;; esac; }

# The only wire is cut: there is no TCP besides.
stage_cut() {
  local i test
  ports 1
  use 1
  for i in $(rounds); do
    test=${moves[i % 4]}
    during=cut_both
    KVCL_TIMEOUT=15s pair cut$i.$test 150 "$tools/kvcl_perf" $test --unit 256K --count 8 --iters 3000
    is "the wire is cut in $test: both ranks end by themselves" no_signal
    heal_wires
  done
}
cut_both() {
  together "$@"
  cut_wires 0
}

# What is under way when rank 1 is killed or the only wire is cut ends by its own deadline of 8 s: a rank counts as
# failed only after a minute of silence. The same where no packet gets through from the start. Times are printed, not
# judged.
stage_deadlines() {
  ports 1
  use 1
  KVCL_KEEPALIVE=60s
  for during in kill_one cut_both; do
    deadlines $during 8
    heal_wires
  done
  know_addresses
  cut_wires 0
  deadlines unreach 8 nostore
  heal_wires
}
deadlines() { # deadlines NAME SECONDS [nostore]
  pair "$1" 150 "$top_builddir/test/multi/deadlines" "${@:2}"
  [ "$role" = B ] || grep -H 'the latest' "$logs/$stage.$1".* | sed 's|.*/|   |'
  is "$1: every operation ends, with a fit status" fit_ends
  [ "$1" = kill_one ] || is "$1: rank 0's end by their deadline" by_deadline "$logs/$stage.$1.0"
}
fit_ends() { case $statuses in ' 0 0' | ' 0 137') ;; *) return 1 ;; esac; }
by_deadline() { [ "$(grep -cE '^(get|put|send|receive): .* [1-9][0-9]* at the deadline, 0 lost' "$1")" = 4 ]; }

# One of two wires is cut: the ranks reach each other again over the other one, with TCP besides and without it. rails
# repeats what ends by the cut.
stage_cut_rail() {
  local besides name
  ports 2
  export KVCL_LOG=info
  for besides in eth2 ''; do
    use 2 "$besides"
    for test in get store-get put send; do
      name=cut${besides:+.$besides}.$test
      during=cut_both
      pair "$name" 200 "$top_builddir/test/multi/rails" $test
      is "$name: both ranks end well" [ "$statuses" = ' 0 0' ]
      is "$name: the rank is reached again, over the other wire" \
        says 'first over rc_verbs/rxe0:1, then over rc_verbs/rxe1:1:' "$logs/$stage.$name.0"
      heal_wires
    done
  done
  unset KVCL_LOG
  ports 1
}

stage_two_ports() {
  ports 2
  patient
  perf_test get --unit 64K --count 16
  perf_test send --unit 64K --count 16
  for i in 1 2 3; do
    perf_test store-get --unit 64K --count 16
  done
  replay_test store 2 --in-order --store --pool 30% --replicas 2
  is 'kvcl_replay: all bytes right' no_loss "$logs/$stage.store.0" failed
  ports 1
}

# No packet gets through from the start, not even the question for a hardware address: no endpoint can be made.
stage_no_wire() {
  ports 1
  cut_wires 0
  pair info 150 "$tools/kvcl_info" --paths
  is 'both ranks use TCP' says '0 -> 1  served \(tcp' "$logs/$stage.info.0"
  pair get 150 "$tools/kvcl_perf" get --unit 64K --count 16 --iters 2 --verify --json
  is 'get: right bytes' [ "$statuses" = ' 0 0' ]
  heal_wires
}

# No packet gets through from the start, and the endpoints can be made: a firewall. In turn with TCP and without.
stage_unreach() {
  local i
  ports 1
  know_addresses
  cut_wires 0
  for i in $(rounds); do
    if [ $((i % 2)) = 0 ]; then
      use 1 eth2
      pair tcp$i 150 "$tools/kvcl_perf" get --unit 64K --count 16 --iters 2 --verify --json
      is "no packet gets through, round $i: right bytes over TCP" by_tcp tcp$i
      is "round $i: the path says why" says "RDMA: the peer's ports do not answer" "$logs/$stage.tcp$i.0"
    else
      use 1
      KVCL_TIMEOUT=20s pair alone$i 150 "$tools/kvcl_perf" get --unit 64K --count 16 --iters 2
      is "no packet gets through, and no TCP, round $i: both ranks end by themselves" both_fail
      is "round $i: the peer is unreachable" says 'unreachable|not reached|cannot be reached' "$logs/$stage.alone$i.0"
    fi
  done
  heal_wires
}
by_tcp() {
  [ "$statuses" = ' 0 0' ] && says '"wrong": 0}' "$logs/$stage.$1.0" && says '"path": "served \(tcp' "$logs/$stage.$1.0"
}
both_fail() { no_signal && case "$statuses " in *' 0 '*) return 1 ;; esac; }

# KVCL_NET names no port, on both guests or on one: TCP, and no packet over a device.
stage_net() {
  ports 1
  patient
  use 0 eth2
  pair none 150 "$tools/kvcl_perf" get --unit 64K --count 16 --iters 2 --verify --json
  is 'KVCL_NET names an interface without a port: right bytes over TCP' by_tcp none
  is 'no packet over a device' [ "$sent $sent_b" = '0 0' ]
  for side in A B; do
    use 1 eth2
    [ "$role" = $side ] || use 0 eth2
    pair only$side 150 "$tools/kvcl_perf" get --unit 64K --count 16 --iters 2 --verify --json
    is "only guest $side names its port: right bytes over TCP" by_tcp only$side
    is "rank 0 says which of both names none" says 'RDMA: (the peer|this rank) names no port' "$logs/$stage.only$side.0"
    is 'no packet over a device' [ "$sent $sent_b" = '0 0' ]
  done
}

# GIDs of different families, and devices whose headers UCX drops: the handshake does not get through.
stage_wrong_gid() {
  local i name
  ports 1
  for i in 0 1; do
    KVCL_NET=rxe0:1/$i,eth2 pair gid$i 150 "$tools/kvcl_perf" get --unit 64K --count 16 --iters 2 --verify --json
    is "both use GID $i: right bytes, over the device" both_right gid$i
    is "both use GID $i: RDMA" says '"path": "rdma' "$logs/$stage.gid$i.0"
  done
  name=0
  [ "$role" = A ] || name=1
  KVCL_NET=rxe0:1/$name,eth2 pair mixed 150 "$tools/kvcl_perf" get --unit 64K --count 16 --iters 2 --verify --json
  is 'GIDs of different families: right bytes over TCP' by_tcp mixed
  is 'and the path says why' says "RDMA: the peer's ports do not answer" "$logs/$stage.mixed.0"
  UCX_UD_ETH_DGID_CHECK=y pair dgid 150 "$tools/kvcl_perf" get --unit 64K --count 16 --iters 2 --verify --json
  is 'UCX drops the wire-up: right bytes over TCP' by_tcp dgid
}

interfaces
stages "$@"
