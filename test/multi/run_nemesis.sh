#!/bin/sh
# Ranks under attack (contrib/nemesis): killed, stopped, cut off from each other, by plans and at random. TEST_SEED=N
# repeats the random ones. First, plans that are none are refused. Those with joins: run_nemesis_joins.sh.
#   gate   the plans of one host
#   night  also those of several hosts, and 20 random plans each over shared memory and TCP
# TEST_TIMEOUT: 1800
set -eu
. "$(dirname "$0")/attack.sh"

# refused TEXT PLAN: the plan is none, and the error has this text.
refused() {
  printf '%s' "$2" >"$tmp/plan.json"
  rc=0
  python3 "$nemesis/run" "$tmp/plan.json" >"$tmp/out" 2>&1 || rc=$?
  if [ $rc = 2 ] && grep -qF "$1" "$tmp/out"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAIL: status $rc, no '$1' for $2"
    cat "$tmp/out"
  fi
}

refused 'line 1, column' '{"ranks": '
refused "no such word: 'rank'" '{"rank": 4, "phases": [{"mend": true}]}'
refused 'ranks is 99' '{"ranks": 99, "phases": [{"mend": true}]}'
refused 'phases is needed' '{"ranks": 4}'
refused '7 is no slot' '{"ranks": 4, "phases": [{"kill": [7]}]}'
refused 'slot 2 was killed before' '{"ranks": 4, "phases": [{"kill": [2]}, {"kill": [2]}]}'
refused 'neither left nor killed' '{"ranks": 4, "phases": [[0, 1, 2]]}'
refused 'slot 5 is not there' '{"ranks": 4, "phases": [[0, 1, 2, 3, 5]]}'
refused 'nobody is left' '{"ranks": 2, "phases": [{"kill": [0, 1]}]}'
refused 'two hosts or more' '{"ranks": 4, "phases": [{"cut": [[0], [1]]}]}'
refused 'each slot once' '{"ranks": 4, "hosts": [[0, 1], [1, 2]], "path": "tcp", "phases": [{"mend": true}]}'
refused 'slots is 3' '{"ranks": 4, "slots": 3, "phases": [{"kill": [1]}]}'
refused 'slot 1 has a process' '{"ranks": 4, "slots": 6, "phases": [{"join": [4]}, {"join": [1]}]}'
refused 'slot 5 has no process' '{"ranks": 4, "slots": 6, "phases": [{"join": [4]}, {"kill": [5]}]}'
refused 'ms is -1, not milliseconds' '{"ranks": 4, "phases": [{"kill": [1], "ms": -1}]}'
refused "how is 'eat'" '{"ranks": 2, "hosts": [[0], [1]], "path": "tcp", "phases": [{"cut": [[0], [1]], "how": "eat"}]}'

# Random plans always leave a quorum of the last view that they waited for: otherwise the ranks could not go on.
if PYTHONPATH=$nemesis python3 - <<'PLANS'; then
import plan

kinds = set()
for seed in range(2000):
    for ranks in (2, 3, 4, 5, 8):
        view = alive = list(range(ranks))
        for phase in plan.random_plan(seed, ranks, "shm", 4)["phases"]:
            kinds |= set(phase)
            stopped = phase.get("stop", [])
            left = [slot for slot in alive if slot not in phase.get("kill", []) + stopped]
            assert 2 * len(left) > len(view) or 2 * len(left) == len(view) and min(view) in left, (seed, ranks, phase)
            alive = alive if phase.get("until") == "suspected" else left
            view = alive if phase.get("settle") or phase.get("until") == "excluded" else view
assert {"kill", "stop", "settle", "when"} <= kinds, kinds

# Those with joins: of the view with those that join since it was settled, and of the one without them.
kinds = set()
for seed in range(1000):
    for ranks in (3, 4, 5):
        made = plan.random_join_plan(seed, ranks, "shm", 4)
        assert made["lost"] == 0, seed
        view, coming = list(range(ranks)), []
        for phase in made["phases"]:
            kinds |= set(phase)
            coming += phase.get("join", [])
            gone = phase.get("kill", []) + (phase.get("stop", []) if phase.get("until") == "excluded" else [])
            for members in (view, sorted(view + coming)):
                assert plan.has_quorum(members, [slot for slot in members if slot not in gone]), (seed, ranks, phase)
            if phase.get("settle"):
                view, coming = sorted(view + coming), []
            view, coming = ([slot for slot in some if slot not in gone] for some in (view, coming))
assert {"kill", "stop", "settle", "join", "ms", "for_ms"} <= kinds, kinds
PLANS
  passed=$((passed + 1))
else
  failed=$((failed + 1))
  echo "FAIL: a random plan leaves no quorum"
fi

# A failure is told once, and a view that was under way may still have the rank. Then another process joins in the slot.
if PYTHONPATH=$nemesis python3 - <<'EVENTS'; then
import types

import verdict


def said(*events):
    lines = [{"what": "event", "type": kind, "view": view, "id": view, "ranks": of} for kind, view, of in events]
    return verdict.lies([types.SimpleNamespace(slot=0, said=lines)])


story = [("VIEW", 1, [0, 1, 2, 3]), ("FAILED", 1, [2]), ("FAILED", 1, [3]), ("VIEW", 2, [0, 1, 3]), ("VIEW", 3, [0, 1])]
assert said(*story) == [], said(*story)
story += [("JOINED", 3, [3]), ("VIEW", 4, [0, 1, 3])]
assert said(*story) == [], said(*story)
assert "lacks [3]" in said(*story, ("VIEW", 5, [0, 1]))[0]
story = [("VIEW", 1, [0, 1, 2]), ("FAILED", 1, [2]), ("JOINED", 1, [2]), ("VIEW", 2, [0, 1, 2])]
assert "lacks [2]" in said(*story, ("VIEW", 3, [0, 1]))[0]
EVENTS
  passed=$((passed + 1))
else
  failed=$((failed + 1))
  echo "FAIL: events in their order are no fault"
fi

# A stop until the rank is suspected ends by a suspicion of that rank, and of that stop. Rank 2 is stopped, rank 0, and
# rank 2 again, while lines are read: some ranks notice the first stop when it is over.
if PYTHONPATH=$nemesis python3 - "$nemesis/run" <<'STOPS'; then
import importlib.machinery
import importlib.util
import json
import queue
import signal
import sys

import ranks

loader = importlib.machinery.SourceFileLoader("run", sys.argv[1])
run = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", loader))
loader.exec_module(run)
lines = [(3, "SUSPECT", 2), (0, "SUSPECT", 2), (1, "SUSPECT", 2), (1, "SUSPECT", 0), (0, "ALIVE_AGAIN", 2),
         (1, "ALIVE_AGAIN", 2), (3, "ALIVE_AGAIN", 2), (1, "SUSPECT", 2)]
signals = []  # each with the number of lines that were read before it

job = ranks.Ranks.__new__(ranks.Ranks)
job.ranks = [ranks.Rank(slot, 0) for slot in range(4)]
job.newest, job.lines, job.tell = dict(enumerate(job.ranks)), queue.Queue(), lambda rank, said: None
job.signal = lambda rank, number: signals.append((signal.Signals(number).name, rank.slot,
                                                  len(lines) - job.lines.qsize()))
for slot, kind, of in lines:
    job.lines.put((job.ranks[slot], json.dumps({"what": "event", "type": kind, "view": 1, "ranks": [of]})))
attack = run.Attack.__new__(run.Attack)
attack.job, attack.quiet, ranks.PATIENCE = job, True, 1.0
for slot in (2, 0, 2):
    attack.stop({"stop": [slot], "until": "suspected"})
assert signals == [("SIGSTOP", 2, 0), ("SIGCONT", 2, 1), ("SIGSTOP", 0, 1), ("SIGCONT", 0, 4),
                   ("SIGSTOP", 2, 7), ("SIGCONT", 2, 8)], signals
STOPS
  passed=$((passed + 1))
else
  failed=$((failed + 1))
  echo "FAIL: a stop ends by the suspicion of another one"
fi

attack --seed "$seed" "$plans/tail.json" "$plans/first.json" "$plans/half.json" "$plans/zombie.json"
if [ "${TEST_RING:-gate}" != gate ]; then
  attack --seed "$seed" "$plans/one_way.json" "$plans/three_hosts.json" "$plans/pair.json" "$plans/reject.json"
  attack --seed "$seed" --random 20
  attack --seed $((seed + 20)) --random 20 --path tcp --ranks 5
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
