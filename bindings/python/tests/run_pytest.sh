#!/bin/sh
# The tests of the Python package, by pytest, on what was built here and not installed.
# Arguments go to pytest: run_pytest.sh -k life
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
here=$top_srcdir/bindings/python
ext=$(ls "$top_builddir"/bindings/python/kvcl/.libs/_kvcl*.so 2>/dev/null | head -n 1)
if [ -z "$ext" ] || [ -z "${PYTHON-}" ]; then
  echo "SKIP: the Python bindings were not built: no Python.h or no pytest for ${PYTHON:-python3} (Debian: python3-dev python3-pytest), or --with-python=no"
  exit 77
fi
if [ "${TEST_SANITIZE:-no}" != no ]; then
  echo "SKIP: a sanitized extension module needs a sanitized python"
  exit 77
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/kvcl"
for f in "$here"/kvcl/*.py; do
  ln -s "$f" "$tmp/kvcl/"
done
ln -s "$ext" "$tmp/kvcl/"
PYTHONPATH=$tmp${PYTHONPATH:+:$PYTHONPATH}
LD_LIBRARY_PATH=$top_builddir/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH LD_LIBRARY_PATH PYTHONDONTWRITEBYTECODE
cd "$tmp"
# Not exec: the trap cleans up.
"$PYTHON" -X dev -m pytest -q -p no:cacheprovider --rootdir "$here/tests" "$@" "$here/tests"
