#!/bin/sh
# The NIXL plugin in NIXL itself: agents of its Python package (agents.py), over shared memory and over TCP; and vLLM's
# NixlConnector, unmodified, with prefill and decode in two engines (vllm_nixl.py).
#   TEST_ENGINES=DIR   a virtual environment of bindings/python/engines.lock
# The gate's form takes the agents over shared memory alone. Arguments are the tests to run: run_nixl.sh shm tcp vllm
# TEST_TIMEOUT: 3600
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
here=$top_srcdir/bindings/nixl/tests
tests="the NIXL plugin's tests"
plugin=$top_builddir/bindings/nixl/libplugin_KVCL.so
if [ ! -e "$plugin" ]; then
  echo "SKIP: $tests did not run: it was not built: configure --with-nixl=\$(contrib/ci/nixl-headers)"
  exit 77
fi
. "${top_srcdir:?}/bindings/python/tests/engines/session.sh"
mkdir "$tmp/plugins"
ln -s "$plugin" "$tmp/plugins/"
NIXL_PLUGIN_DIR=$tmp/plugins PYTHONPATH=$engines
export NIXL_PLUGIN_DIR PYTHONPATH
has nixl._api NIXL

two_engines() {
  base && timeout -k 10 3600 "$python" "$here/vllm_nixl.py"
}

if [ $# = 0 ]; then
  set -- shm
  [ "${TEST_RING:-gate}" = gate ] || set -- shm tcp vllm
fi
for each; do
  case $each in
    shm) one shm "$python" "$here/agents.py" ;;
    tcp) one tcp env KVCL_PATH=tcp KVCL_NET=lo "$python" "$here/agents.py" ;;
    vllm) one vllm two_engines ;;
    *) echo "no such test: $each"; exit 1 ;;
  esac
done
counted
