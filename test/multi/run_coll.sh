#!/bin/sh
# Collectives, also with each algorithm forced; then ranks that die.
#   gate   all cases alone, on 2 ranks and on 3 over each path; each algorithm over one path; deaths on 3 ranks
#   night  also all cases on 1, 2, 4 and 7 ranks, 7 over TCP too; each algorithm over each path; a death on 6 ranks
# TEST_TIMEOUT: 900
set -eu
: "${top_builddir:?}"
tests=$top_builddir/test/multi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0 skipped=0
ring=${TEST_RING:-gate}

# check NAME COMMAND...: each line "ok ..." counts, any other failure counts once.
check() {
  name=$1
  shift
  rc=0
  timeout -k 10 150 "$@" >"$tmp/out" 2>"$tmp/err" || rc=$?
  passed=$((passed + $(grep -c '^ok ' "$tmp/out" || :)))
  if [ $rc != 0 ]; then
    failed=$((failed + 1))
    echo "FAIL: $name (status $rc)"
    { tail -n 20 "$tmp/err"; grep -v '^ok ' "$tmp/out"; } | sed 's/^/   /'
  fi
}

most=
if ! command -v mpirun >/dev/null; then
  echo "SKIP: no mpirun (Debian: openmpi-bin)"
  skipped=1
else
  check "alone" "$tests/coll"
  check "data, alone" "$tests/coll_data"
  most=7
  case ${TEST_SANITIZE-} in
    *thread*)
      echo "SKIP: more than 2 ranks on few cores: too slow for the thread sanitizer"
      skipped=1 most=
      ;;
  esac
  numbers="1 2 ${most:+4} $most"
  [ "$ring" = night ] || numbers=2
  for ranks in $numbers; do
    check "$ranks ranks" mpirun -n $ranks "$tests/coll"
    check "data, $ranks ranks" mpirun -n $ranks "$tests/coll_data"
  done
fi
if [ -n "$most" ]; then
  for path in shm tcp; do
    check "3 ranks over $path" env KVCL_PATH=$path KVCL_NET=lo mpirun -n 3 "$tests/coll"
    check "data, 3 ranks over $path" env KVCL_PATH=$path KVCL_NET=lo mpirun -n 3 "$tests/coll_data"
  done
  check "data, 3 ranks by the stage" env KVCL_NATIVE_TABLE=cma:0-inf:served mpirun -n 3 "$tests/coll_data"
  [ "$ring" = gate ] || check "7 ranks over tcp" env KVCL_PATH=tcp KVCL_NET=lo mpirun -n 7 "$tests/coll"
  for alg in flat binomial chain; do
    for path in auto tcp; do
      [ "$ring/$path" != gate/tcp ] || continue
      check "$alg over $path" env KVCL_PATH=$path KVCL_NET=lo KVCL_COLL_CHUNK=16K KVCL_COLL_TABLE=bcast:any:0-inf:$alg \
        mpirun -n 5 "$tests/coll" bcast
    done
  done
  for alg in doubling direct ring; do
    check "allreduce, $alg" env KVCL_COLL_CHUNK=16K KVCL_COLL_TABLE=allreduce:any:0-inf:$alg \
      mpirun -n 5 "$tests/coll_data" all_ranks
  done
  for alg in bruck ring direct; do
    check "$alg" env KVCL_COLL_TABLE=allgather:any:0-inf:$alg mpirun -n 5 "$tests/coll" allgather
  done
  check "more bytes than caches hold" mpirun -n 3 "$tests/coll" speed 33554432
  # By lanes: each offer has a part that is no multiple of their frames.
  check "parts of offers by lanes" env KVCL_PATH=tcp KVCL_NET=lo KVCL_WIRE=plain KVCL_LANE_MIN=1 \
    KVCL_COLL_CHUNK=300000 KVCL_COLL_TABLE=bcast:any:0-inf:chain mpirun -n 3 "$tests/coll" speed 3145728
  if [ "$(id -u)" = 0 ] && unshare --pid --fork true 2>/dev/null; then
    cat >"$tmp/rank" <<END
#!/bin/sh
[ "\$OMPI_COMM_WORLD_RANK" != 1 ] || exec unshare --pid --fork --mount-proc "$tests/coll_data"
exec "$tests/coll_data"
END
    chmod +x "$tmp/rank"
    check "data, a rank that maps no memory of the others" env KVCL_NET=lo mpirun -n 3 "$tmp/rank"
  else
    echo "SKIP: ranks in two namespaces of process ids: only root can make these"
    skipped=1
  fi
  # No bytes travel with an announcement.
  check "no eager bytes" env KVCL_EAGER=0 mpirun -n 3 "$tests/coll"
  check "data, no eager bytes" env KVCL_EAGER=0 mpirun -n 3 "$tests/coll_data"
fi

head -c 32 /dev/urandom >"$tmp/secret"
chmod 600 "$tmp/secret"
for path in auto tcp; do
  check "death over $path" env KVCL_SECRET_FILE="$tmp/secret" KVCL_PATH=$path KVCL_NET=lo "$tests/coll_death" 3
done
[ "$ring" = gate ] || check "death of one of 6" env KVCL_SECRET_FILE="$tmp/secret" "$tests/coll_death" 6

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
