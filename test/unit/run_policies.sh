#!/bin/sh
# contrib/bench/policies over a small trace: its figures for LRU and FIFO equal those of awk, and its verdict and its
# refusals have the right status.
set -eu
: "${top_builddir:?}" "${top_srcdir:?}"
policies=$top_builddir/contrib/bench/policies/policies
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0

result() {
  if [ "$1" = 0 ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAIL: $2"
    sed 's/^/   /' "$tmp/out" "$tmp/err" | tail -n 30
  fi
}

# run STATUS ARGUMENT...: 0 if it ends with that status.
run() {
  want=$1 rc=0
  shift
  "$policies" "$@" >"$tmp/out" 2>"$tmp/err" || rc=$?
  [ "$rc" = "$want" ]
}

awk 'BEGIN {
  srand(11)
  next_id = 1
  for (r = 0; r < 150; ++r) {
    ids[r] = "0"
    if (r > 5 && rand() < 0.6)
      ids[r] = ids[int(rand() * r)]
    n = 1 + int(rand() * 6)
    for (i = 0; i < n; ++i)
      ids[r] = ids[r] ", " next_id++
    printf "{\"timestamp\": %d, \"input_length\": 512, \"output_length\": 1, \"hash_ids\": [%s]}\n", r, ids[r]
  }
}' >"$tmp/trace"

# count POOL MOVE: hits in leading runs of a pool that evicts its oldest block; MOVE 1: a use makes a block the
# youngest.
count() {
  awk -v pool="$1" -v move="$2" '{
    gsub(/.*\[|\].*/, "")
    n = split($0, id, ", ")
    run = 1
    for (i = 1; i <= n; ++i) {
      was[i] = id[i] in age
      if (run && was[i]) ++hits; else run = 0
    }
    for (i = n; i >= 1; --i) if (was[i] && move) age[id[i]] = ++now
    for (i = n; i >= 1; --i) {
      if (was[i] || id[i] in age) continue
      if (used == pool) {
        oldest = ""
        for (k in age) if (oldest == "" || age[k] < age[oldest]) oldest = k
        delete age[oldest]
        --used
      }
      age[id[i]] = ++now
      ++used
    }
  } END { print hits + 0 }' "$tmp/trace"
}

status=0
run 0 --tsv --pool 10,30 "$tmp/trace" || status=1
result "$status" "a trace"
cp "$tmp/out" "$tmp/table"
for percent in 10 30; do
  pool=$(awk -F '\t' -v p="$percent" '$2 == p { print $3; exit }' "$tmp/table")
  for policy in "lru 1" "fifo 0"; do
    got=$(awk -F '\t' -v p="$percent" -v name="${policy% *}" '$2 == p && $4 == name { print $7 }' "$tmp/table")
    status=0
    [ "$got" = "$(count "$pool" "${policy#* }")" ] || status=1
    result "$status" "${policy% *} in $pool blocks: $got hits, not $(count "$pool" "${policy#* }")"
  done
done
status=0
awk -F '\t' 'NF != 10 { ++bad } $4 == "kvcl" { ++kvcl } $4 == "belady" { ++bound }
  END { exit bad > 0 || kvcl != 2 || bound != 2 }' "$tmp/table" || status=1
result "$status" "ten columns, kvcl and belady for each pool"

status=0
run 0 --requests 300 --pool 100 --check && grep -q 'kvcl 1.0000 of lru, 1.0000 of the best' "$tmp/out" || status=1
result "$status" "a generated trace, a pool that holds all of it: nobody is better"
status=0
run 0 --papers && grep -q '^s3fifo' "$tmp/out" || status=1
result "$status" "--papers"
status=0
run 0 --help && grep -q -e '--pool' "$tmp/out" || status=1
result "$status" "--help"
status=0
run 2 --pool 0 && run 2 --pool 10, && run 2 --pool 101 && run 2 "$tmp/none" || status=1
result "$status" "bad pools and a trace that is not there are refused"
status=0
run 0 --tsv --pool 10 --only sieve "$tmp/trace" && [ "$(wc -l <"$tmp/out")" = 4 ] || status=1
result "$status" "--only: a head, kvcl, lru, sieve"

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
