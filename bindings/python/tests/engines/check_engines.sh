#!/bin/sh
# All tests with engines, as "make check-engines" runs them: check_engines.sh [smoke]. The virtual environments are
# those that TEST_ENGINES and TEST_SGLANG name, or are made in build/engines of the source tree (environments).
# The tests of the package run there once more, with torch and NumPy, which Debian's Python need not have.
# smoke: the calls that LMCache and SGLang make, LMCache's checker, and one round trip of vLLM; it downloads nothing.
set -u
: "${top_srcdir:?}" "${top_builddir:?}"
here=$top_srcdir/bindings/python/tests/engines
smoke=
[ "${1-}" != smoke ] || smoke=1
dir=${TEST_ENGINES_DIR:-$top_srcdir/build/engines}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'exit 1' HUP INT TERM
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
# run SCRIPT ARGUMENT...: adds the counts of its last line.
run() {
  "$@" >"$log" 2>&1
  rc=$?
  cat "$log"
  # shellcheck disable=SC2046
  set -- $(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1 | tr -d a-z,) 
  passed=$((passed + ${1:-0})) failed=$((failed + ${2:-0})) skipped=$((skipped + ${3:-0}))
  case $rc,${2:-0} in
    0,*) ;;
    77,*) [ -n "${3-}" ] || skipped=$((skipped + 1)) ;;
    *,0) failed=$((failed + 1)) ;;
  esac
}

if [ -n "$smoke" ]; then
  run "$here/run_engines.sh" calls check
  run "$here/run_vllm.sh" store
else
  run env PYTHON="$TEST_ENGINES/bin/python" "$top_srcdir/bindings/python/tests/run_pytest.sh"
  run "$here/run_engines.sh"
  run "$here/run_vllm.sh"
  run "$top_srcdir/bindings/nixl/tests/run_nixl.sh" shm tcp vllm
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] || exit 1
[ $passed != 0 ] || exit 77
