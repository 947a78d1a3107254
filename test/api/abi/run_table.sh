#!/bin/sh
# table.h names every public struct and member: it equals the output of contrib/ci/abi-table for the headers.
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
command -v bash >/dev/null || { echo "SKIP: no bash"; exit 77; }
CC=${CC%% -*} BUILD=$top_builddir "$top_srcdir/contrib/ci/abi-table" > "$tmp/table.h"
if ! diff -u "$top_srcdir/test/api/abi/table.h" "$tmp/table.h"; then
  echo "Run contrib/ci/abi-table > test/api/abi/table.h, and see that only new lines and sizes of grown structs differ."
  exit 1
fi
echo "$(grep -c '^STRUCT' "$tmp/table.h") structs"
