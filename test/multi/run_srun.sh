#!/bin/sh
# srun with PMIx, on a Slurm of one machine that this script starts and ends; the machine's own Slurm is not touched.
# Ranks that meet and communicate; ranks that only provide memory to a worker, one of them drained; a rank killed.
set -eu
: "${top_builddir:?}" "${top_srcdir:?}"

skip() {
  echo "SKIP: no test under srun: $*"
  exit 77
}
PATH=$PATH:/usr/sbin:/sbin
[ "$(id -u)" = 0 ] || skip "only root can start slurmd"
for tool in munged slurmctld slurmd srun sinfo squeue scancel; do
  command -v $tool >/dev/null || skip "no $tool (Debian: munge, slurm-wlm)"
done

tmp=$(mktemp -d)
pids=
up=0
cleanup() {
  # Its jobs first: slurmstepd of a job that ends outlives slurmd.
  tries=30
  [ $up = 0 ] || timeout 5 scancel --user=root 2>/dev/null || :
  while [ $up = 1 ] && [ -n "$(timeout 5 squeue -h 2>/dev/null)" ] && [ $tries -gt 0 ]; do
    tries=$((tries - 1))
    sleep 0.1
  done
  # In reverse order; each gets TERM, and KILL if it has not ended after two seconds.
  for pid in $pids; do
    kill "$pid" 2>/dev/null || :
  done
  tries=20
  for pid in $pids; do
    while kill -0 "$pid" 2>/dev/null && [ $tries -gt 0 ]; do
      tries=$((tries - 1))
      sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null || :
  done
  wait
  rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM

. "$top_srcdir/test/multi/ports.sh"

# daemon COMMAND...: in the foreground of a process of its own.
daemon() {
  "$@" >>"$tmp/log/$(basename "$1").out" 2>&1 &
  pids="$! $pids"
}

trouble() {
  tail -n 4 "$tmp"/log/* 2>/dev/null | sed 's/^/   /'
  skip "$*"
}

chmod 755 "$tmp" # munged requires that its socket can be reached
mkdir "$tmp/log" "$tmp/state" "$tmp/spool" "$tmp/tmp"
head -c 1024 /dev/urandom >"$tmp/munge.key"
chmod 600 "$tmp/munge.key"
next_port
ctld_port=$port
next_port
host=$(hostname -s)
cat >"$tmp/slurm.conf" <<CONF
ClusterName=kvcl
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$ctld_port
SlurmdPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$tmp/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
StateSaveLocation=$tmp/state
SlurmdSpoolDir=$tmp/spool
TmpFS=$tmp/tmp
SlurmctldPidFile=$tmp/slurmctld.pid
SlurmdPidFile=$tmp/slurmd.pid
SlurmctldLogFile=$tmp/log/slurmctld
SlurmdLogFile=$tmp/log/slurmd
PlugStackConfig=$tmp/plugstack.conf
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
KillWait=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE:8 State=UP
CONF
: >"$tmp/plugstack.conf"
# Unset the environment of a job in which this may run.
for name in $(env | sed -n 's/^\(SLURM_[A-Z0-9_]*\)=.*/\1/p'); do
  unset "$name"
done
SLURM_CONF=$tmp/slurm.conf
export SLURM_CONF
srun --mpi=list 2>&1 | grep -q pmix || skip "this srun has no PMIx"

daemon munged --foreground --key-file="$tmp/munge.key" --socket="$tmp/munge.socket" --pid-file="$tmp/munged.pid" \
  --log-file="$tmp/log/munged" --seed-file="$tmp/munged.seed"
tries=600
until [ -S "$tmp/munge.socket" ]; do
  tries=$((tries - 1))
  [ $tries -gt 0 ] || trouble "munged did not start"
  sleep 0.1
done
daemon slurmctld -D -f "$SLURM_CONF"
daemon slurmd -D -f "$SLURM_CONF"
tries=120
until [ "$(timeout 5 sinfo -h -o %T 2>/dev/null)" = idle ]; do
  tries=$((tries - 1))
  [ $tries -gt 0 ] || trouble "Slurm did not start"
  sleep 0.5
done
up=1

passed=0 failed=0
for ranks in 2 4; do
  for path in auto tcp; do
    rc=0
    KVCL_PATH=$path KVCL_NET=lo timeout -k 5 60 srun -n $ranks --overcommit --mpi=pmix \
      "$top_builddir/test/multi/p2p" 4 >"$tmp/out" 2>"$tmp/err" || rc=$?
    if [ $rc = 0 ] && [ "$(grep -c "^ok [0-9]* of $ranks\$" "$tmp/out")" = $ranks ]; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1))
      echo "FAIL: $ranks ranks over $path (status $rc)"
      cat "$tmp/out" "$tmp/err" | sed 's/^/   /' | tail -n 20
    fi
  done
done

# verdict NAME STATUS
verdict() {
  if [ "$2" = 0 ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAIL: $1"
    cat "$tmp/out" "$tmp/err" | sed 's/^/   /' | tail -n 20
  fi
}
# here SECONDS TEXT: wait until the output has the text.
here() {
  tries=$(($1 * 10))
  until grep -q "$2" "$tmp/out" 2>/dev/null; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || return 1
    sleep 0.1
  done
}

# Two ranks of kvcl_serve and a worker. SIGTERM to the first moves its blocks away, and no get fails.
cat >"$tmp/give" <<GIVE
#!/bin/sh
echo \$\$ >"$tmp/pid.\$SLURM_PROCID"
sizes=4K,12K # rank 0 lacks the size of the worker's larger blocks
[ "\$SLURM_PROCID" != 0 ] || sizes=4K
exec "$top_builddir/src/tools/kvcl_serve" --block \$sizes --pool 1M --entries 65536
GIVE
chmod 755 "$tmp/give"
printf '0-1 %s\n2 %s\n' "$tmp/give" "$top_builddir/test/multi/serve" >"$tmp/job"
rc=0
timeout -k 5 100 srun -n 3 --overcommit --mpi=pmix --multi-prog "$tmp/job" >"$tmp/out" 2>"$tmp/err" &
job=$!
if here 80 'moved 48 blocks to rank 0'; then
  kill -TERM "$(cat "$tmp/pid.0")"
  here 80 ' 0 failed$' && kill -TERM "$(cat "$tmp/pid.1")" || rc=1
else
  rc=1
fi
[ $rc = 0 ] || kill -TERM $job 2>/dev/null || : # it may have ended by itself
wait $job || rc=1
grep -q 'rank 0 of 3: 48 blocks moved away$' "$tmp/out" || rc=1
verdict "kvcl_serve, drained" $rc

# A rank is killed, and the others continue. They meet by rendezvous, since Slurm's PMIx plugin cancels the step when it
# notices the lost connection of a rank before slurmd reaps the task.
cat >"$tmp/ranked" <<'RANKED'
#!/bin/sh
KVCL_RANK=$SLURM_PROCID KVCL_SIZE=$SLURM_NTASKS exec "$@"
RANKED
chmod 755 "$tmp/ranked"
mkdir -m 700 "$tmp/home" # the user's secret is made here
next_port
rc=0
HOME=$tmp/home KVCL_RENDEZVOUS=tcp://127.0.0.1:$port timeout -k 5 100 srun -n 3 --overcommit --mpi=none \
  --kill-on-bad-exit=0 "$tmp/ranked" "$top_builddir/src/tools/kvcl_replay" --json --requests 300 --store --replicas 2 \
  --kill 1@1 >"$tmp/out" 2>"$tmp/err" || rc=$?
killed=1
[ $rc = 137 ] && grep -q '"kill_lost": 0,.*"wrong": 0}' "$tmp/out" && killed=0
verdict "kvcl_replay --kill (status $rc)" $killed
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
