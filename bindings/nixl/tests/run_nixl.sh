#!/bin/sh
# The NIXL plugin in NIXL itself: agents of its Python package (agents.py), over shared memory and over TCP; and vLLM's
# NixlConnector, unmodified, with prefill and decode in two engines (vllm_nixl.py).
#   TEST_ENGINES=DIR   a virtual environment of bindings/python/engines.lock
# The gate's form takes the agents over shared memory alone. Arguments are the tests to run: run_nixl.sh shm tcp vllm
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
here=$top_srcdir/bindings/nixl/tests
engines=$top_srcdir/bindings/python/tests/engines
skip() {
  echo "SKIP: the NIXL plugin's tests did not run: $*"
  exit 77
}
plugin=$top_builddir/bindings/nixl/libplugin_KVCL.so
[ -e "$plugin" ] || skip "it was not built: configure --with-nixl=DIR, DIR a checkout of NIXL (tag 1.4.0)"
[ -n "${TEST_ENGINES-}" ] || skip "TEST_ENGINES names no virtual environment with NIXL. To make one (3.5 GB):" \
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
mkdir "$tmp/plugins"
mkdir -m 700 "$tmp/home"
ln -s "$plugin" "$tmp/plugins/"
NIXL_PLUGIN_DIR=$tmp/plugins LD_LIBRARY_PATH=$top_builddir/.libs PYTHONDONTWRITEBYTECODE=1 HOME=$tmp/home
PYTHONPATH=$engines DO_NOT_TRACK=1 VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1
export NIXL_PLUGIN_DIR LD_LIBRARY_PATH PYTHONDONTWRITEBYTECODE HOME PYTHONPATH DO_NOT_TRACK VLLM_NO_USAGE_STATS \
  HF_HUB_OFFLINE
unset KVCL_RENDEZVOUS KVCL_SIZE KVCL_RANK KVCL_BOOT KVCL_SECRET_FILE KVCL_NET KVCL_PATH
cd "$tmp"
"$python" -c 'import nixl._api' >/dev/null 2>"$tmp/err" || skip "$python has no NIXL: $(tail -n 1 "$tmp/err")"
if [ $# = 0 ]; then
  set -- shm
  [ "${TEST_RING:-gate}" = gate ] || set -- shm tcp vllm
fi
passed=0 failed=0
for name; do
  rc=0
  case $name in
    shm) "$python" "$here/agents.py" >"$tmp/out" 2>"$tmp/err" || rc=$? ;;
    tcp) KVCL_PATH=tcp KVCL_NET=lo "$python" "$here/agents.py" >"$tmp/out" 2>"$tmp/err" || rc=$? ;;
    vllm)
      "$python" "$engines/model.py" model >/dev/null 2>"$tmp/err" || rc=$?
      [ $rc != 0 ] || "$python" "$engines/base.py" >"$tmp/out" 2>"$tmp/err" || rc=$?
      [ $rc != 0 ] || timeout -k 10 3600 "$python" "$here/vllm_nixl.py" >"$tmp/out" 2>"$tmp/err" || rc=$? ;;
    *) echo "no such test: $name"; exit 1 ;;
  esac
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
