#!/bin/sh
# The public headers and the library from C++: test_cxx.cc as C++17 and as C++20, strictly, and run.
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
passed=0 failed=0

if [ "${TEST_SANITIZE:-no}" != no ]; then
  echo "SKIP: the library is built with a sanitizer, whose runtime a C++ program of another compiler lacks"
  exit 77
fi
cxx=
for c in ${CXX:-g++ clang++ c++}; do
  if echo 'int main() { return 0; }' | $c -x c++ -std=c++20 -fsyntax-only - 2>/dev/null; then
    cxx=$c
    break
  fi
done
if [ -z "$cxx" ]; then
  echo "SKIP: no compiler for C++20 (Debian: g++)"
  exit 77
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
LD_LIBRARY_PATH=$top_builddir/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
for std in c++17 c++20; do
  if $cxx -std=$std -Wall -Wextra -Wpedantic -Wundef -Werror -I"$top_srcdir/include" -I"$top_builddir/include" \
    "$top_srcdir/test/api/test_cxx.cc" -o "$tmp/test_$std" -L"$top_builddir/.libs" -lkvcl && "$tmp/test_$std"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAIL: test_cxx.cc as $std"
  fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
