#!/bin/sh
# Statuses report ranks that die: UCX writes no ERROR line to the survivors' stderr. This runs the conformance cases of
# contexts that end and of ranks that die; whether they pass is checked by their own tests.
set -eu
: "${top_builddir:?}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
unset UCX_LOG_LEVEL UCX_LOG_FILE KVCL_LOG
failed=0
for program in "$top_builddir/test/conform/conform_ctx" "$top_builddir/test/conform/conform_death"; do
  "$program" >"$tmp/out" 2>&1 || echo "${program##*/} failed; only its output is looked at here"
  if grep -E 'UCX +(ERROR|WARN|DIAG)' "$tmp/out"; then
    failed=$((failed + 1))
  fi
done
echo "$((2 - failed)) passed, $failed failed, 0 skipped"
[ $failed = 0 ]
