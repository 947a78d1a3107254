#!/bin/sh
# As run_store.sh, gate and night, by TCP.
# TEST_TIMEOUT: 1800
: "$top_builddir/test/multi/store" # by which contrib/check knows what to build
STORE_PATHS=tcp exec "$(dirname "$0")/run_store.sh"
