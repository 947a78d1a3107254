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
