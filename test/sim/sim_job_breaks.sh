#!/bin/sh
# Copies of the library's machines, each with one deliberate bug that shows where they work together: sim_job must
# detect each of them, as at the gate or within SEEDS more seeds (default 600), and the seed must replay to the same
# sentence. A line of the list: a name, a file, a sed command that makes the bug. A word as an
# argument: only the bugs whose name contains it. Bugs of what the library does with these machines are sim_job's own
# (--break), and tried by sim_breaks.sh.
# TEST_TIMEOUT: 1800
set -eu
: "${top_srcdir:?}" "${top_builddir:?}" "${CC:=cc}"
seeds=${SEEDS:-600}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0

# object SOURCE OBJECT
object() {
  # shellcheck disable=SC2086
  $CC -std=gnu11 -O1 -w -I"$top_builddir" -I"$top_srcdir/src" -I"$top_srcdir/include" -I"$top_srcdir/test/sim" \
    -I"$top_srcdir" -I"$(dirname "$1")" -c -o "$2" "$1"
}

fail() {
  echo "$1"
  failed=$((failed + 1))
}

cd "$top_srcdir"
for file in test/sim/sim_job*.c test/sim/sim_store_*.c test/sim/sim_view_world.c src/view/[!v]*.c src/view/view.c \
            src/view/views.c src/dir/*.c src/ep/*.c collectives/*.c src/base/error.c src/base/status.c \
            src/base/structs.c src/base/heap.c src/base/log.c; do
  case $file in */select.c|*/plan_cache.c) continue ;; esac # not used, and they need more
  object "$file" "$tmp/$(echo "$file" | tr / _).o"
done

while IFS='|' read -r name file edit; do
  case $name in *${1-}*) ;; *) continue ;; esac
  sed "$edit" "$file" >"$tmp/bug.c"
  if cmp -s "$tmp/bug.c" "$file"; then
    fail "NOT MADE: $name: $file has changed: mend this list"
    continue
  fi
  object "$tmp/bug.c" "$tmp/bug"
  good=$tmp/$(echo "$file" | tr / _).o
  mv "$good" "$tmp/kept"
  # shellcheck disable=SC2086
  $CC -o "$tmp/sim" "$tmp"/*.o -x none "$tmp/bug"
  mv "$tmp/kept" "$good"
  status=0
  TEST_RING=gate "$tmp/sim" >"$tmp/out" || status=$?
  [ $status != 0 ] || "$tmp/sim" --seed 301 --seeds "$seeds" >"$tmp/out" || status=$?
  line=$(sed -n 1p "$tmp/out")
  seed=$(printf '%s\n' "$line" | sed -n 's/^seed \([0-9]*\) step [0-9]*: [A-Z][A-Za-z]*: .*/\1/p')
  if [ "$status" -ne 1 ] || [ -z "$seed" ]; then
    fail "NOT CAUGHT: $name (exit status $status)"
  elif [ "$("$tmp/sim" --seeds 1 --seed "$seed" | sed -n 1p)" != "$line" ]; then
    fail "NOT REPLAYED: $name: '$line'"
  else
    echo "caught $name: $line"
    passed=$((passed + 1))
  fi
done <<'LIST'
decide-before-all-accept|src/view/agree.c|s/covers(&round->agreed, &agree->living)) {/true) {/
choose-anew|src/view/agree_round.c|s/    if (round->best != 0) {/    if (false) {/
the-dead-are-awaited|src/view/agree.c|s/    kvcl_rankset_keep(&living, members);//
flags-of-one|src/view/agree_round.c|s/    sum->flags &= value->flags;//
deaf-to-failures|collectives/exec.c|s/    if (exec->peers\[i\].open > 0) { .. else it has done.*/    if (false) {/
announced-twice|collectives/exec.c|/^kvcl_status_t kvcl_exec_announced/,$ s/    if (step->flags & STEP_ANNOUNCED) {/    if (false) {/
done-before-pulled|collectives/exec.c|s/    return (exec->open > 0) ? KVCL_INPROGRESS : KVCL_OK;/    return (exec->open > 1) ? KVCL_INPROGRESS : KVCL_OK;/
announce-at-once|collectives/exec.c|s/        if (plan->steps\[i\].after == KVCL_STEP_NONE) {/        if (true) {/
choose-the-dead|src/ep/ep_map.c|s/        if (active\[slot . per_rank\] != 0) {/        if (1) {/
repair-trusts-the-dead|src/ep/ep_repair.c|s/        layer\[i\] = kvcl_ep_is_active(r->s, i . r->s->per_rank) ? old\[i\] : KVCL_EP_NONE;/        layer[i] = old[i];/
moves-from-the-dead|src/ep/ep_moves.c|s/ && kvcl_ep_is_active(s, slot . s->per_rank)) {/) {/;s/ && kvcl_ep_is_active(s, (slot - 1) . s->per_rank)) {/) {/
lost-rows-are-awaited|src/ep/ep_turn.c|s/    awaits(turn, peer, KVCL_EP_AWAIT_NOTHING, -(int)turn->peers\[peer\].sends);//
switch-alone|src/dir/moves.c|s/            return false;/            return true;/
remove-while-lost|src/dir/home.c|s/    return (gone \&\& !no_lease) ? KVCL_ERR_STALE : /    return /
LIST
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
