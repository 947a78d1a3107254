#!/bin/sh
# Values of a store over 1, 2 and 4 ranks, by shared memory and by TCP. SEED=N replays.
set -eu
: "${top_builddir:?}"
command -v mpirun >/dev/null 2>&1 || { echo "no mpirun here: the multi-rank tests of values are skipped"; exit 77; }
seed=${SEED:-$(date +%s)}

# run N PATH TEST...: no test named means all
run() {
  n=$1 path=$2
  shift 2
  echo "-- $n ranks, KVCL_PATH=$path, seed $seed"
  KVCL_PATH=$path mpirun -n "$n" "$top_builddir/test/multi/values" --seed "$seed" "$@"
  seed=$((seed + 1))
}

case ${TEST_SANITIZE:-} in
?*) export VALUES_SMALL=1 ;; # 70 MiB are left out
esac
for path in auto tcp; do
  run 1 $path
  run 2 $path
  run 4 $path
done

# A holder is killed.
KVCL_SECRET_FILE=$(mktemp)
trap 'rm -f "$KVCL_SECRET_FILE"' EXIT
head -c 32 /dev/urandom >"$KVCL_SECRET_FILE"
export KVCL_SECRET_FILE
for path in auto tcp; do
  echo "-- KVCL_PATH=$path"
  KVCL_PATH=$path timeout -k 10 120 "$top_builddir/test/multi/values_death" 4
done
