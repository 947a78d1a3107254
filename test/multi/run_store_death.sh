#!/bin/sh
# One of two holders of every block is killed, or stopped, while ranks get: by shared memory and by TCP.
#   gate   each case over one of the two
#   night  each case over both; with the thread sanitizer, which is slow, as in the gate
# TEST_TIMEOUT: 1800
set -eu
: "${top_builddir:?}"
. "$(dirname "$0")/secret.sh"
ring=${TEST_RING:-gate}
[ "${TEST_SANITIZE:-no}" != thread ] || ring=gate
passed=0 failed=0
for path in auto tcp; do
  for what in killed stopped "stopped, hedged by itself" "killed after a repair"; do
    if [ $ring = gate ]; then
      case $path/$what in
        auto/stopped | auto/killed\ after* | tcp/killed | tcp/*hedged*) ;;
        *) continue ;;
      esac
    fi
    echo "-- KVCL_PATH=$path"
    if KVCL_PATH=$path KVCL_NET=lo timeout -k 10 300 "$top_builddir/test/multi/store_death" 4 "$what"; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1))
    fi
  done
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
