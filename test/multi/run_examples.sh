#!/bin/sh
# The examples on several ranks, over shared memory and over TCP. Each verifies its own bytes.
#   gate   on 3 ranks
#   night  on 2, 3 and 4
set -eu
: "${top_builddir:?}"
passed=0 failed=0

# The programs, by which contrib/check knows what to build:
: "$top_builddir/contrib/examples/prefill_decode" "$top_builddir/contrib/examples/layerwise" \
  "$top_builddir/contrib/examples/engine_loop" "$top_builddir/contrib/examples/hybrid" \
  "$top_builddir/contrib/examples/by_address" "$top_builddir/contrib/examples/connect" \
  "$top_builddir/contrib/examples/push_pages" "$top_builddir/contrib/examples/own_loop" \
  "$top_builddir/contrib/examples/groups" \
  "$top_builddir/contrib/examples/reuse_prefix" "$top_builddir/contrib/examples/take_heads" \
  "$top_builddir/contrib/examples/hot_prefix"

if ! command -v mpirun >/dev/null; then
  echo "SKIP: no mpirun (Debian: openmpi-bin)"
  exit 77
fi
numbers='2 3 4'
[ "${TEST_RING:-gate}" = night ] || numbers=3
for program in prefill_decode layerwise engine_loop hybrid by_address connect push_pages own_loop groups reuse_prefix \
  take_heads hot_prefix; do
  for n in $numbers; do
    for path in auto tcp; do
      net=
      [ $path = auto ] || net=lo
      if KVCL_PATH=$path KVCL_NET=$net timeout -k 10 60 mpirun -x KVCL_PATH -x KVCL_NET -n $n \
        "$top_builddir/contrib/examples/$program"; then
        passed=$((passed + 1))
      else
        failed=$((failed + 1))
        echo "FAIL: $program on $n ranks, path $path"
      fi
    done
  done
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
