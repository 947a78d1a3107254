# Sourced by the tests of contrib/nemesis. Sets nemesis, plans, tmp and seed; attack adds to passed, failed and skipped.
# TEST_SEED=N repeats random plans.
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
# more, longer than any stop or repair takes, and may end 100 ms after them.
attack() {
  python3 "$nemesis/run" --slack 100 "$@" >"$tmp/out" 2>&1 || cat "$tmp/out"
  grep -E '^(--|ok|FAIL|SKIP|all:)' "$tmp/out" || :
  # shellcheck disable=SC2046
  set -- $(tail -n 1 "$tmp/out" | sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p')
  passed=$((passed + ${1:-0})) failed=$((failed + ${2:-1})) skipped=$((skipped + ${3:-0}))
}
