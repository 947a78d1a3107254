#!/bin/sh
# kvcl_sim: runs are the same byte for byte, policies and the published experiments run, a log replays to the same
# decisions, requests of a dead instance are the only ones lost, and bad options, traces and logs are refused by name.
#   gate   generated traces; the published ones in part, if they are there (KVCL_TRACES or ../shared/traces)
#   night  the same on the whole published traces
set -eu
: "${top_builddir:?}" "${top_srcdir:?}"
sim="$top_builddir/src/tools/kvcl_sim --model $top_srcdir/contrib/sched/llama3-70b-8xa800.model"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
passed=0 failed=0 skipped=0
ring=${TEST_RING:-gate}

# says NAME STATUS PATTERN COMMAND...: exit status, and a line of stdout or stderr.
says() {
  name=$1 want=$2 pattern=$3
  shift 3
  got=0
  "$@" >"$tmp/out" 2>&1 || got=$?
  if [ "$got" = "$want" ] && { [ -z "$pattern" ] || grep -qE -- "$pattern" "$tmp/out"; }; then
    passed=$((passed + 1))
  else
    echo "FAILED: $name: status $got, wanted $want and \"$pattern\":"
    head -5 "$tmp/out"
    failed=$((failed + 1))
  fi
}

same() {
  if cmp -s "$2" "$3"; then
    passed=$((passed + 1))
  else
    echo "FAILED: $1"
    failed=$((failed + 1))
  fi
}

field() {
  sed -n "s/.*\"$1\": \([-0-9.a-z]*\).*/\1/p" "$tmp/out"
}

# holds NAME EXPRESSION: awk's.
holds() {
  if awk "BEGIN { exit !($2) }" </dev/null; then
    passed=$((passed + 1))
  else
    echo "FAILED: $1: not $2"
    failed=$((failed + 1))
  fi
}

# The same seed gives the same bytes; another one does not.
# shellcheck disable=SC2086 # $sim is words
{
for mode in trace poisson spread; do
  $sim --requests 2000 --arrivals $mode --policy prefill=global --noise 0.2 --seed 7 --json >"$tmp/a"
  $sim --requests 2000 --arrivals $mode --policy prefill=global --noise 0.2 --seed 7 --json >"$tmp/b"
  same "two runs by $mode differ" "$tmp/a" "$tmp/b"
done
$sim --requests 2000 --policy prefill=global --noise 0.2 --seed 8 --json >"$tmp/b"
if cmp -s "$tmp/a" "$tmp/b"; then
  echo "FAILED: another seed gives the same run"
  failed=$((failed + 1))
fi

# Every policy of the table runs, and none loses a request.
$sim --list | while read -r kind name _; do
  echo "$kind=$name"
done >"$tmp/policies"
holds "the table has policies" "$(wc -l <"$tmp/policies") > 5"
for policy in $(cat "$tmp/policies"); do
  says "policy $policy" 0 '"lost": 0' $sim --requests 1000 --generate agent --policy "$policy" --ttft 30 \
    --tbt 0.2 --json
done
says "side by side" 0 'prefill=global' $sim --requests 500 --compare "prefill=load prefill=global"
says "sweep" 0 '^ *[0-9.]+ +[0-9.]+ +(9|100)[0-9.]*%' $sim --requests 1000 --sweep 0.9 --ttft 10 --policy prefill=global
says "sweep as JSON" 0 '"speed": [0-9.]+, .*"good": (1|0\.9)[0-9.]*, "good_tokens": [0-9.]+, .*"prefill=load"' \
  $sim --requests 1000 --sweep 0.9 --ttft 10 --compare "prefill=global prefill=load" --json
cp "$tmp/out" "$tmp/sweep.json"
says "it is JSON" 0 '^2 0\.9$' python3 -c 'import json, sys
o = json.load(open(sys.argv[1])); print(len(o["runs"]), o["share"])' "$tmp/sweep.json"

# Kinds of clusters.
says "pipelines" 0 'of 4 nodes' $sim --requests 500 --prefill 8 --group 4 --chunk 2K
says "coupled" 0 'good +100' $sim --requests 500 --prefill 0 --decode 0 --coupled 16 --chunk 2K
says "coupled, whole prefills" 0 'good +100' $sim --requests 500 --prefill 0 --decode 0 --coupled 16
says "closed loop" 0 'offered +500' $sim --requests 500 --arrivals closed --clients 20 --think 1
says "index lag" 0 'fetched' $sim --requests 500 --lag 1 --policy prefill=global
says "little room for KV" 0 'good +100' $sim --requests 500 --kv 200000 --decode 2
says "unlimited pools" 0 ' 0 evicted' $sim --requests 500 --pool unlimited
says "serial" 0 'good' $sim --requests 200 --serial --stall 1
says "overload" 0 'OVERLOADED.*would hold' $sim --requests 3000 --speed 50 --prefill 1 --overload 60
says "picture" 0 'good' $sim --requests 200 --svg "$tmp/a.svg" --cdf
says "the picture is SVG" 0 '</svg>' cat "$tmp/a.svg"

# A slower network costs time; fewer nodes as well.
for nic in 10 800; do
  $sim --requests 1000 --nic $nic --json | sed -n 's/.*"ttft_s": {[^}]*"mean": \([0-9.]*\).*/\1/p' >"$tmp/nic.$nic"
done
holds "a slower network costs time" "$(cat "$tmp/nic.10") > 2 * $(cat "$tmp/nic.800")"
$sim --requests 1000 --prefill 2 --json >"$tmp/out"
few=$(field queue_s)
$sim --requests 1000 --prefill 16 --json >"$tmp/out"
many=$(field queue_s)
holds "fewer nodes have longer queues" "$few > 2 * $many"

# The pieces of a request that is refused in the queue are wasted: a run takes these seconds more. Short ones with
# earlier deadlines overtake the long one, piece by piece, until its own is lost.
awk 'BEGIN { print "arrival,in,out"
  for (i = 0; i < 300; ++i) printf "%.2f,4096,2\n", 0.1 + 0.55 * i }' </dev/null >"$tmp/short.csv"
sed '1a 0,100000,2' "$tmp/short.csv" >"$tmp/long.csv"
overtake="$sim --prefill 1 --decode 1 --chunk 4096 --policy prefill=load,queue=edf:refuse=1 --ttft 1 --ttft-own 5"
$overtake --trace "$tmp/short.csv" --json >"$tmp/out"
holds "nothing is wasted without it" "$(field wasted_s) == 0"
short=$(field prefill_total_s)
says "one is refused in the queue" 0 '"late": [{]"n": 1,' $overtake --trace "$tmp/long.csv" --json
wasted=$(field wasted_s)
holds "it had begun" "$wasted > 0.5"
holds "its pieces are wasted" "$(field prefill_total_s) - $wasted - $short < 0.01"
holds "no more than its pieces" "$(field prefill_total_s) - $wasted - $short > -0.01"
$overtake --trace "$tmp/long.csv" --log "$tmp/log" >"$tmp/out"
holds "the scheduler is told that it has ended" "$(grep -c '^f ' "$tmp/log") == 301"

# Instances that die, join and slow down: only what was on the dead one is lost.
$sim --requests 2000 --speed 3 --fault die:3@100,join:5@50,slow:1:3@20 --detect 2 --json >"$tmp/out"
holds "few are lost" "$(field lost) > 0 && $(field lost) < 80"
holds "some are decided again" "$(field decided_again) > 0"
$sim --requests 2000 --speed 3 --fault die:12@100 --json >"$tmp/out"
holds "few are lost with a decode instance" "$(field lost) > 0 && $(field lost) < 80"
# Those that were handed to it and did not decode yet are placed again, and all end. Undetected for long, nobody else is
# lost than the few that decoded there.
lost=$(field lost)
$sim --requests 2000 --speed 3 --fault die:12@100 --detect 5 --json >"$tmp/out"
holds "no more are lost while it is not known" "$(field lost) <= $lost"
holds "they are placed again" "$(field decided_again) > 0"


# One that dies and joins again is there until it dies, and after it joined, also before its death would be known. Until
# the join all is as without it. placed FROM TO INSTANCE: requests that a log places there from one second to another.
placed() {
  python3 -c 'import sys
at, n = 0, 0
for line in open(sys.argv[1]):
    w = line.split(None, 5)
    if w[0] == "d":
        at = float.fromhex(w[1])
    elif w[0] == "=" and kind == "d" and w[1] == "1" and float(sys.argv[2]) <= at < float(sys.argv[3]):
        n += w[3] == sys.argv[4]
    kind = w[0]
print(n)' "$tmp/log" "$@"
}
for faults in 'die:2@100' 'join:2@200,die:2@100' 'die:2@100,join:2@101.5'; do
  $sim --requests 2000 --speed 3 --fault "$faults" --detect 2 --log "$tmp/log" --json >"$tmp/out"
  holds "it is there until it dies ($faults)" "$(placed 0 100 2) > 20"
  holds "requests are lost with it ($faults)" "$(field lost) > 0"
  holds "as many as without a join ($faults)" "$(field lost) == ${lost_once:=$(field lost)}"
  case $faults in
  die:2@100) holds "it is gone" "$(placed 102.5 9999 2) == 0" ;;
  join*) holds "it is gone until it joins" "$(placed 102.5 200 2) == 0 && $(placed 200 9999 2) > 20" ;;
  *) holds "it stays after a join that tells its death" "$(placed 102.5 9999 2) > 20 && $(field decided_again) > 0" ;;
  esac
  says "their log is replayed ($faults)" 0 ' 0 different' $sim --replay-log "$tmp/log"
done
$sim --requests 2000 --speed 3 --fault join:2@50,die:2@100 --log "$tmp/log" --json >"$tmp/out"
holds "it joins late, and dies" "$(placed 0 50 2) + $(placed 101.5 9999 2) == 0 && $(placed 50 100 2) > 10"

# The log.
for policy in prefill=global prefill=random,admit=all; do
  says "log $policy" 0 good $sim --requests 1000 --policy $policy --noise 0.1 --fault die:2@60 --log "$tmp/log"
  says "replay $policy" 0 ' 0 different' $sim --replay-log "$tmp/log"
done
sed '/^= 1 /{s/^= 1 [0-9]* [0-9]*/= 1 0 99/;:a;n;ba}' "$tmp/log" >"$tmp/changed"
says "another answer is found" 1 ' 1 different, the first in line' $sim --replay-log "$tmp/changed"
sed '5s/^\(. [^ ]* \)[^ ]*/\1x/' "$tmp/log" >"$tmp/changed"
says "a bad log" 2 'changed:[0-9]+:[0-9]+: ' $sim --replay-log "$tmp/changed"
says "no log" 2 'the first line must be' $sim --replay-log "$0"

# What a line of the log has is what is documented: in both places the same fields, which are members of kvcl_sched.h,
# and as many as a log of each kind of call has.
structs='^(REQUEST|INSTANCE|HOLD|WAITING|MEASURED|DECISION)$'
awk -v structs="$structs" '/^\./ { name = /^\.I [A-Z]+$/ ? $2 : ""; next }
  name ~ structs { for (i = 1; i <= NF; ++i) print name, $i }' "$top_srcdir/src/tools/kvcl_sim.1" >"$tmp/manual"
awk -v structs="$structs" '/^  [A-Z]+ +[a-z]/ { name = $1; $1 = ""; row = NR }
  row != NR && !/^              [a-z]/ { name = "" }
  name ~ structs { for (i = 1; i <= NF; ++i) if ($i != "") print name, $i }' "$top_srcdir/contrib/doc/scheduling" \
  >"$tmp/format"
same "kvcl_sim(1) and contrib/doc/scheduling name the same fields" "$tmp/format" "$tmp/manual"
while read -r _ name; do
  grep -qE "[ *]$name;" "$top_srcdir/include/kvcl/kvcl_sched.h" || echo "$name"
done <"$tmp/format" >"$tmp/unknown"
same "they are members of kvcl_sched.h: $(cat "$tmp/unknown")" "$tmp/unknown" /dev/null
$sim --requests 300 --policy prefill=kvcl,queue=edf:refuse=1 --ttft 1 --ttft-own 5 --log "$tmp/log" >"$tmp/out"
awk 'function skip(name, many) { at += many * size[name] }
  NR == FNR { ++size[$1]; next }
  $1 == "=" { at = (kind == "o") ? 3 + $3 : 1 + size["DECISION"] }
  $1 == "o" { at = 3; skip("WAITING", $3) }
  $1 ~ /^[ptf]$/ { at = 2; skip("MEASURED", 1) }
  $1 == "e" { at = 2; skip("REQUEST", 1); at += 3; skip("INSTANCE", $at) }
  $1 == "d" { at = 2; skip("REQUEST", 1); ++at; at += $at; ++at; skip("INSTANCE", $at); ++at; skip("HOLD", $at) }
  $1 ~ /^[deoptf=]$/ { ++seen[$1]; if (at != NF) { print "line " FNR ": " NF " fields, documented are " at; exit } }
  { kind = $1 }
  END { for (i = split("d e o p t f", kinds, " "); i > 0; --i) if (seen[kinds[i]] < 50) print "few calls " kinds[i] }
  ' "$tmp/format" "$tmp/log" >"$tmp/counts"
same "lines have the documented fields: $(head -1 "$tmp/counts")" "$tmp/counts" /dev/null
holds "the first line has a version" "$(sed -n '1s/^kvcl-log \([0-9]*\)$/\1/p' "$tmp/log") > 0"
for doc in contrib/doc/scheduling src/tools/kvcl_sim.1; do
  says "$doc has that version" 0 "^1$" grep -cE "^(\.B|  *)? ?$(sed -n '1s/-/.*/p' "$tmp/log")" "$top_srcdir/$doc"
done

# A guess of 30 years for a prefill makes the queues that the scheduler is told no queues: these instances are counted.
printf 'kvcl-model 1\nname x\nsource y\nprefill 9e8 1e-5 0 0\ndecode 1 0 0\nkv_bytes 1\nnic 1e10\nload 1e10\n' \
  >"$tmp/years.model"
absurd="--requests 50 --guess $tmp/years.model --overload 0 --prefill 1 --speed 10"
says "instances that are left out" 0 '^left out +[1-9][0-9]* times .* in [0-9]+ decisions$' $sim $absurd
says "as JSON" 0 '"left_out": [1-9]' $sim $absurd --json
says "none is in a sound run" 0 '"left_out": 0,' $sim --requests 50 --json
says "nor is it printed" 0 '^0$' sh -c '"$@" | grep -c "^left out" || :' sh $sim --requests 50

# A fit.
awk 'BEGIN { srand(1); print "tokens,cached,prefill_s,batch,context,step_s"
  for (i = 0; i < 300; ++i) { n = 500 + int(rand() * 60000); p = int(n * rand()); m = n - p; b = 1 + i % 40
    printf "%d,%d,%.9f,%d,%d,%.9f\n", n, p, 0.05 + 2e-4 * m + 1e-9 * m * (n + p) + 1e-6 * p, b, b * n,
           0.02 + 3e-4 * b + 2e-8 * b * n } }' >"$tmp/measured.csv"
says "fit" 0 'prefill: 300 measurements, 60 of them held out; 9 of 10 of these are within 0\.0%' \
  $sim --fit "$tmp/measured.csv" --out "$tmp/fitted.model"
says "the fitted model" 0 '^prefill 0\.05 0\.0002 1e-09 1e-06|^prefill 0\.0(5|49999)' cat "$tmp/fitted.model"
says "it can be used" 0 fitted $sim --model "$tmp/fitted.model" --requests 200
# What was not measured is the base model's, all of it.
{
  printf 'kvcl-model 1\nname x\nsource y\nprefill 0.01 1e-5 0 0\ndecode 0.02 1e-4 6e-7\n'
  printf 'decode_from 95 0.007 2e-4 5e-7\ndecode_from 200 0.01 2e-4 4e-7\nmax_batch 256\nkv_tokens 12345678901\n'
  printf 'kv_bytes 1e5\nnic 1e10\nload 1e10\n'
} >"$tmp/base.model"
grep '^tokens\|^1[0-9]*,' "$tmp/measured.csv" | cut -d, -f1-3 >"$tmp/prefills.csv"
says "fit of prefills" 0 'prefill: [0-9]+ measurements' \
  "$top_builddir/src/tools/kvcl_sim" --model "$tmp/base.model" --fit "$tmp/prefills.csv" --out "$tmp/fitted.model"
for line in 'decode 0\.02 0\.0001 6e-07' 'decode_from 95 0\.007 0\.0002 5e-07' 'decode_from 200 0\.01 0\.0002 4e-07' \
  'max_batch 256' 'kv_tokens 12345678901'; do
  says "the base model's $line is kept" 0 "^$line\$" cat "$tmp/fitted.model"
done
says "it is read again" 0 'offered' "$top_builddir/src/tools/kvcl_sim" --model "$tmp/fitted.model" --requests 50
printf 'tokens,cached,prefill_s\n1,2,3\n' >"$tmp/bad.csv"
says "more cached than there are" 2 'bad.csv:2:1: more tokens cached' $sim --fit "$tmp/bad.csv"

printf 'token,cached,prefill_s\n2,1,3\n' >"$tmp/bad.csv"
says "a misspelt column" 2 'bad.csv:1:1: the header needs .*; is it tokens\?' $sim --fit "$tmp/bad.csv"
printf 'batch,cntext,step_s\n2,1,3\n' >"$tmp/bad.csv"
says "another misspelt column" 2 'bad.csv:1:7: .*; is it context\?' $sim --fit "$tmp/bad.csv"

# Bad input.
says "unknown option" 2 'did you mean --policy' $sim --polcy x
says "unknown policy" 2 'no such policy' $sim --policy prefill=globl
says "no file" 2 'no/such: No such file' $sim --trace no/such
says "no model" 2 'model no/such/model' "$top_builddir/src/tools/kvcl_sim" --model no/such/model
says "a misspelt model" 2 'is it llama3-70b-8xa800.model\?' "$top_builddir/src/tools/kvcl_sim" \
  --model "$top_srcdir/contrib/sched/lama3-70b-8xa800"
says "another in this folder" 2 'is it zero-one.model\?' sh -c 'cd "$1" && : >zero-one.model &&
  exec "$2" --model zero-on' sh "$tmp" "$(cd "$top_builddir" && pwd)/src/tools/kvcl_sim"
says "a name that is near to none" 2 ': No such file or directory$' \
  "$top_builddir/src/tools/kvcl_sim" --model xyzzy
says "bad fault" 2 'is not die:N@SECOND' $sim --fault explode:1@2
says "no such instance" 2 'no instance 99' $sim --fault die:99@2
says "bad arrivals" 2 'is not trace, spread, poisson or closed' $sim --arrivals often
says "closed without clients" 2 'need each other' $sim --arrivals closed
says "no prefill" 2 'need 1 or more each' $sim --prefill 0
says "a share of nothing" 2 'a share above 0' $sim --sweep 0
says "a sweep is not drawn" 2 '--svg is of one run: it cannot be beside --sweep' $sim --sweep 0.9 --svg "$tmp/t.svg"
says "a comparison is not drawn" 2 '--svg is of one run: .*--compare' $sim --compare prefill=load --svg "$tmp/t.svg"
says "a comparison has no log" 2 '--log is of one run' $sim --compare prefill=load --log "$tmp/t.log"
says "an empty list" 2 'the list has no policy' $sim --compare '  ' --json
says "a bad policy of a list" 2 'compare: .*no such policy' $sim --requests 50 --compare 'prefill=load prefill=globl'
holds "it is refused before the table" "$(grep -c '' "$tmp/out") == 1"
says "a table cannot be drawn" 2 'table3 has no curves' $sim --paper table3 --svg "$tmp/t.svg"
says "unknown experiment" 2 'is not fig5' $sim --paper fig99
printf '{"timestamp": 0, "input_length": x}\n' >"$tmp/bad.jsonl"
says "bad JSON" 2 'bad.jsonl:1: ' $sim --trace "$tmp/bad.jsonl"
printf 'arrival,in,out\n0,10,2\n1,10,many\n' >"$tmp/bad.csv"
says "bad CSV" 2 'bad.csv:3:6: "many" is not a number' $sim --trace "$tmp/bad.csv"
printf 'arrival,in,out,class\n0,1000,2,3\n1.5,200000,1,0\n1.5,10,20,3\n' >"$tmp/good.csv"
says "CSV" 0 'offered +3 ' $sim --trace "$tmp/good.csv"

# Output that cannot be written.
if [ -c /dev/full ]; then
  for what in '' --json --cdf --list '--sweep 0.9 --json' '--compare prefill=load' --help; do
    says "a full disk: $what" 1 'kvcl_sim: the standard output could not be written' \
      sh -c 'exec "$@" >/dev/full' sh $sim --requests 50 $what
  done
  says "a full disk: kvcl_info" 1 'kvcl_info: the standard output' sh -c 'exec "$1" >/dev/full' sh \
    "$top_builddir/src/tools/kvcl_info"
  says "a full disk: kvcl_perf" 1 'kvcl_perf: the standard output' sh -c 'exec "$1" --help >/dev/full' sh \
    "$top_builddir/src/tools/kvcl_perf"
fi
says "no output" 1 'the standard output could not be written' sh -c 'exec "$@" >&-' sh $sim --requests 50 --json

# Models and numbers with which time stands still, or runs back.
model() {
  printf 'kvcl-model 1\nname x\nsource y\nprefill 0.01 1e-5 0 0\nkv_bytes 1e5\nnic 1e10\nload 1e10\n'
  printf '%b\n' "$1"
}
model 'decode 0 0 0' >"$tmp/zero.model"
says "steps of no time" 2 'zero.model:8:1: a decode step must take time' timeout 60 $sim --model "$tmp/zero.model"
model 'decode_context 1 1000\ndecode_row 1 0.02 0.01' >"$tmp/falls.model"
says "steps that fall with the context" 2 'falls.model:9:1: the seconds of a decode_row must not fall' \
  timeout 60 $sim --model "$tmp/falls.model"
model 'decode 1 0 0\nkv_tokens 18446744073709551617' >"$tmp/much.model"
says "more tokens than can be counted" 2 'much.model:9:1: a whole number is needed, at most 1e15 tokens' \
  timeout 60 $sim --model "$tmp/much.model"
model '' >"$tmp/none.model"
says "no decode part" 1 'the model has no decode step' timeout 60 $sim --model "$tmp/none.model" --requests 50
model 'decode 1e-300 0 0' >"$tmp/tiny.model"
says "steps below the clock's digits" 0 'offered +50 ' timeout 60 $sim --model "$tmp/tiny.model" --requests 50
model 'decode 1e99 0 0' >"$tmp/huge.model"
says "steps of nearly for ever" 0 'offered +50 ' timeout 60 $sim --model "$tmp/huge.model" --requests 50
for what in 'speed 1e300' 'speed 1e-300' 'speed 0' 'rate 1e300' 'slower 1e308' 'slower 0' 'think 1e308' 'nic 1e-300' \
  'detect 1e300' 'overhead 1e300'; do
  says "--$what" 2 "--${what%% *}: .* is not within [0-9e.-]+\.\.1e\+0[69]" timeout 60 $sim --requests 50 --$what
done
says "slow without end" 2 'a FACTOR of 1e-06 to 1e\+06' timeout 60 $sim --requests 50 --fault slow:0:1e308@1

# The picture of a figure is that of contrib/doc/plots: as many numbers, each within 2 of the other.
drawn() {
  for picture in "$tmp" "$top_srcdir/contrib/doc/plots"; do
    tr -sc '0-9.' '\n' <"$picture/$1.svg" | grep '[0-9]' >"$tmp/numbers.${picture##*/}" || :
  done
  paste "$tmp/numbers.${tmp##*/}" "$tmp/numbers.plots" >"$tmp/pairs"
  says "contrib/doc/plots/$1.svg is of this build; else contrib/doc/plots/make-plots makes it again" 0 '^1$' \
    awk 'NF != 2 || $1 > $2 + 2 || $2 > $1 + 2 { bad = 1 } END { print (NR > 50 && !bad) }' "$tmp/pairs"
}

# What contrib/doc/results, section 26, promises of the whole published traces. $tmp/fig13 has that figure.
published() {
  "$top_srcdir/contrib/doc/plots/make-plots" "$top_builddir/src/tools/kvcl_sim" "$traces" "$tmp" good
  for name in fig5 fig10 fig13 good; do
    drawn $name
  done
  holds "fig. 13 falls" "$(awk '/^[0-9]+ / && n++ && $3 > last { bad = 1 } /^[0-9]+ / { last = $3 }
    END { print bad + 0 }' "$tmp/fig13") == 0 && $(gbit 24) > 2 * $(gbit 160)"
  holds "fig. 13 is flat beyond 160" "$(gbit 400) > 0.88 * $(gbit 160) && $(gbit 400) > 0.97 * $(gbit 320)"
  $sim --trace "$traces/synthetic_trace.jsonl" --evict lru --overload 0 --overhead 0.25 --pool 3000000 --nic 60 \
    --policy prefill=global:threshold=1 --json >"$tmp/out"
  holds "fig. 13 crosses recompute between 24 and 60" \
    "$(mean_ttft) < $(sed -n 's/^no cache *[0-9.]* *\([0-9.]*\).*/\1/p' "$tmp/fig13") && $(gbit 24) > 2.97"
  $sim --paper fig10 --trace "$traces" >"$tmp/out"
  holds "fig. 10 is within 3 points" "$(awk '$2 == "global" && $4 - $3 <= 3 && $3 - $4 <= 3 { ++n }
    END { print n + 0 }' "$tmp/out") == 2"
  holds "mean prefills are within 10%" "$(awk '$2 == "global" { ours = $6; theirs = $5 }
    $2 == "no" { ours = $7; theirs = $6 } ($2 == "global" || $2 == "no") && ours <= 1.1 * theirs &&
    ours >= 0.9 * theirs { ++n } END { print n + 0 }' "$tmp/out") == 4"
  $sim --paper fig5 --trace "$traces" | sed 's/P /P/' >"$tmp/out"
  holds "fig. 5 has the order at 6P to 8P" "$(awk '/^[678]P/ && $2 < $3 && $3 < $4 && $4 < $5 { ++n }
    END { print n + 0 }' "$tmp/out") == 3"
  holds "fig. 5 is near at 7P" "$(awk '/^7P/ { print ($6 >= 1.05 && $6 <= 1.29 && $7 >= 1.32 && $7 <= 2.12 &&
    $8 >= 4.4 && $8 <= 8.4) }' "$tmp/out") == 1"
  conversation="$sim --trace $traces/conversation_trace.jsonl"
  for policy in global:threshold=1 kvcl; do
    $conversation --speed 1.823 --policy prefill=$policy --json >"$tmp/out"
    echo "$(field fetch_bytes) $(field hit_tokens)"
  done >"$tmp/bytes"
  holds "bytes per hit token" "$(awk '{ each[NR] = $1 / $2 } END { print each[2] / each[1] }' "$tmp/bytes") <= 0.8"
  limits='--ttft 1 --ttft-own 5 --tbt 0.1 --chunk 4096' best=prefill=kvcl,admit=kvcl,queue=edf:refuse=1
  $conversation $limits --speed 1.9 --policy prefill=global,admit=erp --json >"$tmp/out"
  holds "algorithm 1 does not hold 90% at 1.9" "$(good_share) < 0.9"
  $conversation $limits --speed 2.85 --policy $best --json >"$tmp/out"
  holds "1.5 times that is held by KVCL's" "$(good_share) >= 0.9"
  for dead in 3 11; do
    $conversation $limits --speed 1.65 --policy $best --fault die:$dead@900 --log "$tmp/log" --json >"$tmp/out"
    holds "nothing is lost but what was on $dead" "$(lost_elsewhere $dead) == 0 && $(field lost) > 0"
  done
  $conversation $limits --speed 2.27 --policy prefill=kvcl,queue=edf:refuse=1 --noise 0.2 --lag 1 \
    --fault die:3@400,join:3@800 --log "$tmp/log" >"$tmp/out"
  says "the whole log is replayed" 0 '[0-9]{5} .* 0 different' $sim --replay-log "$tmp/log"
}

gbit() {
  awk -v at="$1" '$1 == at { print $3 }' "$tmp/fig13"
}

mean_ttft() {
  sed -n 's/.*"ttft_s": {[^}]*"mean": \([0-9.]*\).*/\1/p' "$tmp/out"
}

good_share() {
  sed -n 's/.*"goodput": {"offered": \([0-9]*\), "good": \([0-9]*\).*/\2 \1/p' "$tmp/out" | awk '{ print $1 / $2 }'
}

# Requests of a log that were taken, have no end, and were neither prefilled at this instance nor decoded there;
# and the difference of all without an end from those that the run calls lost.
lost_elsewhere() {
  python3 -c 'import sys
at, gone, lost = {}, int(sys.argv[2]), int(sys.argv[3])
for line in open(sys.argv[1]):
    w = line.split(None, 6)
    if w[0] in "de":
        kind, request = w[0], w[2]
    elif w[0] == "=" and kind in "de":
        if w[1] == "1":
            at[request] = ([int(w[3]), int(w[4])] if kind == "d" else [at[request][0], int(w[4])])
        else:
            at.pop(request, None)
    elif w[0] == "f":
        at.pop(w[2], None)
    kind = w[0] if w[0] != "=" else ""
print(sum(gone not in a for a in at.values()) + abs(len(at) - lost))' "$tmp/log" "$1" "$(field lost)"
}

# The published traces.
traces=${KVCL_TRACES:-$top_srcdir/../shared/traces}
if [ -f "$traces/synthetic_trace.jsonl" ]; then
  part=
  [ "$ring" = night ] || part='--requests 2000'
  $sim --paper fig9 --trace "$traces" --svg "$tmp/fig9.svg" >"$tmp/fig9"
  says "fig. 9 is drawn" 0 '^2$' grep -c 'stroke-dasharray' "$tmp/fig9.svg"
  drawn fig9
  holds "fig. 9 is within 0.04" "$(grep -cE '^(conversation|synthetic) .*[+-]0\.0[0-3][0-9]$' "$tmp/fig9") == 20"
  $sim --paper fig15 --trace "$traces" --svg "$tmp/fig15.svg" >"$tmp/out"
  holds "fig. 15 is within 10% at 6P to 11P" "$(awk '/^ *([6-9]|1[01])P/ && $(NF - 4) >= 0.9 && $(NF - 4) <= 1.1 { ++n }
    END { print n + 0 }' "$tmp/out") == 6"
  drawn fig15
  says "fig. 5" 0 '^7P' $sim --paper fig5 --trace "$traces" $part --svg "$tmp/fig5.svg"
  says "fig. 10" 0 'synthetic +global' $sim --paper fig10 --trace "$traces" $part --svg "$tmp/fig10.svg"
  says "fig. 10 is drawn" 0 '^8$' grep -c '<path fill="none"' "$tmp/fig10.svg"
  says "fig. 13" 0 'no cache' $sim --paper fig13 --trace "$traces" $part --svg "$tmp/fig13.svg"
  cp "$tmp/out" "$tmp/fig13"
  says "what it has without a cache is no point of its curve" 0 '^4$' grep -c '<path fill="none"' "$tmp/fig13.svg"
  [ "$ring" != night ] || published
else
  echo "SKIP: the published traces are not there"
  skipped=1
fi
says "no traces" 1 'needs --trace FOLDER' $sim --paper fig15 --trace "$tmp"
}

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
