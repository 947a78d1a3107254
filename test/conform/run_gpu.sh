#!/bin/sh
# conform_gpu on this machine's own GPUs; skipped where there is none. Arguments as conform_gpu takes them.
set -eu
cd "${top_builddir:-.}"
CF_GPU=1
export CF_GPU
exec test/conform/conform_gpu "$@"
