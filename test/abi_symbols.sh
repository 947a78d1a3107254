#!/bin/sh
# The names that libkvcl.so exports, that src/kvcl.map lists and that the public headers declare with KVCL_API must be
# the same. It links no part of PMIx, CUDA and NCCL, which it loads where they are used.
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
NM=${NM:-nm}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

"$top_srcdir/contrib/ci/update-map" --print > "$tmp/headers"
sed -n 's/^[[:space:]]*\(kvcl_[A-Za-z0-9_]*\);$/\1/p' "$top_srcdir/src/kvcl.map" | LC_ALL=C sort -u > "$tmp/map"
$NM -D --defined-only "$top_builddir/.libs/libkvcl.so" |
  awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | LC_ALL=C sort -u > "$tmp/library"

bad=0
for pair in "headers map" "map library"; do
  set -- $pair
  if ! diff -u --label "$1" --label "$2" "$tmp/$1" "$tmp/$2"; then
    bad=1
  fi
done
if [ "$bad" != 0 ]; then
  echo "The lists differ. contrib/ci/update-map writes the map from the headers; a name in the map that the"
  echo "library lacks is declared and not defined."
  exit 1
fi
if $NM -D --undefined-only "$top_builddir/.libs/libkvcl.so" | grep -E ' (PMIx?_|cu[A-Z]|nccl)'; then
  echo "The library links these: it must load them (src/pmix/pmix_api.h, src/device/cuda_api.h)."
  exit 1
fi
echo "$(wc -l < "$tmp/library") symbols"
