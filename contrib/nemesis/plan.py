"""Plans of the nemesis: what is done to which rank, and when. A plan is JSON; parse() checks all of it before anything
runs, and random_plan() makes one from a seed."""
import json
import random

RANKS_MAX, MS_MAX = 16, 10000
ACTIONS = {
    "kill": "slots that are killed (-9)",
    "stop": "slots that are stopped; until: suspected, excluded (they go on then); or for_ms",
    "join": "slots in which processes join, free ones or those of ranks that have ended; nothing waits for that",
    "cut": "two lists of hosts that no longer reach each other; how: drop, reject; one_way: true",
    "mend": "true: all cuts end",
    "settle": "true: wait until all that are left agree and work; copies: true: and until each block has two copies",
}
OPTIONS = {"when": {"now", "failed", "suspected"}, "until": {"suspected", "excluded"}, "how": {"drop", "reject"},
           "one_way": {True, False}, "copies": {True, False}, "quorum": {True, False}}
TIMES = {"ms": "before the action", "for_ms": "for which ranks are stopped"}
PLAN = {"about", "ranks", "slots", "waits", "hosts", "path", "replicas", "lost", "phases"}


class PlanError(Exception):
    """What is wrong with a plan."""


def _slots(value, ranks, where):
    if not isinstance(value, list) or not value:
        raise PlanError(f"{where}: a list of slots is needed, not {value!r}")
    for slot in value:
        if not isinstance(slot, int) or isinstance(slot, bool) or not 0 <= slot < ranks:
            raise PlanError(f"{where}: {slot!r} is no slot of a job of {ranks} ranks")
    return list(value)


def _from_list(value, before, slots, where):
    """A phase as NIXL EP's plans have them: who is there, with those that are killed meanwhile as negative numbers. One
    that was not there before joins."""
    if not all(isinstance(slot, int) and not isinstance(slot, bool) for slot in value):
        raise PlanError(f"{where}: a list of slots is needed, not {value!r}")
    killed = sorted(-slot for slot in value if slot < 0)
    stay = {slot for slot in value if slot >= 0}
    new = sorted(slot for slot in stay - before if slot < slots)
    unknown = (stay | set(killed)) - before - set(new)
    if unknown:
        raise PlanError(f"{where}: slot {min(unknown)} is not there any more, or never was")
    left_out = before - stay - set(killed)
    if left_out:
        raise PlanError(f"{where}: slot {min(left_out)} is neither left nor killed (-{min(left_out)}; rank 0: "
                        '{"kill": [0]})')
    return ([{"join": new}] if new else []) + ([{"kill": killed}] if killed else [])


def _action(phase, plan, where):
    names = [name for name in phase if name in ACTIONS]
    if len(names) != 1:
        raise PlanError(f"{where}: exactly one of {', '.join(ACTIONS)} is needed")
    for name, value in phase.items():
        if name in OPTIONS:
            if value not in OPTIONS[name]:
                raise PlanError(f"{where}: {name} is {value!r}, not one of {sorted(map(str, OPTIONS[name]))}")
        elif name in TIMES:
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MS_MAX:
                raise PlanError(f"{where}: {name} is {value!r}, not milliseconds, 0 to {MS_MAX}")
        elif name not in ACTIONS:
            raise PlanError(f"{where}: no such word: {name!r}")
    action = dict(phase)
    if names[0] in ("kill", "stop", "join"):
        action[names[0]] = _slots(phase[names[0]], plan["slots"], where)
    elif names[0] == "cut":
        sides = phase["cut"]
        if len(plan["hosts"]) < 2:
            raise PlanError(f"{where}: a cut needs two hosts or more")
        if not isinstance(sides, list) or len(sides) != 2:
            raise PlanError(f"{where}: cut needs two lists of hosts")
        action["cut"] = [_slots(side, len(plan["hosts"]), where) for side in sides]
    return action


def check(plan, name):
    """The plan with its defaults, all phases as actions."""
    if not isinstance(plan, dict):
        raise PlanError(f"{name}: an object is needed")
    for word in plan:
        if word not in PLAN:
            raise PlanError(f"{name}: no such word: {word!r} (there are {', '.join(sorted(PLAN))})")
    plan = {"about": "", "ranks": 4, "path": "shm", "replicas": 2, "lost": 0, "waits": False, **plan}
    ranks = plan["ranks"]
    if not isinstance(ranks, int) or not 2 <= ranks <= RANKS_MAX:
        raise PlanError(f"{name}: ranks is {ranks!r}, not 2 to {RANKS_MAX}")
    slots = plan.setdefault("slots", ranks)
    if not isinstance(slots, int) or not ranks <= slots <= RANKS_MAX:
        raise PlanError(f"{name}: slots is {slots!r}, not {ranks} (ranks) to {RANKS_MAX}")
    plan.setdefault("hosts", [list(range(slots))])
    placed = sorted(slot for host in plan["hosts"] for slot in _slots(host, slots, f"{name}: hosts"))
    if placed != list(range(slots)):
        raise PlanError(f"{name}: hosts must have each slot once")
    if plan["path"] not in ("shm", "tcp") or (plan["path"] == "shm" and len(plan["hosts"]) > 1):
        raise PlanError(f"{name}: path is {plan['path']!r}: shm, or tcp, which several hosts need")
    if not isinstance(plan.get("phases"), list) or not plan["phases"]:
        raise PlanError(f"{name}: phases is needed, a list")
    phases, alive, came = [], set(range(ranks)), set()
    for i, phase in enumerate(plan["phases"]):
        where = f"{name}: phase {i + 1}"
        if isinstance(phase, list):
            actions = _from_list(phase, alive, slots, where)
        elif isinstance(phase, dict):
            actions = [_action(phase, plan, where)]
        else:
            raise PlanError(f"{where}: an object or a list of slots is needed")
        for action in actions:
            for slot in action.get("kill", []):
                if slot not in alive:
                    raise PlanError(f"{where}: slot {slot} " + ("was killed before" if slot < ranks or slot in came else
                                                                "has no process"))
                alive.discard(slot)
            for slot in action.get("join", []):
                if slot in alive:
                    raise PlanError(f"{where}: slot {slot} has a process: nobody can join in it")
                alive.add(slot)
                came.add(slot)
            if "stop" in action and action.get("until") == "excluded":
                alive -= set(action["stop"])
        if not alive:
            raise PlanError(f"{where}: nobody is left")
        phases += actions
    return {**plan, "phases": phases, "joins": bool(came) or slots > ranks}


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return check(json.load(file), path)
    except json.JSONDecodeError as error:
        raise PlanError(f"{path}: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"{path}: {error}") from None


def has_quorum(view, left):
    """Whether these members of a view can go on (contrib/doc/failures)."""
    return 2 * len(left) > len(view) or (2 * len(left) == len(view) and min(view) in left)


def random_plan(seed, ranks, path, actions):
    """Kills, also of several at once and during a recovery, and stops, short and long ones. Rank 0 goes first in every
    second plan. Those that are left always have a quorum: where it takes a view without those that went before, the
    plan waits for it."""
    rnd = random.Random(seed)
    view, alive, phases = list(range(ranks)), list(range(ranks)), []

    def may_lose(victim):
        nonlocal view
        left = [slot for slot in alive if slot != victim]
        if not has_quorum(view, left) and view != alive:
            phases.append({"settle": True, "copies": rnd.random() < 0.5})
            view = list(alive)
        return has_quorum(view, left)

    while actions > 0 and len(alive) > 1:
        actions -= 1
        victim = 0 if not phases and seed % 2 == 0 else rnd.choice(alive)
        kind = rnd.choice(("kill", "kill", "two", "short", "long"))
        if not may_lose(victim):
            continue
        if kind == "short" and len(alive) > 2:
            phases.append({"stop": [victim], "until": "suspected"})
            continue
        alive.remove(victim)
        if kind == "long" and len(alive) > 1:
            phases.append({"stop": [victim], "until": "excluded"})
            view = list(alive)
        else:
            phases.append({"kill": [victim]})
        second = rnd.choice(alive)
        if kind == "two" and has_quorum(view, [slot for slot in alive if slot != second]):
            alive.remove(second)
            phases.append({"kill": [second], "when": "failed"})
        elif rnd.random() < 0.5:
            phases.append({"settle": True, "copies": True})
            view = list(alive)
    if not phases:
        phases.append({"settle": True, "copies": True})
    return check({"about": f"random plan {seed}", "ranks": ranks, "path": path, "phases": phases,
                  "lost": _may_lose(phases)}, "random")


def _may_lose(phases):
    """How many blocks may be missing: none if all had two copies between any two deaths."""
    deaths = [i for i, phase in enumerate(phases) if "kill" in phase or phase.get("until") == "excluded"]
    repaired = all(any(phase.get("copies") for phase in phases[a:b]) for a, b in zip(deaths, deaths[1:]))
    return 0 if repaired else None


def random_join_plan(seed, ranks, path, actions):
    """Processes join in free slots and in those of the dead, one or two at a time, while a member or one that joins is
    killed or stopped at a random moment. Those that are left have a quorum of the view with those that join, and of the
    one without them; where a machine is so slow that a stopped rank is excluded, an action that would take the quorum
    is left out (quorum). Every third plan has processes that wait until they are activated."""
    rnd = random.Random(seed)
    slots = min(ranks + 2, RANKS_MAX)
    alive, empty, phases = list(range(ranks)), list(range(ranks, slots)), []

    def may_lose(victim, coming):
        left = [slot for slot in alive if slot != victim]
        return all(has_quorum(view, [slot for slot in view if slot in left or slot in coming and slot != victim])
                   for view in (alive, sorted(alive + coming)))

    def moment():
        return {"ms": rnd.choice((0, rnd.randrange(60), rnd.randrange(600)))}

    for _ in range(actions):
        coming = rnd.sample(empty, min(len(empty), rnd.choice((1, 1, 2)))) if rnd.random() < 0.85 else []
        if coming:
            phases.append({"join": coming, **moment()})
        victim = rnd.choice(alive + coming)
        kind = rnd.choice(("kill", "kill", "short", "moment", "long", "none"))
        gone = [victim] if kind in ("kill", "long") and may_lose(victim, coming) else []
        if gone and kind == "kill":
            phases.append({"kill": gone, "quorum": True, **moment()})
        elif gone and victim in alive:
            phases.append({"stop": gone, "until": "excluded", "quorum": True, **moment()})
        elif kind == "short" and victim in alive:
            phases.append({"stop": [victim], "until": "suspected", **moment()})
        else:
            gone = []
            if kind != "none":
                phases.append({"stop": [victim], "for_ms": rnd.randrange(50, 700), **moment()})
        alive = [slot for slot in alive + coming if slot not in gone]
        empty = [slot for slot in range(slots) if slot not in alive]
        phases.append({"settle": True, "copies": True})
    return check({"about": f"random plan {seed} with joins", "ranks": ranks, "slots": slots, "path": path,
                  "phases": phases, "lost": _may_lose(phases), "waits": seed % 3 == 2}, "random")
