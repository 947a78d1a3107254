#!/bin/sh
# Point to point on 1, 2, 4 and 7 ranks, over each path.
set -eu
: "${top_builddir:?}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0

if ! command -v mpirun >/dev/null; then
  echo "SKIP: no mpirun (Debian: openmpi-bin)"
  exit 77
fi

for ranks in 1 2 4 7; do
  for path in auto tcp; do
    rc=0
    KVCL_PATH=$path KVCL_NET=lo timeout -k 10 120 mpirun -n $ranks "$top_builddir/test/multi/p2p" 6 >"$tmp/out" \
      2>"$tmp/err" || rc=$?
    if [ $rc = 0 ] && [ "$(grep -c "^ok [0-9]* of $ranks\$" "$tmp/out")" = $ranks ]; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1))
      echo "FAIL: $ranks ranks over $path (status $rc)"
      cat "$tmp/out" "$tmp/err" | sed 's/^/   /' | tail -n 20
    fi
  done
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
