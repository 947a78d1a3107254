# Sourced by run_vllm.sh here and by bindings/nixl/tests/run_nixl.sh, with $tests, what a skip names: programs of an
# engine, run by the Python of TEST_ENGINES in a folder of their own, $tmp, with the libraries of this build; and the
# counts of what they print. TEST_ENGINES: a virtual environment of bindings/python/engines.lock. TEST_BASE: a folder in
# which scripts of one run share the model and what vLLM alone generates; whichever is first writes it.
# shellcheck shell=sh
: "${top_srcdir:?}" "${top_builddir:?}" "${tests:?}"
engines=$top_srcdir/bindings/python/tests/engines
skip() {
  echo "SKIP: $tests did not run: $*"
  exit 77
}
[ -n "${TEST_ENGINES-}" ] || skip "TEST_ENGINES names no virtual environment with the engines (make check-engines" \
  "makes one)"
python=$TEST_ENGINES/bin/python
[ -x "$python" ] || skip "TEST_ENGINES=$TEST_ENGINES has no bin/python"
case ${TEST_SANITIZE:-no} in
  no) ;;
  *) skip "not under a sanitizer" ;;
esac
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
mkdir -m 700 "$tmp/home"
LD_LIBRARY_PATH=$top_builddir/.libs PYTHONDONTWRITEBYTECODE=1 HOME=$tmp/home
DO_NOT_TRACK=1 VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1
export LD_LIBRARY_PATH PYTHONDONTWRITEBYTECODE HOME DO_NOT_TRACK VLLM_NO_USAGE_STATS HF_HUB_OFFLINE
unset CC CXX # the engines compile, and take no compiler with a launcher ("ccache g++")
unset KVCL_RENDEZVOUS KVCL_SIZE KVCL_RANK KVCL_BOOT KVCL_SECRET_FILE KVCL_NET KVCL_PATH
cd "$tmp"
passed=0 failed=0

# has MODULE WHAT
has() {
  [ ! -e "${TEST_BASE-}/base.json" ] || return 0
  "$python" -c "import $1" >/dev/null 2>"$tmp/err" || skip "$python has no $2: $(tail -n 1 "$tmp/err")"
}

# The tiny model, and what vLLM generates from it without KVCL (engine.expected).
base() {
  if [ -e "${TEST_BASE-}/base.json" ]; then
    cp -r "$TEST_BASE"/. .
    return
  fi
  { "$python" "$engines/model.py" model && "$python" "$engines/base.py"; } >base.log 2>&1 || {
    tail -n 40 base.log >&2
    return 1
  }
  [ -z "${TEST_BASE-}" ] || { cp -r model "$TEST_BASE/" && cp base.json "$TEST_BASE/"; }
}

# one NAME COMMAND...: adds what the command prints, a line "ok ..." or "FAIL ..." a check, to the counts. Lines "note
# ..." are printed in any case.
one() {
  name=$1 rc=0
  shift
  "$@" >"$tmp/out" 2>"$tmp/err" || rc=$?
  passed=$((passed + $(grep -c '^ok ' "$tmp/out" || :)))
  bad=$(grep -c '^FAIL ' "$tmp/out" || :)
  if [ $rc != 0 ]; then
    [ "$bad" -gt 0 ] || bad=1
    echo "FAIL: $name (status $rc)"
    grep '^TEST_SEED=' "$tmp/err" || :
    tail -n 30 "$tmp/err"
    grep -vE '^(ok|note) ' "$tmp/out" || :
  fi
  sed -n "s/^note /$name: /p" "$tmp/out"
  failed=$((failed + bad))
}

# The last line; its status is that of the test.
counted() {
  echo "$passed passed, $failed failed, 0 skipped"
  [ $failed = 0 ] && [ $passed != 0 ]
}
