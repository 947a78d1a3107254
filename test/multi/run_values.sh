#!/bin/sh
# Values of a store over 1, 2 and 4 ranks, by shared memory and by TCP. KVCL_TEST_SEED=N replays.
set -eu
program=values
. "$(dirname "$0")/seeded.sh"

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
