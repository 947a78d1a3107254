# Sourced, with program set: run N PATH TEST... starts it under mpirun with a seed, each time another; KVCL_TEST_SEED=N
# replays (contrib/check sets it). No test named means all.
: "${top_builddir:?}"
command -v mpirun >/dev/null 2>&1 || { echo "SKIP: no mpirun (Debian: openmpi-bin)"; exit 77; }
seed=${KVCL_TEST_SEED:-$(date +%s)}

run() {
  n=$1 path=$2
  shift 2
  echo "-- $n ranks, KVCL_PATH=$path, KVCL_TEST_SEED=$seed"
  KVCL_PATH=$path mpirun -n "$n" "$top_builddir/test/multi/$program" --seed "$seed" "$@"
  seed=$((seed + 1))
}
