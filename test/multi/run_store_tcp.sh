#!/bin/sh
# As run_store.sh, gate and night, by TCP.
# TEST_TIMEOUT: 1800
STORE_PATHS=tcp exec "$(dirname "$0")/run_store.sh"
