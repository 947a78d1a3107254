#!/bin/sh
# kvcl_perf: every test on every path, verified, with and without the floor; and kvcl_info. Asserts bytes and the form
# of the output, never time. Both forms run all tests; the long one also every test with every pattern.
set -eu
: "${top_builddir:?}"
tools=$top_builddir/src/tools
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0

if ! command -v mpirun >/dev/null; then
  echo "SKIP: no mpirun (Debian: openmpi-bin)"
  exit 77
fi

# check NAME COMMAND...: it must exit 0 and print one JSON object with all members and wrong 0.
check() {
  name=$1
  shift
  rc=0
  timeout -k 10 120 "$@" >"$tmp/out" 2>"$tmp/err" || rc=$?
  for member in test path unit count gbps ops_per_s p50_us p99_us post_ns_per_run cpu_s_per_gib floor_gbps \
    floor_p50_us floor_cpu_s_per_gib frames_gbps frames_p50_us frames_cpu_s_per_gib memcpy_gbps memcpy_p50_us \
    memcpy_cpu_s_per_gib memcpy2_gbps memcpy2_p50_us memcpy2_cpu_s_per_gib ratio cold_ms warm_ms idle_p50_us \
    idle_p99_us beside_gbps batch dir_bytes_per_key holder_bytes_per_key memory native_bytes \
    processor host version date asked_beside asked_ratio reached_ratio; do
    grep -q "\"$member\": " "$tmp/out" || rc=99
  done
  if [ $rc = 0 ] && grep -q '"wrong": 0}' "$tmp/out"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAIL: $name (status $rc)"
    sed 's/^/   /' "$tmp/out" "$tmp/err" | tail -n 20
  fi
}

# measured NAME MEMBER...: the last output has figures for them. Their values depend on time.
measured() {
  name=$1
  shift
  for member in "$@"; do
    if grep -qE "\"$member\": [0-9.]+[,}]" "$tmp/out"; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1))
      echo "FAIL: $name: no $member"
    fi
  done
}

# pattern RANKS TEST PATTERN MEMBERS [OPTION...]: every rank that initiates is a member with figures, no byte is wrong.
pattern() {
  ranks=$1 test=$2 name=$3 members=$4
  shift 4
  rc=0
  timeout -k 10 120 mpirun -n "$ranks" "$tools/kvcl_perf" "$test" --pattern "$name" --json "$@" >"$tmp/out" \
    2>"$tmp/err" || rc=$?
  number='[0-9.]*'
  rates="\"gbps\": $number, \"messages_per_s\": $number, \"p50_us\": $number, \"p99_us\": $number, \"memcpy_gbps\": "
  one="{\"rank\": [0-9]*, \"targets\": [0-9]*, \"path\": \"[a-z][^\"]*\", $rates[a-z0-9.]*}"
  for member in processor host version date unit count iters memcpy_ratio cpu_s_per_gib; do
    grep -q "\"$member\": " "$tmp/out" || rc=99
  done
  if [ $rc = 0 ] && grep -q "\"pattern\": \"$name\", .*\"ranks\": $ranks, .*\"iters\": $number, $rates" "$tmp/out" &&
    grep -q "\"slowest\": $one, \"fastest\": $one, \"members\": \[$one.*\], \"wrong\": 0}\$" "$tmp/out" &&
    [ "$(grep -o '"rank": ' "$tmp/out" | wc -l)" = $((members + 2)) ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAIL: $test, pattern $name, $ranks ranks (status $rc)"
    sed 's/^/   /' "$tmp/out" "$tmp/err" | tail -n 20
  fi
}

# refused RANKS WORDS OPTION...: exit 2, and stderr has the words.
refused() {
  ranks=$1 words=$2
  shift 2
  rc=0
  if [ "$ranks" = 1 ]; then
    "$tools/kvcl_perf" "$@" >"$tmp/out" 2>&1 || rc=$?
  else
    timeout -k 10 120 mpirun -n "$ranks" "$tools/kvcl_perf" "$@" >"$tmp/out" 2>&1 || rc=$?
  fi
  if [ $rc = 2 ] && grep -qF -- "$words" "$tmp/out"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAIL: kvcl_perf $* is not refused (status $rc)"
    cat "$tmp/out"
  fi
}

# copy: one size, as JSON and as a picture; options that it does not have.
KVCL_COPY=weave2 timeout -k 10 120 "$tools/kvcl_perf" copy --unit 4096 --iters 1 --json --plot "$tmp/plot.svg" \
  >"$tmp/out" 2>"$tmp/err" || echo "status $?" >>"$tmp/out"
if grep -q '"rows": \[{"unit": 4096, "gbps": {"memcpy": [0-9.]*, "weave1 .*"chosen": "weave2 .*"ratio": [0-9.]*}\]}' \
  "$tmp/out" && grep -q '^</svg>' "$tmp/plot.svg"; then
  passed=$((passed + 1))
else
  failed=$((failed + 1))
  echo "FAIL: kvcl_perf copy"
  cat "$tmp/out" "$tmp/err"
fi
for option in "copy --floor" "copy --unit 17M" "get --plot x" "copy --sweep 4K" "lookup --sweep 4K" \
  "get --sweep 4K,0" "get --sweep 64K,4M --threads 2"; do
  rc=0
  # shellcheck disable=SC2086 # words are meant
  "$tools/kvcl_perf" $option >"$tmp/out" 2>&1 || rc=$?
  if [ $rc = 2 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL: $option"; cat "$tmp/out"; fi
done

# Patterns: bad input; the number of ranks is known to the ranks only.
refused 1 '"ring" is none of pairs, incast and all' get --pattern ring
for test in lookup match store-put store-keys bcast allreduce copy; do
  refused 1 "$test has none; the tests with patterns are send put get store-get" $test --pattern all
done
for words in "get --threads 2" "store-get --batch 4" "store-get --apart" "put --cold" "get --beside 1M"; do
  # shellcheck disable=SC2086 # words are meant
  refused 1 "leave them out" $words --pattern all
done
refused 1 "--pattern incast needs 2 ranks or more, and the job has 1" get --pattern incast
refused 3 "--pattern pairs needs an even number of ranks, and the job has 3" get --pattern pairs

for path in shm tcp; do
  KVCL_PATH=$path KVCL_NET=lo
  export KVCL_PATH KVCL_NET
  for test in send put get store-get store-put; do
    check "$test over $path" mpirun -n 2 "$tools/kvcl_perf" $test --unit 5000 --count 100 --order random --iters 3 \
      --verify --json
  done
  decision='"memory": "mapped", "native_bytes": 0,'
  [ $path = shm ] || decision='"memory": "served: TCP carries messages only", "native_bytes": 0,'
  for test in get put; do
    check "$test with the floor over $path" mpirun -n 2 "$tools/kvcl_perf" $test --unit 64K --count 4 --iters 20 \
      --floor --json
    if grep -q "$decision" "$tmp/out"; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1))
      echo "FAIL: $test over $path: no $decision"
    fi
  done
  check "get, cold and beside a bulk transfer, over $path" mpirun -n 2 "$tools/kvcl_perf" get --unit 4K --count 8 \
    --iters 20 --cold --beside 8M --json
  measured "cold and beside over $path" cold_ms warm_ms idle_p99_us # the bulk may end only after them
  check "get with frames and two copies over $path" mpirun -n 2 "$tools/kvcl_perf" get --unit 4K --count 5000 --order \
    random --iters 2 --floor --json
  if [ $path = tcp ]; then
    measured "frames over $path" frames_gbps frames_cpu_s_per_gib memcpy2_gbps memcpy_cpu_s_per_gib
  else
    measured "floors over $path" floor_gbps floor_cpu_s_per_gib memcpy2_gbps memcpy_cpu_s_per_gib
  fi
  check "get of one large block over $path" mpirun -n 2 "$tools/kvcl_perf" get --unit 16M --count 1 --iters 2 \
    --floor --json
  measured "two copies of one block over $path" memcpy2_gbps memcpy2_cpu_s_per_gib
  for test in lookup match; do
    check "$test over $path" mpirun -n 2 "$tools/kvcl_perf" $test --count 500 --iters 50 --json
  done
  for test in store-get store-put; do
    check "$test one key at a time over $path" mpirun -n 2 "$tools/kvcl_perf" $test --unit 5000 --count 50 --batch 1 \
      --order random --iters 60 --verify --json
    check "$test in batches, without checksums, over $path" mpirun -n 2 "$tools/kvcl_perf" $test --unit 4K --count 50 \
      --batch 8 --no-checksum --iters 10 --json
  done
  check "store-get of 4 MiB a call over $path" mpirun -n 2 "$tools/kvcl_perf" store-get --unit 4K --count 2046 \
    --batch 1023 --order random --iters 4 --verify --json
  # A sweep: the same bytes in blocks of each size; what is asked of a ratio, and whether it is reached, in words.
  check "sweep over $path" mpirun -n 2 "$tools/kvcl_perf" get --unit 16M --count 1 --sweep 4K,16M --iters 3 --floor \
    --json
  if [ "$(grep -c '"wrong": 0}' "$tmp/out")" = 2 ] && grep -q '"unit": 4096, "count": 4096,' "$tmp/out" &&
    grep -q '"unit": 16777216, "count": 1,' "$tmp/out" && grep -qE '"date": "20[0-9-]*T[0-9:]*Z"' "$tmp/out" &&
    grep -q "\"host\": \"$(uname -n)\"" "$tmp/out"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAIL: sweep over $path"
    cat "$tmp/out"
  fi
  measured "what is asked over $path" asked_ratio reached_ratio
  rc=0
  mpirun -n 2 "$tools/kvcl_perf" get --unit 4K --count 4096 --order random --iters 3 --floor >"$tmp/out" 2>&1 || rc=$?
  if [ $rc = 0 ] && grep -qE '^  (short|reached) +[0-9.]+ times as fast as [a-zA-Z ]+; asked: [0-9.]+$' "$tmp/out"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAIL: no word about what is asked over $path"
    cat "$tmp/out"
  fi
  check "store-get of single blocks with the floor over $path" mpirun -n 2 "$tools/kvcl_perf" store-get --unit 4K \
    --count 16 --batch 1 --iters 40 --floor --json
  measured "single blocks with the floor over $path" floor_p50_us ratio
  check "store-keys over $path" mpirun -n 2 "$tools/kvcl_perf" store-keys --count 20000 --json
  measured "memory of keys over $path" dir_bytes_per_key holder_bytes_per_key ops_per_s
  # Each pattern and each test; at night each test with each pattern.
  pattern 4 get pairs 2 --unit 5000 --count 100 --order random --iters 3 --verify
  pattern 4 put incast 3 --unit 5000 --count 100 --order random --iters 3 --verify
  pattern 4 send all 4 --unit 5000 --count 100 --order random --iters 3 --verify
  pattern 4 store-get all 4 --unit 5000 --count 100 --order random --iters 3 --verify
  pattern 3 get incast 2 --unit 4K --count 500 --iters 20 --floor
  measured "a pattern with the floor over $path" memcpy_gbps memcpy_ratio
  if [ "${TEST_RING:-gate}" = night ]; then
    for test in send put get store-get; do
      for name in "pairs 2" "incast 3" "all 4"; do
        # shellcheck disable=SC2086 # words are meant
        pattern 4 $test $name --unit 3000 --count 200 --iters 20 --floor --verify
      done
    done
    pattern 2 send pairs 1 --count 1 --unit 1 --iters 200
    pattern 5 put all 5 --count 3 --sweep 4K
  fi
  check "bcast over $path" mpirun -n 3 "$tools/kvcl_perf" bcast --unit 50000 --count 20 --iters 3 --verify --json
  check "allreduce over $path" mpirun -n 3 "$tools/kvcl_perf" allreduce --unit 50000 --count 20 --iters 3 --verify \
    --json
done
unset KVCL_PATH KVCL_NET
for test in send put get lookup match store-get store-put bcast allreduce; do
  check "$test alone" "$tools/kvcl_perf" $test --unit 1000 --count 50 --iters 3 --verify --json
done
check "get with threads" mpirun -n 2 "$tools/kvcl_perf" get --threads 3 --iters 10 --json
check "lookup with threads" mpirun -n 2 "$tools/kvcl_perf" lookup --threads 2 --iters 50 --json

rc=0
mpirun -n 3 "$tools/kvcl_info" >"$tmp/out" 2>"$tmp/err" || rc=$?
if [ $rc = 0 ] && grep -q '2 -> 0  ' "$tmp/out" && grep -q 'KVCL_SPIN' "$tmp/out"; then
  passed=$((passed + 1))
else
  failed=$((failed + 1))
  echo "FAIL: kvcl_info (status $rc)"
  sed 's/^/   /' "$tmp/out" "$tmp/err" | tail -n 20
fi

echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
