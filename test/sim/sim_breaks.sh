#!/bin/sh
# The simulator must detect each deliberate bug within 10,000 seeds (sim_dir: or in a seed that it remembers), and the
# seed that detects it must replay to the same sentence. A simulator that detects nothing proves nothing.
# TEST_TIMEOUT: 1800
set -eu
dir=${top_builddir:?}/test/sim
failed=0
passed=0

for which in sim_dir:no-gen-bump sim_dir:publish-before-bytes sim_dir:late-remove-ignores-gen sim_dir:skip-gen-check \
             sim_dir:compare-first sim_dir:no-read-fence sim_dir:no-write-fence \
             sim_dir:stale-incarnation sim_dir:gens-with-bytes sim_dir:no-entry-check sim_dir:home-behind \
             sim_copies:one-home sim_copies:answer-before-listed sim_copies:ack-before-copies \
             sim_tier:demote-unchecked sim_tier:stage-unverified sim_tier:trust-place sim_tier:recycle-quietly \
             sim_sizes:same-generation sim_sizes:vacate-filling sim_sizes:forget-border sim_sizes:copy-unchecked \
             sim_sizes:compare-first sim_sizes:late-generation \
             sim_ep:tags-without-step sim_ep:lost-rows-count sim_ep:no-skip sim_ep:no-beats \
             sim_store:no-lease sim_store:before-commit sim_store:stale-sender sim_store:no-walk sim_store:ask-new \
             sim_store:any-incarnation sim_store:take-unsettled sim_store:early-get sim_store:no-drain \
             sim_store:forget-old sim_store:sure-of-none sim_store:unheard-holders \
             sim_job:old-view sim_job:any-comm sim_job:no-revoke sim_job:deaf-exec sim_job:own-map \
             sim_job:view-map sim_job:trust-all sim_job:no-mask sim_job:old-rows; do
    sim=$dir/${which%%:*} bug=${which#*:}
    status=0
    first=$("$sim" --seeds 10000 --break "$bug") || status=$?
    line=$(printf '%s\n' "$first" | sed -n 1p)
    seed=$(printf '%s\n' "$line" | sed -n 's/^seed \([0-9]*\) step [0-9]*: [A-Z][A-Za-z]*: .*/\1/p')
    if [ "$status" -ne 1 ] || [ -z "$seed" ]; then
        echo "NOT CAUGHT: $bug (exit status $status)"
        failed=$((failed + 1))
        continue
    fi
    again=$("$sim" --seeds 1 --seed "$seed" --break "$bug" | sed -n 1p)
    if [ "$again" != "$line" ]; then
        echo "NOT REPLAYED: $bug: '$line' became '$again'"
        failed=$((failed + 1))
        continue
    fi
    if ! "$sim" --seeds 1 --seed "$seed" >/dev/null; then
        echo "NOT THE BUG: seed $seed fails without $bug as well"
        failed=$((failed + 1))
        continue
    fi
    echo "caught $bug: $line"
    passed=$((passed + 1))
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
