#!/bin/sh
# Ranks that die are told of by statuses: UCX writes no ERROR line to the survivors' stderr. The conformance cases of
# contexts that end and of ranks that die are run for it; that they pass is their own tests' matter.
set -eu
: "${top_builddir:?}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
unset UCX_LOG_LEVEL UCX_LOG_FILE KVCL_LOG
failed=0
for program in conform_ctx conform_death; do
  "$top_builddir/test/conform/$program" >"$tmp/out" 2>&1 || echo "$program failed; only its output is looked at here"
  if grep -E 'UCX +(ERROR|WARN|DIAG)' "$tmp/out"; then
    failed=$((failed + 1))
  fi
done
echo "$((2 - failed)) passed, $failed failed, 0 skipped"
[ $failed = 0 ]
