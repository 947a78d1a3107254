#!/bin/sh
# kvcl_replay on several ranks: hits are exactly those that the trace implies, no byte is wrong, bad traces are refused;
# also by the whole store, with copies, a tier and a rank that is killed. The expected numbers come from awk, without
# KVCL.
#   gate   in order on 1 and 4 ranks, by TCP on 2; a rank is killed by TCP, in full traffic, rank 0, of two, with a tier
#   night  also on 2 and 7 ranks, by TCP on 4, and a death over shared memory; the published traces if present
set -eu
: "${top_builddir:?}" "${top_srcdir:?}"
replay=$top_builddir/src/tools/kvcl_replay
tmp=$(mktemp -d)
pids=
cleanup() {
  # shellcheck disable=SC2086
  [ -z "$pids" ] || kill -9 $pids 2>/dev/null || :
  rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM
passed=0 failed=0 skipped=0
ring=${TEST_RING:-gate}

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

# count FILE: requests, blocks, hits of an infinite cache in order.
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
numbers='1 2 4 7'
[ "$ring" = night ] || numbers='1 4'
for n in $numbers; do
  exact "in order on $n ranks" "$1" "$2" "$3" $n --trace "$tmp/trace"
done
numbers='2 4'
[ "$ring" = night ] || numbers=2
for n in $numbers; do
  KVCL_PATH=tcp KVCL_NET=lo
  export KVCL_PATH KVCL_NET
  exact "in order on $n ranks over tcp" "$1" "$2" "$3" $n --trace "$tmp/trace" --bytes-per-token 4
  unset KVCL_PATH KVCL_NET
done

# By the whole store: the same number of hits, from any tier and with any number of copies.
# tiers NAME: the tiers' hits add up to all hits, and nothing was wrong.
tiers() {
  [ -n "$(field hits_nvme)" ] &&
    [ $(($(field hits_local) + $(field hits_remote) + $(field hits_nvme))) = "$(field hits)" ] &&
    [ $(($(field hits) + $(field misses))) = "$(field blocks)" ] && [ "$(field wrong)" = 0 ] &&
    [ "$(field vanished)" = 0 ] && result 0 "" || result 1 "$1: tiers"
}
exact "the store, alone" "$1" "$2" "$3" 1 --trace "$tmp/trace" --store
tiers "alone"
exact "the store in order" "$1" "$2" "$3" 3 --trace "$tmp/trace" --store
tiers "in order"
[ "$(field hits_remote)" -gt 0 ] && [ "$(field hits_nvme)" = 0 ] && result 0 "" || result 1 "hits by tier"
exact "the store with copies" "$1" "$2" "$3" 3 --trace "$tmp/trace" --store --replicas 2
tiers "copies"
[ "$(field few_copies)" = 0 ] && [ "$(field not_put)" = 0 ] && result 0 "" || result 1 "all copies were made"
KVCL_PATH=tcp KVCL_NET=lo
export KVCL_PATH KVCL_NET
exact "the store over tcp" "$1" "$2" "$3" 2 --trace "$tmp/trace" --store --replicas 2 --bytes-per-token 4
unset KVCL_PATH KVCL_NET
rc=0
run 3 --requests 300 --in-order --store --pool 10% || rc=$?
[ $rc = 0 ] && [ "$(field wrong)" = 0 ] && [ "$(field evictions)" -gt 0 ] || rc=1
result $rc "the store with small pools"
without=$(field hits)
rc=0
run 3 --requests 300 --in-order --store --pool 10% --nvme "$tmp/tier.%r:64M" 2>"$tmp/err" || rc=$?
[ $rc = 0 ] && [ "$(field wrong)" = 0 ] && [ "$(field demoted)" -gt 0 ] && [ "$(field hits_nvme)" -gt 0 ] &&
  [ "$(field hits)" -gt "$without" ] || rc=1
result $rc "a tier behind small pools"
rc=0
run 3 --requests 300 --in-order || rc=$?
implied=$(field hits) # implied by the trace: no store has more, unless it has blocks of an earlier run
run 3 --requests 300 --in-order --store --pool 10% --nvme "$tmp/tier.%r:64M" 2>"$tmp/err" || rc=$?
[ $rc = 0 ] && [ "$(field wrong)" = 0 ] && [ "$(field hits)" -le "$implied" ] || rc=1
result $rc "what an earlier run left in the tier is no hit"
rm -f "$tmp"/tier.*

# A rank is killed. The ranks meet at an address, since mpirun would end them all.
mkdir -m 700 "$tmp/home"
. "$top_srcdir/test/multi/ports.sh"
# killed NAME REQUESTS RANKS VICTIM ARGUMENT...: the others succeed, and their output goes to $tmp/out.
killed() {
  name=$1 requests=$2 ranks=$3 victim=$4
  shift 4
  next_port
  rank=0 pids=
  while [ $rank -lt "$ranks" ]; do
    HOME=$tmp/home KVCL_RENDEZVOUS=tcp://127.0.0.1:$port KVCL_BOOT=tcp KVCL_SIZE=$ranks KVCL_RANK=$rank \
      timeout -s KILL 200 "$replay" --json --store "$@" >"$tmp/out.$rank" 2>"$tmp/err.$rank" &
    pids="$pids $!"
    rank=$((rank + 1))
  done
  rank=0 bad=0
  for pid in $pids; do
    rc=0
    wait "$pid" || rc=$?
    wanted=0
    [ $rank != "$victim" ] || wanted=137
    [ $rc = $wanted ] || { bad=1; echo "$name: rank $rank ended with $rc, not $wanted"; }
    rank=$((rank + 1))
  done
  pids=
  cat "$tmp"/out.* >"$tmp/out"
  cat "$tmp"/err.* >"$tmp/err"
  rm -f "$tmp"/out.* "$tmp"/err.*
  [ "$(field wrong)" = 0 ] && [ "$(field kill_lost)" = 0 ] && [ -n "$(field kill_noticed_ms)" ] || bad=1
  [ -n "$(field kill_served)" ] && [ $(($(field requests) + $(field kill_served))) = "$requests" ] || bad=1
  result $bad "$name"
}
# survived NAME: the killed rank held blocks with other copies, and these have two copies again.
survived() {
  [ "$(field kill_watched)" -gt 0 ] && [ -n "$(field kill_other_copy_ms)" ] && [ -n "$(field kill_repaired_ms)" ] &&
    result 0 "" || result 1 "$1: got, and copied anew"
}
# RANK@held kills it once it holds blocks that others have as well. With --speed 2 the trace takes 2 seconds at least.
if [ "$ring" = night ]; then
  killed "a rank is killed" 400 4 2 --trace "$tmp/trace" --replicas 2 --speed 2 --kill 2@held
  survived "a rank is killed"
fi
KVCL_PATH=tcp KVCL_NET=lo
export KVCL_PATH KVCL_NET
killed "a rank is killed over tcp" 400 3 1 --trace "$tmp/trace" --replicas 2 --speed 2 --kill 1@held --bytes-per-token 4
survived "a rank is killed over tcp"
# As fast as possible, so that many messages to it are in flight.
killed "a rank is killed in full traffic over tcp" 1500 4 2 --requests 1500 --replicas 2 --pool 25% --kill 2@0.5
unset KVCL_PATH KVCL_NET
killed "a rank is killed once it holds blocks" 200 4 3 --requests 200 --replicas 2 --kill 3@held
survived "a rank is killed once it holds blocks"
killed "rank 0 is killed once it holds blocks" 400 3 0 --trace "$tmp/trace" --replicas 2 --kill 0@held
survived "rank 0 is killed"
killed "one of two is killed" 400 2 1 --trace "$tmp/trace" --speed 4 --kill 1@0.5
[ "$(field kill_watched)" = 0 ] && [ "$(field kill_taken_over)" -gt 0 ] && result 0 "" || result 1 "without copies"
killed "a rank with a tier is killed" 400 3 2 --trace "$tmp/trace" --replicas 2 --speed 4 --kill 2@0.5 --pool 15% \
  --nvme "$tmp/tier.%r:64M"
rm -f "$tmp"/tier.*
for wrong in "--kill 1@1" "--store --kill 1" "--store --kill 2@1" "--store --in-order --kill 1@1" "--pool 10%"; do
  rc=0
  # shellcheck disable=SC2086
  "$replay" --requests 5 $wrong >"$tmp/out" 2>"$tmp/err" || rc=$?
  [ $rc = 2 ] && result 0 "" || result 1 "$wrong is refused (status $rc)"
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

# Output that cannot be written.
for what in '' --json --help; do
  [ -c /dev/full ] || break
  rc=0
  # shellcheck disable=SC2086
  timeout 60 "$replay" --requests 5 $what >/dev/full 2>"$tmp/err" || rc=$?
  [ $rc = 1 ] && grep -q '^kvcl_replay: the standard output could not be written' "$tmp/err" && rc=0 || rc=1
  result $rc "a full disk: $what"
done

# The published traces, if they are next to the project.
shared=$top_srcdir/../shared/traces
if [ "$ring" = gate ]; then
  echo "the published traces are replayed at night"
elif [ -r "$shared/conversation_trace.jsonl" ] && [ -r "$shared/synthetic_trace.jsonl" ]; then
  exact "the conversation trace" 12031 288500 105710 4 --trace "$shared/conversation_trace.jsonl" --bytes-per-token 1
  exact "the synthetic trace" 3993 121877 77953 3 --trace "$shared/synthetic_trace.jsonl" --bytes-per-token 1
else
  skipped=$((skipped + 2))
  echo "SKIP: ../shared/traces is not beside the project: the published traces were not replayed"
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
