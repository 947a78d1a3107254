#!/bin/sh
# The machine of src/view with deliberate bugs (bugs.sh): sim_view must detect each of them within SEEDS seeds (default
# 4,000), or in one of those that are known to show it (rare). A word as an argument: only the bugs whose name contains
# it.
set -eu
. "$(dirname "$0")/bugs.sh"
seeds=${SEEDS:-4000}
rare="24393 45762"

for file in test/sim/sim_view.c test/sim/sim_view_world.c test/sim/sim_view_stories.c src/view/[!v]*.c src/view/view.c \
            src/view/views.c; do # all but view_wire.c
  object "$file" "$(good "$file")"
done

run_sim() {
  "$tmp/sim" --seeds "$seeds" >"$tmp/out" || return
  for seed in $rare; do
    "$tmp/sim" --seeds 1 --seed "$seed" >"$tmp/out" || return
  done
}

bugs src/view/ "${1-}" <<'LIST'
dead-out-of-quorum|lead.c|s/quorum(&views->view.members, &b->accepted)/quorum(\&there, \&b->accepted)/
proof-without-lease|lead.c|s/covers(&b->promised, &there) && covers(&b->leases, &there)/covers(\&b->promised, \&there)/
commit-without-stayers|lead.c|s/ && covers(&b->accepted, &stay))/)/
lease-from-receipt|views.c|s/peer->returned = msg->echo;/peer->returned = now_ns;/
keep-lease-when-excluded|views.c|s/((change != NULL) && kvcl_rankset_has(&change->gone, views->me))/false/
lease-in-one-view|views.c|s/return kvcl_view_is_quorum(&next, &fresh);/return true;/
half-is-enough|view.c|s/(2 \* n > all) ||/(2 * n >= all) ||/
accept-at-once|accept.c|s/((since >= dead) && (since - dead >= more))/true/
echo-the-hushed|views.c|s/ && !kvcl_rankset_has(&views->hushed, to)) {/) {/
forget-promise|accept.c|s/if (ask->ballot < views->promised) {/if (false) {/
choose-freely|lead.c|s/b->own = (b->best == 0) || is_refuted(b);/b->own = true;/
ignore-incarnation|view.c|s/(view->incarnation\[slot\] == incarnation)/true/
commit-when-proposed|lead.c|s/^    try_commit(views, now_ns);/    commit(views, now_ns);/
commit-after-promise|lead.c|s/!b->proposed || (views->promised > b->number)/!b->proposed/
sleep-counts|detect.c|s/    forgive(detect, now_ns);/    detect->ticked_ns = now_ns;/
warm-is-ignored|detect.c|s/kvcl_rankset_has(&detect->warm, slot) ? detect->times.warm_ns : //
phase-of-old-messages|views.c|s/if (msg->phase > peer->phase) {/{/
proof-waits-for-warm|detect.c|s/kvcl_rankset_del(news_p, detect->me);/&kvcl_rankset_drop(news_p, \&detect->warm);/
never-excuse|lead.c|s/        b->excused   = without(&views->detect.silent, &b->change.gone);//
refuted-at-once|lead.c|s/return !kvcl_rankset_is_empty(&stay) || covers(&b->promised, &b->best_proposers);/return true;/
begin-again-for-leavers|lead.c|s/gone = views->detect.silent;/wanted(views, \&gone);/
higher-leader-first|accept.c|s/(first < kvcl_ballot_leader(ballot))/false/
wait-at-each-prepare|accept.c|s/    views->promised = msg->ballot;/    views->promised = msg->ballot, views->promised_ns = now_ns;/
lead-without-quorum|lead.c|s/!by_proof && !kvcl_views_has_quorum(views)/false/
failure-not-told|views.c|s/    failed = gone;/    failed = come;/
LIST
