#!/bin/sh
# The conformance suite with device memory on one side or both, instead of malloc'ed memory: on a driver without a
# device, whose memory faults when the processor accesses it (test/unit/fake_cuda.h).
#   gate   on all ranks over loop, with messages over tcp; on one side over tcp, with messages over loop
#   night  on all ranks and on one side over both
# TEST_TIMEOUT: 900
set -eu
cd "${top_builddir:?}"
# The gate does not name these, and contrib/check builds them for this.
: "$top_builddir/test/conform/conform_vec" "$top_builddir/test/conform/conform_device"
bad=0 good=0

# run DEVICE PATH PROGRAM...: CF_DEVICE is 1 (even ranks), 2 (odd ones), 3 (all).
run() {
  device=$1 path=$2
  shift 2
  for program in "$@"; do
    echo "$program, device memory on $(echo "$device" | sed 's/1/even ranks/; s/2/odd ranks/; s/3/all ranks/')"
    if CF_DEVICE=$device "test/conform/$program" "$path/"; then
      good=$((good + 1))
    else
      bad=$((bad + 1))
    fi
  done
}

skipped=0
case ${TEST_SANITIZE-} in
  *thread*)
    echo "SKIP: device memory over tcp and on one side: too slow for the thread sanitizer"
    skipped=1
    run 3 loop conform_rma conform_msg
    ;;
  *)
    if [ "${TEST_RING:-gate}" = gate ]; then
      run 3 loop conform_rma conform_vec conform_fence
      run 3 tcp conform_msg
      run 1 tcp conform_rma conform_vec
      run 2 loop conform_msg
    else
      run 3 loop conform_rma conform_vec conform_msg conform_fence
      run 3 tcp conform_rma conform_vec conform_msg
      run 1 tcp conform_rma conform_vec
      run 2 loop conform_msg
      run 2 tcp conform_fence
    fi
    ;;
esac

echo "conform_gpu, as on a machine with GPUs"
if CF_FAKE=1 sh "${top_srcdir:?}/test/conform/run_gpu.sh" threads; then
  good=$((good + 1))
else
  bad=$((bad + 1))
fi
echo "$good passed, $bad failed, $skipped skipped"
[ $bad = 0 ]
