#!/bin/sh
# As run_store.sh, gate and night, by TCP.
STORE_PATHS=tcp exec "$(dirname "$0")/run_store.sh"
