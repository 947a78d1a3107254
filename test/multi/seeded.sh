# Sourced, with program set: run N PATH TEST... starts it under mpirun with a seed, each time another; SEED=N replays.
# No test named means all.
: "${top_builddir:?}"
command -v mpirun >/dev/null 2>&1 || { echo "no mpirun here: the multi-rank tests of $program are skipped"; exit 77; }
seed=${SEED:-$(date +%s)}

run() {
  n=$1 path=$2
  shift 2
  echo "-- $n ranks, KVCL_PATH=$path, seed $seed"
  KVCL_PATH=$path mpirun -n "$n" "$top_builddir/test/multi/$program" --seed "$seed" "$@"
  seed=$((seed + 1))
}
