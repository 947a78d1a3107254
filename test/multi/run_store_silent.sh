#!/bin/sh
# One rank is stopped while another uses the store, then resumes: by shared memory and by TCP.
#   gate   one replica by shared memory, two by TCP
#   night  one and two replicas over both
set -eu
: "${top_builddir:?}"
. "$(dirname "$0")/secret.sh"
passed=0 failed=0
for path in auto tcp; do
  for replicas in 1 2; do
    if [ "${TEST_RING:-gate}" = gate ]; then
      case $path/$replicas in
        auto/1 | tcp/2) ;;
        *) continue ;;
      esac
    fi
    echo "-- KVCL_PATH=$path, $replicas replicas"
    if KVCL_PATH=$path KVCL_NET=lo timeout -k 10 120 "$top_builddir/test/multi/store_silent" "$replicas"; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1))
    fi
  done
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
