#!/bin/sh
# The store over 1, 2, 4 and 7 ranks, by shared memory and by TCP. SEED=N replays.
set -eu
: "${top_builddir:?}"
command -v mpirun >/dev/null 2>&1 || { echo "no mpirun here: the store's multi-rank tests are skipped"; exit 77; }
seed=${SEED:-$(date +%s)}

# run N PATH TEST...: no test named means all
run() {
  n=$1 path=$2
  shift 2
  echo "-- $n ranks, KVCL_PATH=$path, seed $seed"
  KVCL_PATH=$path mpirun -n "$n" "$top_builddir/test/multi/store" --seed "$seed" "$@"
  seed=$((seed + 1))
}

for path in auto tcp; do
  run 1 $path
  run 2 $path
  run 4 $path
  run 7 $path bytes bcast evict hostile events match_all # seven on few cores: the slow ones are left out
done
KVCL_STORE_HOT=3
export KVCL_STORE_HOT
run 2 tcp hot
run 4 tcp hot
