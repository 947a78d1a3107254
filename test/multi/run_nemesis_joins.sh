#!/bin/sh
# Processes join a job under attack (contrib/nemesis): in the slots of killed ranks and in free ones, while they or
# members are killed, stopped or cut off. TEST_SEED=N repeats the random plans.
#   gate   one plan of one host
#   night  also one where members activate those that join, one of three hosts, and 10 random ones each over shared
#          memory and TCP
# TEST_TIMEOUT: 1200
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
command -v python3 >/dev/null || { echo "SKIP: no python3 (Debian: python3)"; exit 77; }
nemesis=$top_srcdir/contrib/nemesis
plans=$nemesis/plans
NEMESIS_RANK=$top_builddir/contrib/nemesis/nemesis_rank
export NEMESIS_RANK PYTHONDONTWRITEBYTECODE=1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0 skipped=0
seed=${TEST_SEED:-$(date +%s)}

# attack ARGUMENT...: adds the counts of the last line. A failed run is printed whole. Calls have deadlines of 5 s or
# more, and may end 100 ms after them.
attack() {
  python3 "$nemesis/run" --slack 100 "$@" >"$tmp/out" 2>&1 || cat "$tmp/out"
  grep -E '^(--|ok|FAIL|SKIP|all:)' "$tmp/out" || :
  # shellcheck disable=SC2046
  set -- $(tail -n 1 "$tmp/out" | sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p')
  passed=$((passed + ${1:-0})) failed=$((failed + ${2:-1})) skipped=$((skipped + ${3:-0}))
}

attack --seed "$seed" "$plans/join.json"
if [ "${TEST_RING:-gate}" != gate ]; then
  attack --seed "$seed" "$plans/join_waits.json" "$plans/join_cut.json"
  attack --seed $((seed + 40)) --joins --random 10
  attack --seed $((seed + 50)) --joins --random 10 --path tcp
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
