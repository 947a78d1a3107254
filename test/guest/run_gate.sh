#!/usr/bin/env bash
# RDMA in guests, in a few minutes: conformance in one, then gets, puts and a store's gets between two.
# TEST_TIMEOUT: 7200
set -eu
: "${GUEST_LIMIT:=1200}"
. "${top_srcdir:?}/test/guest/host.sh"

# The programs beside the tools, by which contrib/check knows what to build:
: "$top_builddir/test/conform/conform_rma" "$top_builddir/test/conform/conform_prepare" \
  "$top_builddir/test/conform/conform_tokens"

open_guests gate
write_start one one.sh short
write_start A two.sh paths store
write_start B two.sh paths store
boot one 2048 2 || skip "none comes up on this machine in three tries (its console: $out)"
wait_guests
boot_two || no_guest
wait_guests
verdict one A B
