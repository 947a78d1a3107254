# Sourced by one.sh and two.sh, inside a guest: devices, ranks, verdicts.
#
# A stage is a function stage_NAME. It asserts on bytes, statuses, packets of a device and decisions, never on time:
# the processor is emulated. Each stage also fails where a process aborted or the kernel complained. What a program
# printed is in the folder logs beside the results.
# shellcheck shell=bash disable=SC2034,SC2154 # $role, $top_builddir

tools=$top_builddir/src/tools
conform=$top_builddir/test/conform
results=/mnt/results.$role
logs=/mnt/logs
stage=
at_log=0
seed=${TEST_SEED:-1}
LD_LIBRARY_PATH=$top_builddir/.libs
# The driver's headers of datagrams are not those that UCX expects (DGID_CHECK). All else of UCX is as KVCL sets it.
UCX_UD_ETH_DGID_CHECK=n
UCX_WARN_UNUSED_ENV_VARS=n
TEST_SLOW=1
HOME=/tmp
export LD_LIBRARY_PATH UCX_UD_ETH_DGID_CHECK UCX_WARN_UNUSED_ENV_VARS TEST_SLOW HOME
ulimit -c 0

# ---- verdicts

pass() { printf 'PASS %s: %s\n' "$stage" "$*" | tee -a "$results"; }
fail() { printf 'FAIL %s: %s\n' "$stage" "$*" | tee -a "$results"; }
skipped() { printf 'SKIP: %s: %s\n' "$stage" "$*" | tee -a "$results"; }
judging=yes
is() { # is NAME COMMAND...: the command's status is 0
  local name=$1
  shift
  [ $judging = yes ] || return 0
  if "$@"; then
    pass "$name"
  else
    fail "$name"
    return 1
  fi
}
says() { grep -qE -- "$1" "${@:2}"; }
says_not() { ! grep -E -- "$1" "${@:2}"; }

# uptime in seconds
up() { cut -d' ' -f1 /proc/uptime; }

# The logs of the stage hold no abort, and the kernel's log nothing new that is bad.
calm() {
  local bad
  bad=$(grep -lE 'Assertion|Fatal:|Caught signal|malformed message' "$logs/$stage".* 2>/dev/null) || :
  [ -z "$bad" ] || grep -hE 'Assertion|Fatal:|Caught signal|malformed message' $bad | sort | uniq -c | head -n 5
  is 'no process aborted, no message was malformed' [ -z "$bad" ]
  local judging=yes # each guest has a kernel of its own
  bad=$(dmesg | tail -n +$((at_log + 1)) | grep -E 'BUG|Oops|WARNING:|Call Trace|refcount|blocked for more than') || :
  at_log=$(dmesg | wc -l)
  [ -z "$bad" ] || printf '%s\n' "$bad"
  is 'the kernel has no complaint' [ -z "$bad" ]
}

# How soon a silent rank counts as failed: 2 s. Beside other work an emulated NIC may answer later, so stages where
# nothing is lost begin with this:
patient() { KVCL_KEEPALIVE=10s; }

# stages NAME...: runs them
stages() {
  local began usual=${KVCL_KEEPALIVE:-2s}
  : >"$results"
  echo 30 >/proc/sys/kernel/hung_task_timeout_secs
  for stage in "$@"; do
    began=$(up)
    echo "STAGE $stage"
    export KVCL_KEEPALIVE=$usual
    if [ "$(type -t "stage_$stage")" != function ]; then
      fail 'no such stage'
      continue
    fi
    "stage_$stage"
    calm
    echo "STAGE $stage took $(awk -v a="$began" -v b="$(up)" 'BEGIN { printf "%.0f", b - a }') s"
  done
  echo DONE >>"$results"
}

# For a trial by hand.
stage_command() {
  eval "$GUEST_COMMAND"
  is "$GUEST_COMMAND" [ $? = 0 ]
}

# ---- devices

hardware() { cat "/sys/class/infiniband/$1/ports/1/hw_counters/$2" 2>/dev/null || echo 0; }
packets() { hardware "${1:-rxe0}" sent_pkts; }

# use N [NAME]: KVCL_NET names N ports, and NAME after them
use() {
  case $1 in
    0) KVCL_NET=${2-} ;;
    1) KVCL_NET=rxe0:1${2:+,$2} ;;
    2) KVCL_NET=rxe0:1,rxe1:1${2:+,$2} ;;
  esac
  export KVCL_NET
  [ -n "$KVCL_NET" ] || unset KVCL_NET
}

# devices N: exactly N software devices, rxe0 and rxe1, each on an interface without a cable; KVCL_NET names them alone
devices() {
  local i
  use "$1"
  ip link set lo up
  hostname guest
  for i in 0 1; do
    if [ $i -ge "$1" ]; then
      [ ! -e /sys/class/infiniband/rxe$i ] || rdma link delete rxe$i
    elif [ ! -e /sys/class/infiniband/rxe$i ]; then
      ip link show port$i >/dev/null 2>&1 || ip link add port$i type dummy
      ip link set port$i mtu 4200 up
      ip addr replace 10.0.$((i + 1)).1/24 dev port$i
      rdma link add rxe$i type rxe netdev port$i
    fi
  done
}

is_active() { grep -q ACTIVE "/sys/class/infiniband/$1/ports/1/state"; }

# ---- ranks

# The program itself, in place of libtool's script for it.
program() { if [ -x "${1%/*}/.libs/${1##*/}" ]; then echo "${1%/*}/.libs/${1##*/}"; else echo "$1"; fi; }

port=20000

# apart RANK COMMAND...: runs it as on a host of its own: another boot identifier, by which KVCL and UCX recognise one.
apart() {
  printf '%08x-0000-4000-8000-%012x\n' "$(($1 + 1))" "$port" >"/tmp/boot.$1"
  # shellcheck disable=SC2016
  exec unshare --mount sh -c 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"' "/tmp/boot.$1" "${@:2}"
}

beside() { exec "${@:2}"; } # beside RANK COMMAND...: runs it as on the same host as the others
where=apart

# ranks NAME N LIMIT PROGRAM ARGUMENT...: N ranks of this guest, each as $where says, meet at an address. Their output:
# $logs/STAGE.NAME.RANK. The status is 0 if all ended with 0; $statuses has each, and $sent the packets that the
# devices have sent.
ranks() {
  local name=$1 n=$2 time=$3 i pids=() before rc=0 began
  shift 3
  set -- "$(program "$1")" "${@:2}"
  port=$((port + 1))
  before=$(($(packets rxe0) + $(packets rxe1)))
  began=$(up)
  for i in $(seq 0 $((n - 1))); do
    (
      export KVCL_RENDEZVOUS=tcp://127.0.0.1:$port KVCL_SIZE=$n KVCL_RANK=$i
      $where "$i" timeout -s KILL "$time" "$@"
    ) >"$logs/$stage.$name.$i" 2>&1 &
    pids+=($!)
  done
  statuses=
  for i in "${pids[@]}"; do
    rc=0
    wait "$i" || rc=$?
    statuses="$statuses $rc"
  done
  sent=$(($(packets rxe0) + $(packets rxe1) - before))
  echo "   $name: ${1##*/} ${*:2}: statuses$statuses, $sent packets, $(took "$began")"
  case $statuses in
    *[1-9]*) tail -n 6 "$logs/$stage.$name".*; return 1 ;;
  esac
}

took() { awk -v a="$1" -v b="$(up)" 'BEGIN { printf "%.1f s", b - a }'; }

# conform NAME LIMIT OPTION PROGRAM [FILTER...]: a conformance program over RDMA; packets must have been sent
conform() {
  local name=$1 time=$2 program=$4 before rc=0 began
  before=$(($(packets rxe0) + $(packets rxe1)))
  began=$(up)
  timeout -s KILL "$time" "$(program "$conform/$program")" "$3" "${@:5}" >"$logs/$stage.$name" 2>&1 || rc=$?
  sent=$(($(packets rxe0) + $(packets rxe1) - before))
  echo "   $name: status $rc, $(tail -n 1 "$logs/$stage.$name"); $sent packets, $(took "$began")"
  if [ $rc != 0 ]; then
    grep -vE '^(PASS|ok) ' "$logs/$stage.$name" | tail -n 8
  fi
  is "$name ($program $3)" [ "$rc" = 0 -a "$sent" -gt 0 ]
}

# conform_rma's main() sets the table that serves some runs over loop; this is the same for rdma.
served=rdma:0-6000:served:4

# conform_all RUN [LESS]: all programs of the suite that are about the bytes of peers over any path (../programs.sh),
# but for LESS, each by RUN NAME LIMIT OPTION PROGRAM [FILTER...]. A stopped native transfer waits for 0.1 s, so fewer
# are stopped than by default.
conform_all() {
  local p
  CF_STOPS=60 "$1" fence 300 --rdma=2 conform_fence
  for p in msg req layers layers_stop callback stream prepare tokens ctx; do
    [ $p = "${2-}" ] || "$1" $p 300 --rdma=2 conform_$p
  done
  "$1" coll 300 --rdma=3 conform_coll
  KVCL_STORE_HEDGE=10s "$1" unsent 300 --rdma=3 conform_unsent # a rank that is slow is not silent
  "$1" loop 300 --rdma=2,nothread conform_loop
  KVCL_NATIVE_TABLE=$served "$1" rma 300 --rdma=2 conform_rma
  CF_ROUNDS=${CF_ROUNDS:-10} "$1" keys 400 --rdma=3 conform_keys
  KVCL_KEEPALIVE=2s "$1" death 600 --rdma=3 conform_death
}

# The tests of kvcl_perf that both scripts run. perf_test is theirs.
perf_tests() {
  perf_test get --unit 4K --count 8
  perf_test get --unit 64K --count 16
  perf_test get --unit 64K --count 16 --order random
  perf_test get --unit 3M --count 2
  perf_test put --unit 4K --count 8
  perf_test put --unit 64K --count 16 --order random
  perf_test send --unit 1K --count 4
  perf_test send --unit 64K --count 16
  perf_test lookup --count 1K
  perf_test match
  perf_test store-get --unit 4K --count 16
  perf_test store-get --unit 64K --count 16
  perf_test store-put --unit 16K --count 16
  perf_test bcast --unit 256K --count 2
}

# survived LOG: kvcl_replay --kill has killed a rank that held blocks, and none of them is lost
survived() {
  grep -oE '"kill_(second|held|watched|gets|failed|lost|noticed_ms|other_copy_ms)": [0-9.]*' "$1" | paste -sd' '
  says '"kill_watched": [1-9]' "$1" && no_loss "$1" kill_failed kill_lost
}

# no_loss LOG [FIELD...]: the JSON object of kvcl_replay says that nothing is wrong, and each of these fields is 0
no_loss() {
  local field
  for field in wrong "${@:2}"; do
    says "\"$field\": 0[,}]" "$1" || { grep -o "\"$field\": [0-9]*" "$1"; return 1; }
  done
}
