#!/bin/sh
# contrib/sched/aiconfigurator_model: without AIConfigurator it says so and ends with 77; bad lists are refused; with it
# (TEST_AICONFIGURATOR: a python that has the package) a small model file is made that kvcl_sim runs with.
set -eu
: "${top_builddir:?}" "${top_srcdir:?}"
make_model="$top_srcdir/contrib/sched/aiconfigurator_model"
python=${TEST_AICONFIGURATOR:-python3}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0

# says NAME STATUS PATTERN COMMAND...
says() {
  name=$1 want=$2 pattern=$3
  shift 3
  got=0
  "$@" >"$tmp/out" 2>"$tmp/err" || got=$?
  if [ "$got" = "$want" ] && grep -qE -- "$pattern" "$tmp/out" "$tmp/err"; then
    passed=$((passed + 1))
  else
    echo "FAILED: $name: status $got, wanted $want and \"$pattern\":"
    head -5 "$tmp/out" "$tmp/err"
    failed=$((failed + 1))
  fi
}

needed='--model m --system s --kv-bytes 1'
# shellcheck disable=SC2086 # $needed is words
{
says "no package" 77 'SKIP: AIConfigurator is not to be had' python3 -I -S "$make_model" $needed
says "lists must rise" 2 'the numbers must rise' python3 "$make_model" $needed --new 512,64
says "cached begins with 0" 2 'begins with 0' python3 "$make_model" $needed --cached 64
for what in 'kv-bytes nan' 'kv-bytes inf' 'error -1' 'kv-tokens -5' 'pool-tokens 1e300' 'nic 0'; do
  says "--$what" 2 "argument --${what% *}: '${what#* }': a number above 0" python3 "$make_model" $needed --$what
done
says "too slow a network" 2 'at least 1' python3 "$make_model" $needed --nic 0.5
says "a name of two lines" 2 'argument --name: .*: a line of printable text' python3 "$make_model" $needed --name 'a
b'
says "steps that fall are raised" 0 '^1 \[1, 1, 3, 4\]$' python3 -c '
import runpy, sys, types
not_falling = runpy.run_path(sys.argv[1])["not_falling"]
steps = {(1, 1): 1, (1, 2): 0.9, (2, 1): 3, (2, 2): 4}
print(not_falling(types.SimpleNamespace(batch=[1, 2], context=[1, 2]), steps), list(steps.values()))' "$make_model"
}
if "$python" -c 'import aiconfigurator' 2>/dev/null; then
  says "a model that is not known" 1 'aiconfigurator_model: AIConfigurator: ' "$python" "$make_model" --model no/such \
    --system h100_sxm --kv-bytes 1 --new 512 --cached 0 --batch 1 --context 1024
  says "a model" 0 '^prefill_row 4096 ' "$python" "$make_model" --model Qwen/Qwen3-32B --system h100_sxm --tp 2 \
    --kv-bytes 262144 --kv-tokens 300000 --pool-tokens 3000000 --nic 50e9 --load 50e9 --new 512,4096 \
    --cached 0,16384 --batch 1,16 --context 1024,16384
  cp "$tmp/out" "$tmp/a.model"
  says "it can be used" 0 'qwen3-32b-2xh100_sxm' "$top_builddir/src/tools/kvcl_sim" --model "$tmp/a.model" \
    --requests 300
  skipped=0
else
  echo "SKIP: no AIConfigurator (pip install aiconfigurator; TEST_AICONFIGURATOR names a python that has it)"
  skipped=1
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] || exit 1
[ "$skipped" = 0 ] || exit 77
