#!/bin/sh
# run_reshard.sh [PATH...]: tensor-parallel groups of different sizes, 6 ranks, over each path: 4 to 2, 2 to 4, and one
# to 5 that all hold the same.
set -eu
: "${top_builddir:?}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0

if ! command -v mpirun >/dev/null; then
  echo "SKIP: no mpirun (Debian: openmpi-bin)"
  exit 77
fi

for groups in "4 2" "2 4" "1 5"; do
  for path in ${*:-auto tcp}; do
    rc=0
    # shellcheck disable=SC2086 # two arguments
    KVCL_PATH=$path KVCL_NET=lo timeout -k 10 120 mpirun -x KVCL_PATH -x KVCL_NET -n 6 \
      "$top_builddir/test/multi/reshard" $groups >"$tmp/out" 2>"$tmp/err" || rc=$?
    if [ $rc = 0 ] && [ "$(grep -c "^ok [0-9]* of 6\$" "$tmp/out")" = 6 ]; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1))
      echo "FAIL: $groups over $path (status $rc)"
      cat "$tmp/out" "$tmp/err" | sed 's/^/   /' | tail -n 20
    fi
  done
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
