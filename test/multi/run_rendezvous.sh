#!/bin/sh
# Jobs of plain processes that meet at an address: ranks given and assigned, refusals and their sentences, and a member
# that is killed.
set -eu
: "${top_builddir:?}" "${top_srcdir:?}"
p2p=$top_builddir/test/multi/p2p
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

HOME=$tmp/home # the user's secret is made here
mkdir -m 700 "$HOME"
KVCL_BOOT_TIMEOUT=60s KVCL_TIMEOUT=60s
export HOME KVCL_BOOT_TIMEOUT KVCL_TIMEOUT
unset KVCL_RANK KVCL_SECRET_FILE KVCL_BOOT KVCL_NET

head -c 32 /dev/urandom >"$tmp/secret"
head -c 32 /dev/urandom >"$tmp/other"
chmod 600 "$tmp/secret" "$tmp/other"
cp "$tmp/secret" "$tmp/open"
chmod 644 "$tmp/open"

. "$top_srcdir/test/multi/ports.sh"

new_port() {
  next_port
  KVCL_RENDEZVOUS=tcp://127.0.0.1:$port
  export KVCL_RENDEZVOUS
}

# start NAME [VAR=VALUE...] [rounds=N]: a process, its pid in $pid and in $tmp/NAME.pid.
start() {
  name=$1
  shift
  rounds=4
  case ${1-} in rounds=*) rounds=${1#rounds=}; shift ;; esac
  env "$@" "$p2p" "$rounds" >"$tmp/$name.out" 2>"$tmp/$name.err" &
  pid=$!
  pids="$pids $pid"
  echo $pid >"$tmp/$name.pid"
}

# end NAME: wait for it; its exit status in $rc.
end() {
  rc=0
  wait "$(cat "$tmp/$1.pid")" || rc=$?
}

# here SECONDS FILE TEXT: wait until the file has the text.
here() {
  tries=$(($1 * 10))
  until grep -q "$3" "$2" 2>/dev/null; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || return 1
    sleep 0.1
  done
}

# must NAME CONDITION...: count the result.
must() {
  what=$1
  shift
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAIL: $what"
    tail -n 6 "$tmp"/*.out "$tmp"/*.err | sed 's/^/   /'
  fi
}

ended_well() {
  good=0
  for name in "$@"; do
    end "$name"
    [ $rc = 0 ] && grep -q '^ok ' "$tmp/$name.out" || good=1
  done
  return $good
}

# failed_saying NAME TEXT
failed_saying() {
  end "$1"
  [ $rc = 1 ] && grep -q "$2" "$tmp/$1.err"
}

for path in auto tcp; do
  new_port
  start 0 KVCL_PATH=$path KVCL_NET=lo KVCL_SIZE=3 KVCL_RANK=0
  start 1 KVCL_PATH=$path KVCL_NET=lo KVCL_SIZE=3 KVCL_RANK=1
  start 2 KVCL_PATH=$path KVCL_NET=lo KVCL_SIZE=3 KVCL_RANK=2
  must "ranks given, over $path" ended_well 0 1 2

  new_port
  start a KVCL_PATH=$path KVCL_NET=lo KVCL_SIZE=3
  start b KVCL_PATH=$path KVCL_NET=lo KVCL_SIZE=3
  start c KVCL_PATH=$path KVCL_NET=lo KVCL_SIZE=3
  must "ranks dealt, over $path" ended_well a b c
  must "ranks dealt, each once" [ "$(cat "$tmp/a.out" "$tmp/b.out" "$tmp/c.out" | grep '^ok' | sort | tr '\n' ,)" = \
    "ok 0 of 3,ok 1 of 3,ok 2 of 3," ]
done

must "the user's secret is private" [ "$(stat -c %a "$HOME/.kvcl/secret")" = 600 ]

# Of two ranks 1 either one is refused; the job of the others continues.
new_port
start 0 KVCL_SIZE=3 KVCL_RANK=0
start 1 KVCL_SIZE=3 KVCL_RANK=1
start 1b KVCL_SIZE=3 KVCL_RANK=1
taken="rank 1 is taken by another process: KVCL_RANK must differ"
one_is_refused() {
  for tries in $(seq 200); do
    grep -q "$taken" "$tmp/1.err" "$tmp/1b.err" && break
    sleep 0.1
  done
  refused=1 member=1b
  grep -q "$taken" "$tmp/1.err" || refused=1b member=1
  failed_saying "$refused" "$taken"
}
must "a rank that is taken is refused" one_is_refused
start 2 KVCL_SIZE=3 KVCL_RANK=2
must "the others go on" ended_well 0 "$member" 2

# Different secrets. To the server such a member is the same as a stranger: it counts as missing.
new_port
start 0 KVCL_SIZE=2 KVCL_RANK=0 KVCL_SECRET_FILE="$tmp/secret" KVCL_BOOT_TIMEOUT=5s
start 1 KVCL_SIZE=2 KVCL_RANK=1 KVCL_SECRET_FILE="$tmp/other"
must "another secret is refused" failed_saying 1 'KVCL_SECRET_FILE'
must "another secret is no member" failed_saying 0 \
  'rank 1 did not arrive within 5s, 1 of 2 did: [1-9][0-9]* with another secret came'
start 0 KVCL_SIZE=1 KVCL_RANK=0 KVCL_SECRET_FILE="$tmp/open"
must "a secret that others can read is refused" failed_saying 0 'has mode 0644, others may use it: chmod 600'

new_port
start 1 KVCL_PATH=tcp KVCL_SIZE=2 KVCL_RANK=1
must "settings are refused before other ranks are waited for" failed_saying 1 'KVCL_PATH=tcp needs KVCL_NET'
new_port
start 1 KVCL_SIZE=2 KVCL_RANK=1 KVCL_BOOT_TIMEOUT=1s
must "nobody serves the meeting" failed_saying 1 'Connection refused, within 1s (KVCL_BOOT_TIMEOUT)'
new_port
start 0 KVCL_RANK=0
must "no KVCL_SIZE" failed_saying 0 'needs KVCL_SIZE'

# One of three is killed in the middle: the others end with an error, in time.
lost='a rank failed\|deadline'
for path in auto tcp; do
  new_port
  for r in 0 1 2; do
    start $r rounds=1000000 KVCL_PATH=$path KVCL_NET=lo KVCL_SIZE=3 KVCL_RANK=$r KVCL_TIMEOUT=3s
  done
  rc=0
  for r in 0 1 2; do
    here 60 "$tmp/$r.out" '^round 1' || rc=1
  done
  must "a job to be killed, over $path" [ $rc = 0 ]
  kill -9 "$(cat "$tmp/1.pid")"
  died=$(date +%s)
  end 1
  must "rank 0 ends with an error, over $path" failed_saying 0 "$lost"
  must "rank 2 ends with an error, over $path" failed_saying 2 "$lost"
  # 3 s, a second for kvcl_finalize, and time for a busy machine.
  must "within their deadline, over $path" [ $(($(date +%s) - died)) -le 60 ]
done

echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
