#!/bin/sh
# Every public header compiles alone, twice included, as strict C11, as C++17 and as C++20.
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
CC=${CC:-cc}
warn='-Wall -Wextra -Wpedantic -Wundef -Werror -fsyntax-only'
passed=0 failed=0 skipped=0

# try LANGUAGE HEADER COMPILER...
try() {
  lang=$1 header=$2
  shift 2
  if printf '#include <kvcl/%s>\n#include <kvcl/%s>\nextern int not_empty;\n' "$header" "$header" |
    "$@" $warn -I"$top_srcdir/include" -I"$top_builddir/include" -; then
    passed=$((passed + 1))
  else
    echo "kvcl/$header does not compile alone as $lang"
    failed=$((failed + 1))
  fi
}

cxx=
for c in ${CXX:-g++ clang++ c++}; do
  if echo '#include <stdint.h>' | $c -x c++ -std=c++17 -fsyntax-only - 2>/dev/null; then
    cxx=$c
    break
  fi
done
[ -n "$cxx" ] || echo "SKIP: no C++ compiler (Debian: g++); headers are checked as C only"

for h in "$top_srcdir"/include/kvcl/*.h "$top_builddir"/include/kvcl/kvcl_version.h; do
  name=${h##*/}
  try C11 "$name" ${CC%% -*} -x c -std=c11
  if [ -n "$cxx" ]; then
    try C++17 "$name" "$cxx" -x c++ -std=c++17
    try C++20 "$name" "$cxx" -x c++ -std=c++20
  else
    skipped=$((skipped + 2))
  fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
