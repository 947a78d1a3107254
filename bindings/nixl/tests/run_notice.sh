#!/bin/sh
# Notifications in parts (test_notice.cc), with the address sanitizer where the compiler has it.
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
here=$top_srcdir/bindings/nixl
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
echo 'int main() { return 0; }' >"$tmp/none.cc"
cxx=
for c in ${CXX:-g++ clang++ c++}; do
  if $c -std=c++20 -fsyntax-only "$tmp/none.cc" 2>/dev/null; then
    cxx=$c
    break
  fi
done
if [ -z "$cxx" ]; then
  echo "SKIP: no compiler for C++20 (Debian: g++)"
  exit 77
fi
san=-fsanitize=address,undefined
$cxx -std=c++20 $san "$tmp/none.cc" -o "$tmp/none" 2>/dev/null || san=
$cxx -std=c++20 -O1 -g -Wall -Wextra -Werror $san -I"$here" -I"$top_srcdir/include" -I"$top_builddir/include" \
  "$here/tests/test_notice.cc" "$here/notice.cc" -o "$tmp/test_notice"
"$tmp/test_notice"
