# Sourced, with program set: run N PATH TEST... starts it under mpirun with a seed, each time another; TEST_SEED=N
# replays (contrib/check sets it). No test named means all. total, which a script calls last, prints the counts of all
# runs; a run that fails ends the script with them.
: "${top_builddir:?}"
command -v mpirun >/dev/null 2>&1 || { echo "SKIP: no mpirun (Debian: openmpi-bin)"; exit 77; }
seed=${TEST_SEED:-$(date +%s)}
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT

run() {
  n=$1 path=$2
  shift 2
  echo "-- $n ranks, KVCL_PATH=$path, TEST_SEED=$seed"
  echo 1 >"$runs/failed"
  net=
  [ "$path" != tcp ] || net=lo
  { KVCL_PATH=$path KVCL_NET=$net mpirun -n "$n" "$top_builddir/test/multi/$program" --seed "$seed" "$@" &&
    rm "$runs/failed"; } | tee -a "$runs/log"
  seed=$((seed + 1))
  [ ! -e "$runs/failed" ] || { total; exit 1; }
}

# total [PASSED]: with so many more that passed.
total() {
  awk -v p="${1:-0}" -v least="$(cat "$runs/failed" 2>/dev/null || echo 0)" '
    /^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { p += $1; f += $3; s += $5 }
    END { printf "%d passed, %d failed, %d skipped\n", p, (f < least ? least : f), s }' "$runs/log"
}
