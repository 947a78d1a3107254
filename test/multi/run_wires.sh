#!/bin/sh
# The store, values, collectives and messages between ranks that use TCP only, jobs that connect, groups that reshard,
# workers of kvcl_serve, and ranks that are killed or stopped, over the wires that are not the default on loopback: aead
# and ucx. One run of each program; run_store_tcp.sh, run_values.sh, run_store_death.sh, run_store_silent.sh,
# run_coll.sh and run_p2p.sh have their other forms, over the default wire.
# TEST_SEED=N replays. At night only; with the address sanitizer over aead alone.
# TEST_TIMEOUT: 1800
set -eu
. "$(dirname "$0")/seeded.sh"
: "${top_srcdir:?}"

wires="aead ucx"
case ${TEST_SANITIZE-} in
  *thread*)
    echo "SKIP: more than 2 ranks on few cores: too slow for the thread sanitizer"
    exit 77
    ;;
  *address*) wires=aead ;;
esac
VALUES_SMALL=1 # without the values of 70 MiB
export VALUES_SMALL
passed=0 failed=0

# check NAME COMMAND...
check() {
  name="$1 over $KVCL_WIRE"
  shift
  rc=0
  timeout -k 10 300 "$@" >"$runs/out" 2>&1 || rc=$?
  if [ $rc = 0 ]; then
    passed=$((passed + 1))
    echo "ok $name"
  else
    failed=$((failed + 1))
    echo "FAIL: $name (status $rc)"
    sed 's/^/   /' "$runs/out" | tail -n 30
  fi
}

for KVCL_WIRE in $wires; do
  export KVCL_WIRE
  echo "== KVCL_WIRE=$KVCL_WIRE"
  program=$top_builddir/test/multi/store
  run 2 tcp
  (export KVCL_STORE_HOT=3 && run 2 tcp hot)
  (export KVCL_STORE_HEDGE=100us && run 4 tcp evict reuse)
  program=$top_builddir/test/multi/values
  run 4 tcp
  (
    KVCL_PATH=tcp KVCL_NET=lo
    export KVCL_PATH KVCL_NET
    check collectives mpirun -n 3 "$top_builddir/test/multi/coll"
    check messages mpirun -n 4 "$top_builddir/test/multi/p2p" 6
    for what in connect reshard thin; do
      check "run_$what.sh" "$top_srcdir/test/multi/run_$what.sh" tcp
    done
    KVCL_SECRET_FILE=$runs/secret
    export KVCL_SECRET_FILE
    if [ ! -e "$KVCL_SECRET_FILE" ]; then
      (umask 077 && head -c 32 /dev/urandom >"$KVCL_SECRET_FILE")
    fi
    check "a rank that dies in a collective" "$top_builddir/test/multi/coll_death" 3
    for what in killed stopped "stopped, hedged by itself" "killed after a repair"; do
      check "a holder $what" "$top_builddir/test/multi/store_death" 4 "$what"
    done
    check "a stopped rank" "$top_builddir/test/multi/store_silent" 2
    check "a holder of values that dies" "$top_builddir/test/multi/values_death" 4
    echo "$passed passed, $failed failed, 0 skipped" >>"$runs/log"
    [ $failed = 0 ] || echo $failed >"$runs/failed"
  )
done
total
[ ! -e "$runs/failed" ]
