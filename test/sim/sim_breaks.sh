#!/bin/sh
# Each deliberate bug must be caught by the simulator within 10,000 seeds, and the seed that catches it
# must replay to the same sentence. A simulator that catches nothing shows nothing.
set -eu
sim=${top_builddir:?}/test/sim/sim_dir
failed=0
passed=0

for bug in no-gen-bump publish-before-bytes late-remove-ignores-gen skip-gen-check stale-incarnation \
           no-entry-check; do
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
