#!/bin/sh
# kvcl_serve and kvcl_top: two ranks that only provide memory and a worker meet at an address; the replies of their HTTP
# servers; SIGTERM drains one of them and no get of the worker fails.
set -eu
: "${top_builddir:?}" "${top_srcdir:?}"
serve=$top_builddir/src/tools/kvcl_serve top=$top_builddir/src/tools/kvcl_top
tmp=$(mktemp -d)
pids=
cleanup() {
  # shellcheck disable=SC2086
  [ -z "$pids" ] || kill -9 $pids 2>/dev/null || :
  rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM
passed=0 failed=0
is() {
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "not so: $*"
  fi
}
# here SECONDS FILE TEXT: wait until the file has the text.
here() {
  turns=$(($1 * 20))
  until grep -q "$3" "$2" 2>/dev/null; do
    turns=$((turns - 1))
    [ $turns -gt 0 ] || { echo "no \"$3\" in $2:"; cat "$2"; return 1; }
    sleep 0.05
  done
}
has() { grep -q "$2" "$1" || { echo "in $1:"; cat "$1"; return 1; }; }

HOME=$tmp/home
mkdir -m 700 "$HOME"
export HOME
unset KVCL_RANK KVCL_BOOT KVCL_NET KVCL_SECRET_FILE
. "$top_srcdir/test/multi/ports.sh"
next_port
KVCL_RENDEZVOUS=tcp://127.0.0.1:$port KVCL_SIZE=3 KVCL_BOOT_TIMEOUT=30s
export KVCL_RENDEZVOUS KVCL_SIZE KVCL_BOOT_TIMEOUT

is "$serve" --help >"$tmp/help"
is has "$tmp/help" 'http \[HOST:\]PORT'
rc=0; "$serve" 2>"$tmp/err" || rc=$?
is [ $rc = 2 ]
is has "$tmp/err" 'block is needed'
# wrong TEXT OPTION ...: refused, with the reason.
wrong() {
  text=$1 rc=0
  shift
  "$serve" "$@" 2>"$tmp/err" || rc=$?
  is [ $rc = 2 ]
  is has "$tmp/err" "$text"
}
wrong 'block: 4096 is given twice' --block 4K,4096
wrong 'block: "" is not a size' --block 4K,
wrong 'block: "12x" is not a size' --block 4K,12x
wrong 'block: 0 is not within' --block 0
wrong 'block: more than 8 sizes' --block 1K,2K,3K,4K,5K,6K,7K,8K,9K
wrong 'pool is less than one block' --block 4K --pool 4095
wrong 'room for 4 of the largest each, 98304 bytes' --block 4K,12K --pool 98303
rc=0 # the key of the second tier's file
KVCL_RENDEZVOUS='' KVCL_SIZE=0 KVCL_STORE_NVME_KEY=$tmp/nothing/key timeout 60 "$serve" --block 4K --pool 64K \
  --nvme "$tmp/nvme:4M" 2>"$tmp/err" || rc=$?
is [ $rc = 1 ]
is has "$tmp/err" 'KVCL_STORE_NVME_KEY: key file .*/nothing/key is not there: make it'
printf 'a token of 24 letters' >"$tmp/token"
chmod 640 "$tmp/token"
wrong 'http-token-file without --http' --block 4K --http-token-file "$tmp/token"
wrong 'token is not there: make it (umask 077' --block 4K --http 0 --http-token-file "$tmp/nothing/token"
wrong 'has mode 0640, others may use it: chmod 600' --block 4K --http 0 --http-token-file "$tmp/token"
chmod 600 "$tmp/token"
wrong 'character 2 is a space' --block 4K --http 0 --http-token-file "$tmp/token"
echo 'too-short' >"$tmp/token"
wrong 'has 10 bytes: it needs 16 to 1026' --block 4K --http 0 --http-token-file "$tmp/token"
wrong 'is a directory' --block 4K --http 0 --http-token-file "$tmp"
: >"$tmp/empty"
chmod 600 "$tmp/empty"
wrong 'is empty: write 16 to 1026 bytes into it (openssl rand -hex 32' --block 4K --http 0 \
  --http-token-file "$tmp/empty"
token=0123456789abcdef-A-Za
echo $token >"$tmp/token"
rc=0; "$top" --once 127.0.0.77:1 2>"$tmp/err" || rc=$?
is [ $rc = 1 ]

# Output that cannot be written.
# lost TOOL COMMAND ...: its output is lost, which the tool says, with status 1.
lost() {
  tool=$1 rc=0
  shift
  "$@" >/dev/full 2>"$tmp/err" || rc=$?
  is [ $rc = 1 ]
  is has "$tmp/err" "^$tool: the standard output could not be written"
}
if [ -c /dev/full ]; then
  lost kvcl_serve "$serve" --help
  lost kvcl_top "$top" --help
  KVCL_RENDEZVOUS='' KVCL_SIZE=0 "$serve" --block 4K --pool 64K --nvme "$tmp/lost:4M" >/dev/full 2>"$tmp/lost.err" &
  pids="$pids $!"
  turns=1200
  until [ -s "$tmp/lost" ] || [ $turns = 0 ]; do # its store opens: signals are held back
    turns=$((turns - 1))
    sleep 0.05
  done
  kill -TERM $!
  rc=0; wait $! || rc=$?
  is [ $rc = 1 ]
  is has "$tmp/lost.err" '^kvcl_serve: the standard output could not be written$'
fi

# The systemd unit, with the built files in place of the installed ones.
if command -v systemd-analyze >/dev/null 2>&1; then
  sed -e "s|^ExecStart=/usr/bin/kvcl_serve|ExecStart=$serve|" -e '/^Documentation=/d' \
    "$top_srcdir/contrib/systemd/kvcl_serve.service" >"$tmp/kvcl_serve.service"
  sed 's/^KillSignal=.*/KillSignal=NONE/' "$tmp/kvcl_serve.service" >"$tmp/bad.service"
  systemd-analyze verify "$tmp/bad.service" >"$tmp/unit" 2>&1 || :
  if grep -q 'bad\.service' "$tmp/unit"; then
    systemd-analyze verify "$tmp/kvcl_serve.service" >"$tmp/unit" 2>&1 || :
    is [ "$(grep -c 'kvcl_serve\.service' "$tmp/unit")" = 0 ]
  else
    echo "systemd-analyze finds no fault in a bad unit: the unit is not tested"
  fi
fi

python=${PYTHON:-python3}
"$python" -c '' 2>/dev/null || { python=; echo "no python3: the form of /metrics is not checked"; }
http='--http 0'
grep -q 'define KVCL_HAVE_MICROHTTPD 1' "$top_builddir/config.h" || http=
for rank in 0 1; do
  sizes=4K # those of rank 0
  [ $rank = 0 ] || sizes=4K,12K
  [ $rank = 0 ] || [ -z "$http" ] || http="$http --http-token-file $tmp/token"
  # shellcheck disable=SC2086
  KVCL_RANK=$rank "$serve" --block $sizes --pool 1M --entries 65536 $http >"$tmp/serve$rank" 2>&1 &
  pids="$pids $!"
  [ $rank = 1 ] || serve0=$!
  [ $rank = 0 ] || serve1=$!
done
KVCL_RANK=2 "$top_builddir/test/multi/serve" >"$tmp/worker" 2>&1 &
worker=$!
pids="$pids $worker"
here 60 "$tmp/worker" 'moved 48 blocks to rank 0, then 8 to rank 1$'
here 60 "$tmp/serve0" 'rank 0 of 3: 256 blocks of 4096 bytes'
here 60 "$tmp/serve1" 'rank 1 of 3: 1048576 bytes for blocks of 4096, 12288 bytes'

if [ -n "$http" ]; then
  rc=0 # the port of rank 0 is taken
  KVCL_RENDEZVOUS='' KVCL_SIZE=0 timeout 60 "$serve" --block 4K --pool 64K \
    --http "$(sed -n 's/.*http port //p' "$tmp/serve0")" 2>"$tmp/err" || rc=$?
  is [ $rc = 1 ]
  is has "$tmp/err" 'cannot listen on 127.0.0.1, port [0-9]*: Address already in use$'
  at0=127.0.0.1:$(sed -n 's/.*http port //p' "$tmp/serve0") at1=127.0.0.1:$(sed -n 's/.*http port //p' "$tmp/serve1")
  rc=0; "$top" --once "$at1" 2>"$tmp/err" || rc=$?
  is [ $rc = 1 ]
  is has "$tmp/err" 'HTTP status 401.*name that file by --token-file'
  "$top" --once --json --token-file "$tmp/token" "$at1" >"$tmp/json"
  is [ "$(wc -l <"$tmp/json")" = 3 ]
  is has "$tmp/json" '"rank": 0, "alive": 1, "state": 1, "blocks": 48,'
  is has "$tmp/json" '"rank": 2, .*"moved": 56,'
  "$top" --once "$at0" >"$tmp/table"
  is has "$tmp/table" '^ *0 alive  *48  *256  *18\.8'
  is has "$tmp/table" '^ *2 alive  *0  *[1-9]'
  is has "$tmp/table" 'get us  *put us  *match us$'
  [ ! -c /dev/full ] || lost kvcl_top "$top" --once "$at0"
  [ ! -c /dev/full ] || lost kvcl_top "$top" --json --interval 0.05 "$at0"
  is has "$tmp/table" '^ *0 alive .*  *-  *-  *-$' # it only serves
  is has "$tmp/table" '^ *2 alive .* [0-9.e+]*/[0-9.e+]*  *-$' # the worker's puts; it matches nothing
  if command -v curl >/dev/null 2>&1; then
    is curl -sS -m 60 -o "$tmp/metrics" "http://$at0/metrics"
    connects=$(curl -sS -m 60 -w '%{num_connects} ' -o /dev/null -o /dev/null "http://$at0/healthz" "http://$at0/ranks")
    is [ "$connects" = '1 0 ' ] # one connection carries both
    if [ -n "$python" ]; then is "$python" "$top_srcdir/test/multi/metrics_check.py" "$tmp/metrics"; fi
    is has "$tmp/metrics" '^kvcl_build_info{version="[0-9.]*",ucx="[0-9.]*"} 1$'
    is has "$tmp/metrics" '^# TYPE kvcl_build_info gauge$'
    for counter in in_bytes out_bytes served_bytes native_bytes operations strangers malformed refused late; do
      is has "$tmp/metrics" "^# TYPE kvcl_context_${counter}_total counter\$"
    done
    is has "$tmp/metrics" '^# TYPE kvcl_call_duration_seconds histogram$'
    copies='kvcl_call_duration_seconds_[a-z]*{rank="0",op="store_copy",path="[a-z]*"' # of the moved blocks
    is has "$tmp/metrics" "^$copies,le=\"+Inf\"} [1-9]"
    is has "$tmp/metrics" "^$copies} 0\.[0-9]*[1-9]"
    is has "$tmp/metrics" '^kvcl_context_strangers_total{rank="0"} 0$'
    is has "$tmp/metrics" '^kvcl_context_in_bytes_total{rank="0"} [1-9]'
    is has "$tmp/metrics" '^kvcl_store_in_bytes_total{rank="0"} [1-9]'
    is has "$tmp/metrics" '^kvcl_store_blocks{rank="0"} 48$'
    is has "$tmp/metrics" '^# TYPE kvcl_store_published_total counter$'
    is has "$tmp/metrics" '^kvcl_store_size_blocks{rank="0",block_bytes="4096"} 256$'
    # The token of rank 1, for everything but /healthz.
    for sent in '' "Bearer" "Bearer " "Bearer ${token}x" "Bearer ${token%a}" "Bearer $token$token" "Basic $token"; do
      code=$(curl -sS -m 60 -D "$tmp/head" -o /dev/null -w '%{http_code}' -H "Authorization: $sent" \
        "http://$at1/metrics")
      is [ "$code" = 401 ]
      is has "$tmp/head" '^WWW-Authenticate: Bearer'
    done
    is [ "$(curl -sS -m 60 "http://$at1/healthz")" = ok ]
    is curl -sS -m 60 -o "$tmp/metrics" -H "Authorization: Bearer $token" "http://$at1/metrics"
    if [ -n "$python" ]; then is "$python" "$top_srcdir/test/multi/metrics_check.py" "$tmp/metrics"; fi
    is has "$tmp/metrics" '^# TYPE kvcl_store_size_published gauge$'
    is has "$tmp/metrics" '^kvcl_store_size_published{rank="1",block_bytes="4096"} 0$'
    is has "$tmp/metrics" '^kvcl_store_size_published{rank="1",block_bytes="12288"} 8$'
    is [ "$(curl -sS -m 60 "http://$at0/healthz")" = ok ]
    is [ "$(curl -sS -m 60 -o /dev/null -w '%{http_code}' "http://$at0/nothing")" = 404 ]
    # Slow clients do not block others: 64 that never complete their request, 64 that announce a body and do not send
    # it, and 64 that do not read replies. One of another address, which is not fast either, is not affected. A client
    # that trickles bytes is cut off. While rank 1 is stopped, at most four requests of /ranks are in progress.
    [ -z "$python" ] || is "$python" "$top_srcdir/test/multi/slow_clients.py" "$at0" "$serve0" "$serve1"
    kill -STOP "$serve1" # a query to all ranks waits for it, other queries do not
    curl -sSv -m 60 -o "$tmp/ranks" "http://$at0/ranks" 2>"$tmp/asked" &
    asking=$!
    is here 60 "$tmp/asked" '^> GET /ranks'
    is [ "$(curl -sS -m 20 "http://$at0/healthz")" = ok ]
    kill -CONT "$serve1"
    is wait $asking
    is has "$tmp/ranks" '"rank": 2'
    is [ "$(curl -sS -m 60 -o /dev/null -w '%{http_code}' -X DELETE "http://$at0/metrics")" = 405 ]
  fi
else
  echo "built without libmicrohttpd: what is served by HTTP is not tested"
  rc=0; KVCL_RENDEZVOUS='' KVCL_SIZE=0 timeout 20 "$serve" --block 4K --pool 64K --http 0 2>"$tmp/err" || rc=$?
  is [ $rc = 1 ]
  is has "$tmp/err" 'built without libmicrohttpd'
fi

kill -TERM "$serve0"
rc=0; wait "$serve0" || rc=$?
is [ $rc = 0 ]
is has "$tmp/serve0" '48 blocks moved away$'
rc=0; wait "$worker" || rc=$?
is [ $rc = 0 ]
is has "$tmp/worker" ' 0 failed'
if [ -n "$http" ]; then
  "$top" --once --token-file "$tmp/token" "$at1" >"$tmp/table"
  is has "$tmp/table" '^ *0 failed$'
fi
kill -TERM "$serve1"
rc=0; wait "$serve1" || rc=$?
is [ $rc = 0 ]
pids=
cat "$tmp/worker"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
