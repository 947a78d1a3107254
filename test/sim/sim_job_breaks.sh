#!/bin/sh
# The library's machines with deliberate bugs (bugs.sh) that show where they work together: sim_job must detect each,
# as at the gate or within SEEDS more seeds (default 600). A word as an argument: only the bugs whose name contains it.
# Bugs of what the library does with these machines are sim_job's own (--break), and tried by sim_breaks.sh.
# TEST_TIMEOUT: 1800
set -eu
. "$(dirname "$0")/bugs.sh"
seeds=${SEEDS:-600}

for file in test/sim/sim_job*.c test/sim/sim_store_*.c test/sim/sim_view_world.c src/view/[!v]*.c src/view/view.c \
            src/view/views.c src/dir/*.c src/ep/*.c collectives/*.c src/base/error.c src/base/status.c \
            src/base/structs.c src/base/heap.c src/base/log.c; do
  case $file in */select.c|*/plan_cache.c) continue ;; esac # not used, and they need more
  object "$file" "$(good "$file")"
done

run_sim() {
  TEST_RING=gate "$tmp/sim" >"$tmp/out" && "$tmp/sim" --seed 301 --seeds "$seeds" >"$tmp/out"
}

bugs '' "${1-}" <<'LIST'
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
