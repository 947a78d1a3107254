#!/bin/sh
# The examples with serving engines (contrib/examples), as a user starts them: run_examples.sh [vllm] [disaggregated]
# [lmcache] [sglang], by default all. Of each, what it prints: the second process has the prompt from the store, and
# generates what the first one did; a decode engine has read the prompt's blocks.
#   TEST_ENGINES=DIR, TEST_SGLANG=DIR, top_srcdir, top_builddir: as for run_engines.sh
set -u
: "${top_srcdir:?}" "${top_builddir:?}"
source=$(cd "$top_srcdir" && pwd) build=$(cd "$top_builddir" && pwd)
passed=0 failed=0 skipped=0
skip() { echo "SKIP: $*"; skipped=$((skipped + 1)); }
ok() { echo "ok   $*"; passed=$((passed + 1)); }
no() { echo "FAIL $*"; failed=$((failed + 1)); }

ext=$(ls "$build"/bindings/python/kvcl/.libs/_kvcl*.so 2>/dev/null | head -n 1)
if [ -z "$ext" ] || [ -z "${TEST_ENGINES-}" ] || [ ! -e "$build/src/tools/kvcl_serve" ]; then
  skip "the examples did not run: they need the Python bindings, kvcl_serve, and an environment in TEST_ENGINES"
  echo "0 passed, 0 failed, 1 skipped"
  exit 77
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/kvcl"
for f in "$source"/bindings/python/kvcl/*.py "$source/bindings/python/kvcl/vllm" "$ext"; do
  ln -s "$f" "$tmp/kvcl/"
done
export PATH="$build/src/tools:$PATH" PYTHONPATH="$tmp" LD_LIBRARY_PATH="$build/.libs" PYTHONDONTWRITEBYTECODE=1
export VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
unset CC CXX KVCL_RENDEZVOUS KVCL_SIZE KVCL_RANK KVCL_BOOT KVCL_SECRET_FILE KVCL_PATH
E=$TEST_ENGINES S=${TEST_SGLANG:-/nonexistent}
cd "$tmp" || exit 1

# has PART PYTHON MODULE
has() {
  [ -x "$2" ] || { skip "$1: there is no $2"; return 1; }
  "$2" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$3') is None)" ||
    { skip "$1: $2 has no $3"; return 1; }
}

# example NAME COMMAND...: its lines are in $tmp/out
example() {
  name=$1
  shift
  timeout 1500 "$@" >"$tmp/out" 2>"$tmp/err" && return
  rc=$?
  tail -n 20 "$tmp/out" "$tmp/err"
  no "contrib/examples/$name: status $rc"
  return 1
}

# reused NAME TOKENS: the first process had nothing from the store, the second one so many of 1,500 tokens
reused() {
  grep ' process: ' "$tmp/out"
  first=$(sed -n 's/^first process: 0 of 1500 tokens .*, generated //p' "$tmp/out")
  second=$(sed -n "s/^second process: $2 of 1500 tokens .*, generated //p" "$tmp/out")
  if [ -n "$first" ] && [ "$first" = "$second" ]; then
    ok "contrib/examples/$1"
  else
    tail -n 20 "$tmp/out" "$tmp/err"
    no "contrib/examples/$1: the second process should have $2 tokens from the store, and generate the same"
  fi
}

part_vllm() {
  has vllm "$E/bin/python" vllm || return
  example vllm env PYTHON="$E/bin/python" "$source/contrib/examples/vllm/run" && reused vllm 1408
}

part_lmcache() {
  has lmcache "$E/bin/python" lmcache || return
  example lmcache env PYTHON="$E/bin/python" "$source/contrib/examples/lmcache/run" && reused lmcache 1408
}

part_sglang() {
  has sglang "$S/bin/python" sglang || return
  example sglang env PYTHON="$S/bin/python" PYTHONPATH="$tmp:$(echo "$E"/lib/python3*/site-packages)" \
    "$source/contrib/examples/sglang/run" && reused sglang 1472
}

part_disaggregated() {
  has disaggregated "$E/bin/python" vllm || return
  port=$("$E/bin/python" -c 'import os; print(20000 + os.getpid() % 10000)')
  example vllm/disaggregated env PYTHON="$E/bin/python" PORT="$port" BY_LAYER=yes \
    "$source/contrib/examples/vllm/disaggregated/run" || return
  cat "$tmp/out"
  if [ "$(grep -c '^\(first\|second\) request: first token after ' "$tmp/out")" = 2 ] &&
    grep -q '^the decode engine has read [1-9][0-9]* blocks from the prefill engine, 0 failed$' "$tmp/out"; then
    ok "contrib/examples/vllm/disaggregated"
  else
    no "contrib/examples/vllm/disaggregated: two requests should be answered with blocks of the prefill engine"
  fi
}

[ $# -gt 0 ] || set -- vllm disaggregated lmcache sglang
for part; do
  case $part in
    vllm | disaggregated | lmcache | sglang) part_"$part" ;;
    *) no "there is no part $part" ;;
  esac
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] || exit 1
[ $passed != 0 ] || exit 77
