# Sourced, with program set, the path of one. run N PATH TEST... starts it under mpirun with a seed, another one each
# time; TEST_SEED=N replays (contrib/check sets it). No TEST means all. total, which a script calls last, prints the
# counts of all runs. A failed run ends the script with these counts. A rank's stderr goes into a file of its own, which
# is printed after the run, since mpirun may drop the last lines of a failing rank. The file has the status of a failing
# rank.
: "${top_builddir:?}"
command -v mpirun >/dev/null 2>&1 || { echo "SKIP: no mpirun (Debian: openmpi-bin)"; exit 77; }
seed=${TEST_SEED:-$(date +%s)}
runs=$(mktemp -d)
# Print what the ranks of the last run have written to stderr.
rank_errors() {
  for file in "$runs"/stderr.*; do
    [ -e "$file" ] || continue
    cat "$file" >&2
    rm -f "$file"
  done
}
trap 'rank_errors; rm -rf "$runs"' EXIT
cat >"$runs/rank" <<'RANK'
#!/bin/sh
log=${0%/*}/stderr.${PMIX_RANK:-${OMPI_COMM_WORLD_RANK:-$$}} rc=0
"$@" 2>>"$log" || rc=$?
[ $rc = 0 ] || echo "rank ${log##*.} ended with status $rc" >>"$log"
exit $rc
RANK
chmod 700 "$runs/rank"

run() {
  n=$1 path=$2
  shift 2
  echo "-- $n ranks, KVCL_PATH=$path, TEST_SEED=$seed"
  echo 1 >"$runs/failed"
  net=
  [ "$path" != tcp ] || net=lo
  {
    KVCL_PATH=$path KVCL_NET=$net mpirun -n "$n" "$runs/rank" "$program" --seed "$seed" "$@" &&
      rm "$runs/failed"
  } | tee -a "$runs/log"
  rank_errors
  seed=$((seed + 1))
  [ ! -e "$runs/failed" ] || { total; exit 1; }
}

# total [PASSED]: adds this number of passed tests.
total() {
  awk -v p="${1:-0}" -v least="$(cat "$runs/failed" 2>/dev/null || echo 0)" '
    /^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { p += $1; f += $3; s += $5 }
    END { printf "%d passed, %d failed, %d skipped\n", p, (f < least ? least : f), s }' "$runs/log"
}
