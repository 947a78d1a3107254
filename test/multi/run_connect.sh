#!/bin/sh
# Inter-communicators between jobs started apart, over each path.
set -eu
: "${top_builddir:?}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0

for ranks in "1 1" "2 3" "4 1"; do
  for path in auto tcp; do
    rc=0
    # shellcheck disable=SC2086
    KVCL_PATH=$path timeout -k 10 120 "$top_builddir/test/multi/connect" $ranks >"$tmp/out" 2>"$tmp/err" || rc=$?
    passed=$((passed + $(grep -c '^ok ' "$tmp/out" || :)))
    if [ $rc != 0 ]; then
      failed=$((failed + 1))
      echo "FAIL: $ranks ranks over $path (status $rc)"
      grep -v '^ok ' "$tmp/out" | cat - "$tmp/err" | sed 's/^/   /' | tail -n 20
    fi
  done
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
