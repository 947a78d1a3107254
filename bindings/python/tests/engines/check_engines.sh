#!/bin/sh
# All tests with engines, as "make check-engines" runs them: check_engines.sh [smoke]. The virtual environments are
# those that TEST_ENGINES and TEST_SGLANG name, or are made in build/engines of the source tree (environments).
# The tests of the package that need torch run there, which Debian's Python need not have.
# It ends with the logs' ends of the parts that failed, and a table of all parts: result, time, counts, reason.
# smoke: the calls that LMCache and SGLang make, LMCache's checker, and one round trip of vLLM; it downloads nothing.
#   TEST_ENGINES_SECONDS=N   for all parts (default 5400; 2,739 were measured on two cores at load 14 to 26; of the
#                            smoke 360). A part that is not over by then fails, and those after it are skipped
set -u
: "${top_srcdir:?}" "${top_builddir:?}"
here=$top_srcdir/bindings/python/tests/engines
smoke=
[ "${1-}" != smoke ] || smoke=1
dir=${TEST_ENGINES_DIR:-$top_srcdir/build/engines}
tmp=$(mktemp -d)
log=$tmp/log
child=
trap 'rm -rf "$tmp"' EXIT
trap '[ -z "$child" ] || kill $child; exit 1' HUP INT TERM
exec 3>&1 # what is installed meanwhile
if ! found=$("$here/environments" ${smoke:+--here} "$dir" 2>"$log"); then
  echo "SKIP: the tests with engines did not run: $(tail -n 1 "$log")"
  echo "0 passed, 0 failed, 1 skipped"
  exit 77
fi
exec 3>&-
[ ! -s "$log" ] || echo "SKIP: SGLang: $(tail -n 1 "$log")"
eval "$(printf '%s\n' "$found" | sed "s/'/'\\\\''/g; s/=\(.*\)/='\1'; export TEST_ENGINES TEST_SGLANG/")"

passed=0 failed=0 skipped=0
begun=$(date +%s)
limit=5400
[ -z "$smoke" ] || limit=360
limit=${TEST_ENGINES_SECONDS:-$limit}
mkdir "$tmp/base"
export TEST_BASE="$tmp/base"
: >"$tmp/rows"
: >"$tmp/ends"

# row PART RESULT SECONDS PASSED FAILED SKIPPED REASON: a line of the table, which is printed at once as well
row() {
  printf '%-18s %-6s %5s s %6s %6s %7s  %.200s\n' "$@" | tee -a "$tmp/rows" | sed 's/ *$//; s/^/== /'
}

# why LOG STATUS LIMIT: the reason of a part that failed or was skipped
why() {
  if [ "$2" = 124 ] || [ "$2" = 137 ]; then
    echo "the time was up after $3 s (TEST_ENGINES_SECONDS)"
  else
    { grep -E '^FAIL[: ]' "$1" || grep '^SKIP: ' "$1" || echo "status $2"; } | sed 's/^\(FAIL\|SKIP\):* //' | head -n 1
  fi
}

# part NAME SCRIPT ARGUMENT...: one row, with the counts of the script's last line.
part() {
  name=$1
  shift
  start=$(date +%s)
  left=$((begun + limit - start))
  if [ $left -le 0 ]; then
    echo "SKIP: $name: the time was up (TEST_ENGINES_SECONDS=$limit)"
    skipped=$((skipped + 1))
    row "$name" SKIP 0 0 0 1 "the time was up"
    return
  fi
  timeout -k 30 $left "$@" >"$log" 2>&1 &
  child=$!
  wait $child
  rc=$?
  child=
  cat "$log"
  # shellcheck disable=SC2046
  set -- $(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1 | tr -d a-z,)
  p=${1:-0} f=${2:-0} s=${3:-0} result=PASS reason=
  case $rc in
    0) ;;
    77) result=SKIP; [ $# = 3 ] || s=1 ;;
    *) result=FAIL; [ "$f" != 0 ] || f=1 ;;
  esac
  [ $result = PASS ] && [ "$s" = 0 ] || reason=$(why "$log" $rc $left)
  [ $result != FAIL ] || { echo "---- the end of $name"; tail -n 60 "$log"; echo "----"; } >>"$tmp/ends"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  row "$name" $result $(($(date +%s) - start)) "$p" "$f" "$s" "$reason"
}

if [ -n "$smoke" ]; then
  part engines:calls "$here/run_engines.sh" calls
  part engines:check "$here/run_engines.sh" check
  part vllm:store "$here/run_vllm.sh" store
else
  : "${TEST_REQUESTS:=400}"
  export TEST_REQUESTS
  part package env PYTHON="$TEST_ENGINES/bin/python" "$top_srcdir/bindings/python/tests/run_pytest.sh" \
    -k 'torch or hybrid or engines or ep_step'
  for each in calls check vllm lost pages sglang hicache disagg apart mooncake; do
    part "engines:$each" "$here/run_engines.sh" $each
  done
  for each in calls store killed ranks layers hybrid handover ahead preempt tier tp random; do
    part "vllm:$each" "$here/run_vllm.sh" $each
  done
  for each in vllm disaggregated lmcache sglang; do
    part "examples:$each" "$here/run_examples.sh" $each
  done
  for each in shm tcp vllm; do
    part "nixl:$each" "$top_srcdir/bindings/nixl/tests/run_nixl.sh" $each
  done
fi
cat "$tmp/ends"
printf '%-18s %-6s %5s   %6s %6s %7s  %s\n' part result time passed failed skipped reason
sed 's/ *$//' "$tmp/rows"
echo "all parts: $(($(date +%s) - begun)) s, load $(cut -d' ' -f1 /proc/loadavg) at the end"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] || exit 1
[ $passed != 0 ] || exit 77
