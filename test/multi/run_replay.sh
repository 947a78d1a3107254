#!/bin/sh
# kvcl_replay on several ranks: hits are exactly what the trace implies, no byte is wrong, bad traces are refused.
# The wanted numbers come from awk, which knows nothing of KVCL.
set -eu
: "${top_builddir:?}" "${top_srcdir:?}"
replay=$top_builddir/src/tools/kvcl_replay
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0 skipped=0

if ! command -v mpirun >/dev/null; then
  echo "SKIP: no mpirun (Debian: openmpi-bin)"
  exit 77
fi

# A trace of conversations: each request opens one or continues an earlier one.
awk 'BEGIN {
  srand(5)
  next_id = 1
  for (r = 0; r < 400; ++r) {
    ids[r] = "0"
    n = 1 + int(rand() * 30)
    if (r > 10 && rand() < 0.5)
      ids[r] = ids[int(rand() * r)]
    for (i = 0; i < n; ++i)
      ids[r] = ids[r] ", " next_id++
    printf "{\"timestamp\": %d, \"input_length\": 512, \"output_length\": 1, \"hash_ids\": [%s]}\n", r * 10, ids[r]
  }
}' >"$tmp/trace"

# count FILE: requests, blocks, hits as an infinite cache in order has them.
count() {
  awk '{
    gsub(/.*\[|\].*/, "")
    n = split($0, id, ", ")
    run = 1
    for (i = 1; i <= n; ++i) {
      ++blocks
      if (run && (id[i] in seen)) ++hits; else run = 0
    }
    for (i = 1; i <= n; ++i) seen[id[i]] = 1
  } END { print NR, blocks, hits }' "$1"
}

field() {
  sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p" "$tmp/out"
}

result() {
  if [ "$1" = 0 ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAIL: $2"
    sed 's/^/   /' "$tmp/out" "$tmp/err" | tail -n 30
  fi
}

# run RANKS ARGUMENT...: output in $tmp/out and $tmp/err.
run() {
  ranks=$1
  shift
  timeout -k 10 240 mpirun -n "$ranks" "$replay" --json "$@" >"$tmp/out" 2>"$tmp/err"
}

# exact NAME REQUESTS BLOCKS HITS RANKS ARGUMENT...
exact() {
  name=$1 wanted="$2 $3 $4"
  shift 4
  rc=0
  run "$@" --in-order || rc=$?
  got="$(field requests) $(field blocks) $(field hits)"
  if [ $rc = 0 ] && [ "$got" = "$wanted" ] && [ "$(field wrong)" = 0 ]; then
    result 0 "$name"
  else
    echo "$name: wanted $wanted, got $got, wrong $(field wrong), status $rc"
    result 1 "$name"
  fi
}

# shellcheck disable=SC2046
set -- $(count "$tmp/trace")
echo "the trace: $1 requests, $2 blocks, $3 hits"
for n in 1 2 4 7; do
  exact "in order on $n ranks" "$1" "$2" "$3" $n --trace "$tmp/trace"
done
for n in 2 4; do
  KVCL_PATH=tcp
  export KVCL_PATH
  exact "in order on $n ranks over tcp" "$1" "$2" "$3" $n --trace "$tmp/trace" --bytes-per-token 4
  unset KVCL_PATH
done

# As fast as possible: hits depend on timing, bytes do not. A small pool evicts.
rc=0
run 4 --trace "$tmp/trace" || rc=$?
[ $rc = 0 ] && [ "$(field wrong)" = 0 ] && [ "$(field blocks)" = "$2" ] || rc=1
result $rc "out of order"
rc=0
run 4 --requests 300 --pool 512K || rc=$?
[ $rc = 0 ] && [ "$(field wrong)" = 0 ] && [ "$(field evictions)" -gt 0 ] || rc=1
result $rc "a small pool evicts"
rc=0
run 3 --requests 300 --in-order --pool 512K || rc=$?
[ $rc = 0 ] && [ "$(field wrong)" = 0 ] && [ "$(field evictions)" -gt 0 ] || rc=1
result $rc "a small pool in order"

# Bad lines: skipped and counted, or refused.
{ cat "$tmp/trace"; echo '{"timestamp": -1}'; echo nonsense; } >"$tmp/bad"
exact "bad lines are skipped" "$1" "$2" "$3" 2 --trace "$tmp/bad"
[ "$(field skipped_lines)" = 2 ] && grep -q "bad:401: column 15: timestamp is negative (skipped)" "$tmp/err" &&
  result 0 "" || result 1 "bad lines are reported once"
rc=0
run 2 --trace "$tmp/bad" --strict || rc=$?
[ $rc = 2 ] && grep -q 'bad:401: ' "$tmp/err" && result 0 "" || result 1 "a bad line with --strict (status $rc)"
rc=0
run 2 --trace "$tmp/none" || rc=$?
[ $rc = 2 ] && grep -q 'none: No such file' "$tmp/err" && result 0 "" || result 1 "a missing trace (status $rc)"
rc=0
run 1 --pool 3 || rc=$?
[ $rc = 1 ] && grep -q 'pool is too small' "$tmp/err" && result 0 "" || result 1 "a pool too small (status $rc)"

# The published traces, when they lie beside the project.
shared=$top_srcdir/../shared/traces
if [ -r "$shared/conversation_trace.jsonl" ] && [ -r "$shared/synthetic_trace.jsonl" ]; then
  exact "the conversation trace" 12031 288500 105710 4 --trace "$shared/conversation_trace.jsonl" --bytes-per-token 1
  exact "the synthetic trace" 3993 121877 77953 3 --trace "$shared/synthetic_trace.jsonl" --bytes-per-token 1
else
  skipped=$((skipped + 2))
  echo "SKIP: ../shared/traces is not beside the project: the published traces were not replayed"
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
