#!/bin/sh
# conform_device with NCCL, on libraries without a device under the real ones' names (test/unit/fake_libcuda.c,
# fake_libnccl.c), which are found like those; then with an NCCL that is too old, which is left alone. Arguments as for
# conform_device.
set -eu
top_builddir=$(cd "${top_builddir:-.}" && pwd)
cd "$top_builddir"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
ln -s "$top_builddir/test/unit/.libs/libfakecuda.so" "$tmp/libcuda.so.1"
ln -s "$top_builddir/test/unit/.libs/libfakenccl.so" "$tmp/libnccl.so.2"
LD_LIBRARY_PATH=$tmp${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
FAKE_NCCL_DIR=$tmp CF_GPU=1
export LD_LIBRARY_PATH FAKE_NCCL_DIR CF_GPU
CF_NCCL=1 "$top_builddir/test/conform/conform_device" "$@"
FAKE_NCCL_VERSION=21003 "$top_builddir/test/conform/conform_device" shm/procs
src/tools/kvcl_info --colls | grep -q '^NCCL: 2\.28\.9$'
FAKE_NCCL_VERSION=21003 src/tools/kvcl_info --colls | grep -q '^NCCL: no: .*2\.14'
