#!/bin/sh
# Processes join a job under attack (contrib/nemesis): in the slots of killed ranks and in free ones, while they or
# members are killed, stopped or cut off. TEST_SEED=N repeats the random plans.
#   gate   one plan of one host
#   night  also one where members activate those that join, one of three hosts, and 10 random ones each over shared
#          memory and TCP
# TEST_TIMEOUT: 1200
set -eu
. "$(dirname "$0")/attack.sh"

attack --seed "$seed" "$plans/join.json"
if [ "${TEST_RING:-gate}" != gate ]; then
  attack --seed "$seed" "$plans/join_waits.json" "$plans/join_cut.json"
  attack --seed $((seed + 40)) --joins --random 10
  attack --seed $((seed + 50)) --joins --random 10 --path tcp
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
