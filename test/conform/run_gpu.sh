#!/bin/sh
# conform_gpu and conform_device on this machine's own GPUs; skipped if there is none. Arguments as for conform_gpu.
# With CF_FAKE=1 on a libcuda.so.1 without a device (test/unit/fake_libcuda.c), which is found like the real one.
set -eu
top_builddir=$(cd "${top_builddir:-.}" && pwd)
cd "$top_builddir"
if [ "${CF_FAKE:-0}" = 1 ]; then
  tmp=$(mktemp -d)
  trap 'rm -rf "$tmp"' EXIT
  ln -s "$top_builddir/test/unit/.libs/libfakecuda.so" "$tmp/libcuda.so.1"
  LD_LIBRARY_PATH=$tmp${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  KVCL_NCCL=no # a machine's own knows nothing of that device
  export LD_LIBRARY_PATH KVCL_NCCL
fi
CF_GPU=1
export CF_GPU
"$top_builddir/test/conform/conform_gpu" "$@"
"$top_builddir/test/conform/conform_device" "$@"
