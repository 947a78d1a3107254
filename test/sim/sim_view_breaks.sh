#!/bin/sh
# Copies of the machine of src/view, each with one deliberate bug: sim_view must detect each of them within SEEDS seeds
# (default 4,000), or in one of those that are known to show it (rare), and the seed must replay to the same sentence. A
# line of the list: a name, a file, a sed command that
# makes the bug. A word as an argument: only the bugs whose name contains it.
set -eu
: "${top_srcdir:?}" "${top_builddir:?}" "${CC:=cc}"
seeds=${SEEDS:-4000}
rare="24393 45762"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0

# object SOURCE OBJECT
object() {
  # shellcheck disable=SC2086
  $CC -std=gnu11 -O1 -w -I"$top_builddir" -I"$top_srcdir/src" -I"$top_srcdir/include" -I"$top_srcdir/test/sim" \
    -c -o "$2" "$1"
}

fail() {
  echo "$1"
  failed=$((failed + 1))
}

for file in "$top_srcdir"/test/sim/sim_view.c "$top_srcdir"/test/sim/sim_view_world.c \
            "$top_srcdir"/test/sim/sim_view_stories.c "$top_srcdir"/src/view/[!v]*.c \
            "$top_srcdir/src/view/view.c" "$top_srcdir/src/view/views.c"; do # all but view_wire.c
  object "$file" "$tmp/$(basename "$file" .c).o"
done

while IFS='|' read -r name file edit; do
  case $name in *${1-}*) ;; *) continue ;; esac
  sed "$edit" "$top_srcdir/src/view/$file" >"$tmp/bug.c"
  if cmp -s "$tmp/bug.c" "$top_srcdir/src/view/$file"; then
    fail "NOT MADE: $name: $file has changed: mend this list"
    continue
  fi
  object "$tmp/bug.c" "$tmp/bug"
  good=$tmp/${file%.c}.o
  mv "$good" "$tmp/kept"
  # shellcheck disable=SC2086
  $CC -o "$tmp/sim" "$tmp"/*.o -x none "$tmp/bug"
  mv "$tmp/kept" "$good"
  status=0
  "$tmp/sim" --seeds "$seeds" >"$tmp/out" || status=$?
  for seed in $rare; do
    [ $status != 0 ] || "$tmp/sim" --seeds 1 --seed "$seed" >"$tmp/out" || status=$?
  done
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
dead-out-of-quorum|lead.c|s/quorum(&views->view.members, &b->accepted)/quorum(\&there, \&b->accepted)/
proof-without-lease|lead.c|s/covers(&b->promised, &there) && covers(&b->leases, &there)/covers(\&b->promised, \&there)/
commit-without-stayers|lead.c|s/ && covers(&b->accepted, &stay))/)/
lease-from-receipt|views.c|s/peer->returned = msg->echo;/peer->returned = now_ns;/
keep-lease-when-excluded|views.c|s/((change != NULL) && kvcl_rankset_has(&change->gone, views->me))/false/
lease-in-one-view|views.c|s/return kvcl_view_is_quorum(&next, &fresh);/return true;/
half-is-enough|view.c|s/(2 \* n > all) ||/(2 * n >= all) ||/
accept-at-once|accept.c|s/(now_ns - views->peers\[slot\].echoed_ns >= views->times.detect.dead_ns)/true/
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
failure-not-told|views.c|s/    failed = gone;/    failed = come;/
LIST
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
