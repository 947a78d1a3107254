#!/bin/sh
# The scripts of contrib/bench: floor runs as a whole on tiny lists; wrong options, missing packages and a missing
# network are named; peers detects wrong bytes. Asserts nothing about time.
#   gate   all but the following
#   night  the stores' benchmark too, and the installation of peers without a network
set -eu
: "${top_builddir:?}" "${top_srcdir:?}"
bench=$top_srcdir/contrib/bench
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0

if ! command -v python3 >/dev/null || ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))'; then
  echo "SKIP: no python3 of 3.9 or later"
  exit 77
fi
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE

# check NAME STATUS PATTERN COMMAND...: it must exit with STATUS and print PATTERN.
check() {
  name=$1 status=$2 pattern=$3
  shift 3
  rc=0
  timeout -k 10 250 "$@" >"$tmp/out" 2>&1 || rc=$?
  if [ $rc = "$status" ] && grep -q -- "$pattern" "$tmp/out"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAIL: $name (status $rc)"
    sed 's/^/   /' "$tmp/out" | tail -n 20
  fi
}

check "floor runs as a whole" 0 'one 4 KiB, tcp: p99 beside a bulk transfer' "$bench/floor" --self-test --build \
  "$top_builddir" --out "$tmp/floor"
check "floor leaves its figures" 0 'raw UCX, 1 MiB frames.cpu_s_per_gib' cat "$tmp/floor/figures.tsv"
check "floor has help" 0 'iperf3' "$bench/floor" --help
check "floor names a wrong option" 2 'no such option: --wrong' "$bench/floor" --wrong
check "floor says where it looked for kvcl_perf" 1 "no kvcl_perf in $tmp" "$bench/floor" --self-test --build "$tmp" \
  --out "$tmp/none"
check "bcast has help" 0 'BENCH_BYTES' "$bench/bcast" --help
check "bcast names a wrong option" 2 'no such option: --wrong' "$bench/bcast" --wrong
check "bcast says where it looked for kvcl_perf" 2 "no kvcl_perf in $tmp/src/tools" "$bench/bcast" "$tmp"
check "bcast refuses a number of bytes" 2 'BENCH_BYTES is a number of at least 1048576, not "1k"' env BENCH_BYTES=1k \
  "$bench/bcast" "$top_builddir"
mkdir "$tmp/no_mpi"
for tool in bash sh dirname env nproc mpirun grep; do
  ! command -v $tool >/dev/null || ln -s "$(command -v $tool)" "$tmp/no_mpi/"
done
printf '#!/bin/sh\nexec false\n' >"$tmp/no_mpi/mpicc"
chmod +x "$tmp/no_mpi/mpicc"
if command -v mpirun >/dev/null; then
  check "bcast names the package of mpi.h" 77 'finds no mpi.h (Debian: libopenmpi-dev)' env PATH="$tmp/no_mpi" \
    "$bench/bcast" "$top_builddir"
  rm "$tmp/no_mpi/mpicc"
  check "bcast names the package of mpicc" 77 'no mpicc (Debian: libopenmpi-dev)' env PATH="$tmp/no_mpi" \
    "$bench/bcast" "$top_builddir"
fi
check "the tier's benchmark has help" 0 'SIZE_MIB' "$bench/tier/run" --help
: >"$tmp/precious"
check "the tier's benchmark keeps a file" 2 "precious is there already" "$bench/tier/run" "$top_builddir" \
  "$tmp/precious"
check "the tier's benchmark names a wrong number" 2 '"2G" is no number' "$bench/tier/run" "$top_builddir" "$tmp/new" 2G
check "the tier's benchmark wants a build" 2 "no build in $tmp" "$bench/tier/run" "$tmp" "$tmp/new"
check "the GPU's benchmark has help" 0 'conformance suite' "$bench/gpu/run" --fake --help
check "the GPU's benchmark names a wrong option" 2 'no such option: --wrong' "$bench/gpu/run" --wrong
check "the GPU's benchmark wants a build" 2 "no configured build in $tmp" "$bench/gpu/run" "$tmp"
check "peers has help" 0 'nixl-cu13' "$bench/peers" --help
check "peers names an option without its value" 2 'rounds takes a value' "$bench/peers" --rounds
check "the stores' benchmark has help" 0 'KVCL from C and by its Python package' "$bench/peers" --help
if [ "${TEST_RING:-gate}" = night ]; then
  check "the stores' benchmark runs without peers" 0 'KVCL, C  *tcp' python3 "$bench/py/bench_store.py" --quick \
    --rounds 1 --seconds 0.05 --only none --paths tcp --build "$top_builddir" --out "$tmp/store" --without-package
  check "the stores' benchmark leaves its figures" 0 'bytes_per_key' cat "$tmp/store/store.tsv"
  if ls "$top_builddir"/bindings/python/kvcl/.libs/_kvcl*.so >/dev/null 2>&1 && [ "${TEST_SANITIZE:-no}" = no ]; then
    check "the stores' benchmark runs the Python package" 0 'KVCL, Python  *shm' "${PYTHON:-python3}" \
      "$bench/py/bench_store.py" --quick --rounds 1 --seconds 0.05 --only none --paths shm --build "$top_builddir" \
      --out "$tmp/package"
  fi
  if python3 -c 'import ensurepip, venv' 2>/dev/null; then
    check "peers says that there is no network" 2 'could not be installed' env PIP_INDEX_URL=http://127.0.0.1:9/ \
      PIP_NO_CACHE_DIR=1 PIP_CONFIG_FILE=/dev/null "$bench/peers" --quick --build "$top_builddir" --out "$tmp/peers"
  fi
fi

cat >"$tmp/wrong.py" <<'PY'
import sys

sys.path.insert(0, sys.argv[1])
from rounds import Results, WrongBytes

results = Results()
results.add(("tcp", "list", "KVCL"), {"gbps": 2.0, "wrong": 0})
results.add(("tcp", "list", "KVCL"), {"gbps": 4.0, "wrong": 0})
results.add(("tcp", "list", "other"), {"gbps": 1.0, "wrong": 0})
results.add(("tcp", "list", "other"), {"gbps": 1.0, "wrong": 0})
assert results.spread(("tcp", "list", "KVCL"), "gbps") == (2.0, 3.0, 4.0)
assert results.ratio(("tcp", "list", "KVCL"), ("tcp", "list", "other"), "gbps") == 3.0
try:
    results.add(("tcp", "list", "other"), {"gbps": 9.0, "wrong": 1})
except WrongBytes as found:
    print(found)
PY
check "wrong bytes stop a benchmark" 0 'other, list, tcp: 1 wrong blocks' python3 "$tmp/wrong.py" "$bench/py"
if python3 -c 'import numpy' 2>/dev/null; then
  cat >"$tmp/pattern.py" <<'PY'
import sys

sys.path.insert(0, sys.argv[1])
import numpy as np
import pattern
from lists import BlockList

pattern.SLICE_BYTES = 4096  # so that the lists below have many slices, and a block of the second has two
for text in ("64:100:random", "8192:5:random"):
    blocks = BlockList.parse(text)
    here, there = pattern.orders(blocks)
    unit, count = blocks.unit, blocks.count
    far, near = np.zeros(blocks.bytes, np.uint8), np.zeros(blocks.bytes, np.uint8)
    pattern.fill(far, blocks, there, 7)
    assert pattern.wrong(near, blocks, here, 7) == count
    for i in range(count):
        near[here[i] * unit : (here[i] + 1) * unit] = far[there[i] * unit : (there[i] + 1) * unit]
    assert pattern.wrong(near, blocks, here, 7) == 0
    assert pattern.wrong(near, blocks, here, 8) == count
    near[here[3] * unit + unit - 1] ^= 1
    near[here[3] * unit] ^= 1
    assert pattern.wrong(near, blocks, here, 7) == 1
print("one wrong byte is one wrong block")
PY
  check "the peers' pattern sees one wrong byte" 0 'one wrong block' python3 "$tmp/pattern.py" "$bench/py"
fi

echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
