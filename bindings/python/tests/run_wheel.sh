#!/bin/sh
# A package in a fresh virtual environment, without PYTHONPATH and LD_LIBRARY_PATH: import, the version, the tools, two
# ranks, types. It is a wheel of this build's files, or TEST_WHEELS names finished ones, and TEST_SDIST a source
# package, which pip compiles against the machine's libraries, for the first interpreter. contrib/check wheel does both.
# TEST_PYTHONS: the interpreters, default $PYTHON alone. The first and the last try all, those between only what differs
# from one Python to another.
# TEST_TIMEOUT: 1800
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
here=$top_srcdir/bindings/python
passed=0 failed=0 skipped=0

skip() {
  echo "SKIP: $*"
  exit 77
}
note() {
  echo "SKIP: $*"
  skipped=$((skipped + 1))
}
# is WHAT COMMAND...
is() {
  what=$1
  shift
  if "$@" >"$tmp/out" 2>&1; then
    passed=$((passed + 1))
    echo "ok: $what"
  else
    failed=$((failed + 1))
    echo "FAIL: $what"
    sed 's/^/   /' "$tmp/out"
  fi
}

[ -n "${PYTHON-}" ] || skip "this build has no Python"
[ -n "${TEST_WHEELS-}${TEST_SDIST-}" ] || [ -e "$top_builddir/bindings/python/kvcl/_kvcl.la" ] ||
  skip "the Python bindings were not built: no Python.h (Debian: python3-dev), or --with-python=no"
preload=
case ${TEST_SANITIZE:-no} in
  no) ;;
  *thread*) skip "the thread sanitizer needs a python that was built with it" ;;
  *address*) # as run_pytest.sh does
    for name in libasan.so libclang_rt.asan-$(uname -m).so libclang_rt.asan.so; do
      file=$(${CC:-cc} -print-file-name=$name)
      [ "$file" = "$name" ] || { preload=$file; break; }
    done
    [ -n "$preload" ] || skip "no shared library of the address sanitizer (clang: -shared-libsan)"
    ASAN_OPTIONS=detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}
    export ASAN_OPTIONS
    ;;
esac

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
unset PYTHONPATH LD_LIBRARY_PATH PYTHONHOME KVCL_BOOT KVCL_RENDEZVOUS PMIX_NAMESPACE PMIX_RANK || :
HOME=$tmp/home PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1
export HOME PYTHONDONTWRITEBYTECODE PIP_DISABLE_PIP_VERSION_CHECK
mkdir -m 700 "$HOME"
cd "$tmp"

# in_env COMMAND...: with the sanitizer's library before all others
in_env() {
  env ${preload:+"LD_PRELOAD=$preload" PYTHONMALLOC=malloc} "$@"
}

# A fresh environment of this Python.
make_env() {
  rm -rf "$env"
  "$1" -m venv "$env" >"$tmp/out" 2>&1
}

# The wheel of this build's files.
pack() {
  command -v patchelf >/dev/null || skip "no patchelf (Debian: patchelf)"
  "$env/bin/pip" wheel -q --no-index --no-deps --config-settings build="$top_builddir" -w "$tmp/made" "$here" \
    >"$tmp/out" 2>&1 || { cat "$tmp/out"; echo "FAIL: the wheel was not packed"; exit 1; }
  ls "$tmp"/made/*.whl
}

two_ranks() {
  port=$("$1/bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  for rank in 0 1; do
    KVCL_RENDEZVOUS=tcp://127.0.0.1:$port KVCL_SIZE=2 KVCL_RANK=$rank in_env "$1/bin/python" "$here/tests/caller.py" \
      >"$tmp/rank$rank" 2>&1 &
  done
  wait
  cat "$tmp/rank0" "$tmp/rank1"
  [ "$(cat "$tmp/rank0" "$tmp/rank1" | grep -c ': right$')" = 2 ]
}

under_mpirun() {
  in_env mpirun --oversubscribe -n 2 "$1/bin/python" "$here/tests/caller.py" >"$tmp/ranks" 2>&1 || :
  cat "$tmp/ranks"
  [ "$(grep -c ': right$' "$tmp/ranks")" = 2 ]
}

# What an import loads beside Python and the C library: all of it is in the environment, but for a UCX of the system.
# PMIx, CUDA and NCCL are not loaded at all.
loads_only_its_own() {
  in_env "$1/bin/python" - "$1" >"$tmp/loaded" <<'PY' || return
import asyncio, hashlib, sys
try:
    import ssl
except ImportError:
    pass
def loaded():
    with open("/proc/self/maps") as maps:
        return {line.split(maxsplit=5)[5].strip() for line in maps if ".so" in line}
before = loaded()  # Python's own libcrypto among them
import kvcl
kvcl.topology()
for path in sorted(loaded() - before):
    print("inside" if path.startswith(sys.argv[1]) else "outside", path)
PY
  cat "$tmp/loaded"
  ! grep -E 'lib(pmix|cuda|nccl)' "$tmp/loaded" || return
  case $2 in
    repaired) ! grep -E '^outside .*/lib(hwloc|crypto|uring|microhttpd|kvcl)' "$tmp/loaded" ;;
  esac
}

# every_module: the whole package is installed, with the connectors of the engines.
every_module() {
  (cd "$here" && find kvcl -name '*.py' -o -name '*.pyi' -o -name py.typed) | LC_ALL=C sort >"$tmp/modules"
  (cd "$env"/lib/python3*/site-packages && find kvcl -type f) | LC_ALL=C sort |
    LC_ALL=C comm -23 "$tmp/modules" - >"$tmp/absent"
  cat "$tmp/absent"
  [ -s "$tmp/modules" ] && [ ! -s "$tmp/absent" ]
}

# try PACKAGE PYTHON: a wheel or a source package, in a fresh environment; with short=1 without the tools and the texts
try() {
  package=$1 kind=plain
  version=$(basename "$package" .tar.gz | cut -d- -f2)
  name="${package##*/}, $("$2" -c 'import sys; print("Python %d.%d" % sys.version_info[:2])')"
  { [ -n "$fresh" ] || make_env "$2"; } || { note "$name: no virtual environment (Debian: python3-venv)"; return; }
  fresh=
  case $package in
    *.whl)
      if "$2" -m zipfile -l "$package" | grep -q '^kvcl\.libs/'; then
        kind=repaired
      fi
      if metadata "$package" "$2" | grep -q '^Requires-Dist: libucx' && ! timeout -k 10 300 \
        "$env/bin/pip" download -q --timeout 20 --retries 1 -d "$tmp/found" "$package" >"$tmp/out" 2>&1; then
        note "$name: libucx is not to be had from PyPI"
        return
      fi
      ;;
    *) is_source_package "$package" "$2" ;;
  esac
  is "$name: is installed" "$env/bin/pip" install -q --no-compile --no-index --find-links "$tmp/found" "$package"
  is "$name: its parts fit together" "$env/bin/pip" check
  # shellcheck disable=SC2016
  is "$name: import, and the version" in_env "$env/bin/python" -c '
import importlib.metadata, kvcl
assert kvcl.__version__ == importlib.metadata.version("kvcl"), kvcl.__version__
print(kvcl.build())'
  is "$name: every module" every_module
  is "$name: what needs no engine" in_env "$env/bin/python" -c '
import kvcl.compat.mooncake, kvcl.lmcache, kvcl.sglang, kvcl.vllm'
  is "$name: what is loaded" loads_only_its_own "$env" $kind
  is "$name: two ranks by rendezvous" two_ranks "$env"
  [ -n "${short-}" ] || try_tools
}

# The rest of try: what is the same with every Python.
try_tools() {
  for tool in info perf replay serve sim top; do
    is "$name: kvcl_$tool" eval "in_env '$env/bin/kvcl_$tool' --version | grep -F '$version'"
  done
  is "$name: the tool finds its library" in_env "$env/bin/kvcl_info" --topology
  is "$name: kvcl_sim finds a model" in_env "$env/bin/kvcl_sim" --requests 10
  # shellcheck disable=SC2016
  is "$name: kvcl.sched finds a model" in_env "$env/bin/python" -c '
from kvcl import sched
print(sched.model("llama3-70b-8xa800"))'
  is "$name: man pages" [ -e "$env/share/man/man1/kvcl_info.1" ]
  is "$name: pydoc" eval "in_env '$env/bin/python' -m pydoc kvcl | grep -q 'hit = store.match(keys)'"
  if [ "${TEST_PMIX-1}" != 0 ] && command -v mpirun >/dev/null; then
    is "$name: two ranks by PMIx" under_mpirun "$env"
  fi
  if ! command -v mypy >/dev/null; then
    note "$name: no mypy (Debian: mypy)"
  elif ! mypy --cache-dir "$tmp/mypy" --python-executable "$env/bin/python" -c pass >"$tmp/out" 2>&1; then
    note "$name: $(mypy --version) reads no packages of this Python: $(tail -n 1 "$tmp/out")"
  else
    is "$name: a typed program" mypy --strict --cache-dir "$tmp/mypy" --python-executable "$env/bin/python" \
      "$here/tests/caller.py"
  fi
}

# What the tools of Python ask of a source package (PEP 517, 625, 643), before it is installed.
is_source_package() {
  top=kvcl-$version
  mkdir "$tmp/source" "$tmp/again"
  tar -xf "$1" -C "$tmp/source"
  (cd "$tmp/source" && find "$top" ! -type d | LC_ALL=C sort) >"$tmp/packed"
  is "$name: one folder" [ "$(ls "$tmp/source")" = "$top" ]
  is "$name: what pip needs" has_what_pip_needs "$tmp/source/$top"
  is "$name: a missing library is named" missing_is_named "$1"
  is "$name: the backend packs the same" packs_again "$2"
}

has_what_pip_needs() {
  cat "$1/pyproject.toml" && grep -Fx "Version: $version" "$1/PKG-INFO" &&
    grep -Fx 'Dynamic: Requires-Dist' "$1/PKG-INFO"
}

# pip must fail, and say which library configure looked for.
missing_is_named() {
  ! "$env/bin/pip" install --no-index --config-settings configure=--with-ucx=/nonexistent "$1" >"$tmp/refused" 2>&1 ||
    return
  cat "$tmp/refused"
  grep -q 'ucx was asked for' "$tmp/refused" && grep -q 'contrib/ci/deps check names the packages' "$tmp/refused"
}

packs_again() {
  (cd "$tmp/source/$top" && PYTHONPATH=bindings/python/wheel "$1" -c '
import sys, kvcl_wheel
kvcl_wheel.build_sdist(sys.argv[1])' "$tmp/again") || return
  tar -tf "$tmp/again/$top.tar.gz" | grep -v '/$' | LC_ALL=C sort | diff "$tmp/packed" -
}

# metadata WHEEL PYTHON
metadata() {
  "$2" -c 'import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
print(next(wheel.read(name).decode() for name in wheel.namelist() if name.endswith(".dist-info/METADATA")))' "$1"
}

mkdir "$tmp/found"
wheels=${TEST_WHEELS-} env=$tmp/env fresh=
if [ -z "$wheels${TEST_SDIST-}" ]; then
  make_env "$PYTHON" || skip "$PYTHON makes no virtual environment (Debian: python3-venv)"
  fresh=1
  wheels=$(pack) || { echo "$wheels"; case $wheels in SKIP*) exit 77 ;; *) exit 1 ;; esac; }
fi
for each in $wheels; do
  echo "$(stat -c %s "$each") bytes: ${each##*/}"
  # shellcheck disable=SC2086
  set -- ${TEST_PYTHONS:-$PYTHON}
  first=$1
  while [ $# -gt 0 ]; do
    short=1
    [ "$1" != "$first" ] && [ $# -gt 1 ] || short=
    try "$each" "$1"
    shift
  done
done
if [ -n "${TEST_SDIST-}" ]; then
  if command -v patchelf >/dev/null; then
    # shellcheck disable=SC2086
    set -- ${TEST_PYTHONS:-$PYTHON}
    short=
    try "$TEST_SDIST" "$1"
  else
    note "${TEST_SDIST##*/}: no patchelf (Debian: patchelf)"
  fi
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
