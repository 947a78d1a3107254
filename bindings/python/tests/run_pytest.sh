#!/bin/sh
# The tests of the Python package, by pytest, on what was built here and not installed.
# Arguments go to pytest: run_pytest.sh -k life
# TEST_TIMEOUT: 1800
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
here=$top_srcdir/bindings/python
ext=$(ls "$top_builddir"/bindings/python/kvcl/.libs/_kvcl*.so 2>/dev/null | head -n 1)
if [ -z "$ext" ] || [ -z "${PYTHON-}" ]; then
  echo "SKIP: the Python bindings were not built: no Python.h for ${PYTHON:-python3}" \
    "(Debian: python3-dev), or --with-python=no"
  exit 77
fi
"$PYTHON" -c 'import pytest' 2>/dev/null || { echo "SKIP: no pytest for $PYTHON (Debian: python3-pytest)"; exit 77; }
# A python without sanitizers loads an extension module that has them if their library is loaded before all others.
# Python's own allocations then come from malloc, where each overrun is seen; leaks of python's at its end are not
# reported. The thread sanitizer would see races in all of python.
preload=
case ${TEST_SANITIZE:-no} in
  no) ;;
  *thread*)
    echo "SKIP: the thread sanitizer needs a python that was built with it"
    exit 77
    ;;
  *address*)
    for name in libasan.so libclang_rt.asan-$(uname -m).so libclang_rt.asan.so; do
      file=$(${CC:-cc} -print-file-name=$name)
      [ "$file" = "$name" ] || { preload=$file; break; }
    done
    if [ -z "$preload" ]; then
      echo "SKIP: no shared library of the address sanitizer (clang: -shared-libsan)"
      exit 77
    fi
    PYTHONMALLOC=malloc
    ASAN_OPTIONS=detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}
    export PYTHONMALLOC ASAN_OPTIONS
    ;;
esac
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/kvcl"
ln -s "$here/kvcl/vllm" "$tmp/kvcl/vllm"
for f in "$here"/kvcl/*.py; do
  ln -s "$f" "$tmp/kvcl/"
done
ln -s "$here/kvcl/compat" "$here/kvcl/torch" "$ext" "$tmp/kvcl/"
PYTHONPATH=$tmp${PYTHONPATH:+:$PYTHONPATH}
LD_LIBRARY_PATH=$top_builddir/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH LD_LIBRARY_PATH PYTHONDONTWRITEBYTECODE top_builddir
cd "$tmp"
# Not exec: the trap cleans up. TEST_TRACES: where the traceback of a test that hangs goes (conftest.py).
TEST_TRACES=3 env ${preload:+"LD_PRELOAD=$preload"} "$PYTHON" -X dev -m pytest -q -p no:cacheprovider \
  --rootdir "$here/tests" "$@" "$here/tests" 3>&2
