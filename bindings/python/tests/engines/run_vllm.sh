#!/bin/sh
# vLLM with the connector (kvcl.vllm): a whole engine on the CPU, a tiny model, and a kvcl_serve. What it generates is
# compared with what it generates without the connector.
#   TEST_ENGINES=DIR   a virtual environment of engines.lock
# Both rings run the same; arguments are the tests to run: run_vllm.sh store handover
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
here=$top_srcdir/bindings/python
skip() {
  echo "SKIP: vLLM's tests did not run: $*"
  exit 77
}
ext=$(ls "$top_builddir"/bindings/python/kvcl/.libs/_kvcl*.so 2>/dev/null | head -n 1)
[ -n "$ext" ] || skip "the Python bindings were not built"
[ -n "${TEST_ENGINES-}" ] || skip "TEST_ENGINES names no virtual environment with vLLM. To make one (3.5 GB):" \
  "python3 -m venv DIR && DIR/bin/pip install --no-cache-dir --no-deps -r bindings/python/engines.lock"
python=$TEST_ENGINES/bin/python
[ -x "$python" ] || skip "TEST_ENGINES=$TEST_ENGINES has no bin/python"
case ${TEST_SANITIZE:-no} in
  no) ;;
  *) skip "not under a sanitizer" ;;
esac
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
mkdir "$tmp/kvcl"
mkdir -m 700 "$tmp/home"
for f in "$here"/kvcl/*.py "$here/kvcl/vllm" "$ext"; do
  ln -s "$f" "$tmp/kvcl/"
done
TEST_KVCL_SERVE=$top_builddir/src/tools/kvcl_serve
PYTHONPATH=$tmp LD_LIBRARY_PATH=$top_builddir/.libs PYTHONDONTWRITEBYTECODE=1 HOME=$tmp/home
KVCL_SECRET_FILE=$tmp/secret
DO_NOT_TRACK=1 VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1
export TEST_KVCL_SERVE PYTHONPATH LD_LIBRARY_PATH PYTHONDONTWRITEBYTECODE HOME KVCL_SECRET_FILE DO_NOT_TRACK \
  VLLM_NO_USAGE_STATS HF_HUB_OFFLINE
unset KVCL_RENDEZVOUS KVCL_SIZE KVCL_RANK KVCL_BOOT
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$KVCL_SECRET_FILE")
cd "$tmp"
"$python" -c 'import kvcl' || skip "$python cannot load the bindings, which were built for ${PYTHON:-another Python}"
"$python" -c 'import vllm' 2>"$tmp/err" || skip "$python has no vLLM: $(tail -n 1 "$tmp/err")"
"$python" "$here/tests/engines/model.py" model >/dev/null 2>"$tmp/err" || { cat "$tmp/err"; exit 1; }
"$python" "$here/tests/engines/base.py" >"$tmp/out" 2>&1 || { cat "$tmp/out"; exit 1; }
[ $# -gt 0 ] || set -- calls store layers handover tier tp
passed=0 failed=0
for name; do
  rc=0
  timeout -k 10 3600 "$python" "$here/tests/engines/vllm_$name.py" >"$tmp/out" 2>"$tmp/err" || rc=$?
  passed=$((passed + $(grep -c '^ok ' "$tmp/out" || :)))
  bad=$(grep -c '^FAIL ' "$tmp/out" || :)
  if [ $rc != 0 ]; then
    [ "$bad" -gt 0 ] || bad=1
    echo "FAIL: $name (status $rc)"
    grep -v '^ok ' "$tmp/out" || :
    tail -n 30 "$tmp/err"
  fi
  failed=$((failed + bad))
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
