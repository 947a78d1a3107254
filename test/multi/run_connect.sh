#!/bin/sh
# run_connect.sh [PATH...]: inter-communicators between jobs started separately, over each path. Most of the time is
# waiting, so all paths run at once.
set -eu
: "${top_builddir:?}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0 paths=${*:-auto tcp}

# start PATH RANKS-A RANKS-B: output and status in $tmp/PATH.*
start() {
  rc=0
  KVCL_PATH=$1 KVCL_NET=lo timeout -k 10 120 "$top_builddir/test/multi/connect" "$2" "$3" >"$tmp/$1.out" \
    2>"$tmp/$1.err" || rc=$?
  echo $rc >"$tmp/$1.rc"
}

for ranks in "1 1" "2 3" "4 1"; do
  for path in $paths; do
    # shellcheck disable=SC2086
    start $path $ranks &
  done
  wait
  for path in $paths; do
    rc=$(cat "$tmp/$path.rc")
    passed=$((passed + $(grep -c '^ok ' "$tmp/$path.out" || :)))
    if [ "$rc" != 0 ]; then
      failed=$((failed + 1))
      echo "FAIL: $ranks ranks over $path (status $rc)"
      grep -v '^ok ' "$tmp/$path.out" | cat - "$tmp/$path.err" | sed 's/^/   /' | tail -n 20
    fi
  done
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
