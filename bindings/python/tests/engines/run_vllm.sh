#!/bin/sh
# vLLM with the connector (kvcl.vllm): a whole engine on the CPU, a tiny model, and a kvcl_serve. What it generates is
# compared with what it generates without the connector.
#   TEST_ENGINES=DIR   a virtual environment of engines.lock
# Arguments are the tests to run: run_vllm.sh store handover. Both rings run the same, but for
#   TEST_REQUESTS      of the test "random": 60, at night 400, which take 3 to 4 minutes on two cores
# TEST_TIMEOUT: 3600
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
here=$top_srcdir/bindings/python
tests="vLLM's tests"
ext=$(ls "$top_builddir"/bindings/python/kvcl/.libs/_kvcl*.so 2>/dev/null | head -n 1)
[ -n "$ext" ] || { echo "SKIP: $tests did not run: the Python bindings were not built"; exit 77; }
. "${top_srcdir:?}/bindings/python/tests/engines/session.sh"
mkdir "$tmp/kvcl"
for f in "$here"/kvcl/*.py "$here/kvcl/torch" "$here/kvcl/vllm" "$ext"; do
  ln -s "$f" "$tmp/kvcl/"
done
TEST_KVCL_SERVE=$top_builddir/src/tools/kvcl_serve PYTHONPATH=$tmp KVCL_SECRET_FILE=$tmp/secret
export TEST_KVCL_SERVE PYTHONPATH KVCL_SECRET_FILE
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$KVCL_SECRET_FILE")
"$python" -c 'import kvcl' || skip "$python cannot load the bindings, which were built for ${PYTHON:-another Python}"
has vllm vLLM
base || exit 1
[ "${TEST_RING:-gate}" = gate ] || TEST_REQUESTS=${TEST_REQUESTS:-400}
export TEST_REQUESTS="${TEST_REQUESTS:-60}"
[ $# -gt 0 ] || set -- calls store killed ranks layers hybrid handover ahead preempt tier tp random
for each; do
  one "$each" timeout -k 10 3600 "$python" "$engines/vllm_$each.py"
done
counted
