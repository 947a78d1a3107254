"""What must hold after an attack, read from what the ranks have said."""

ALLOWED = {
    "put": {"ERR_RANK_FAILED", "ERR_TIMED_OUT", "ERR_UNREACHABLE", "ERR_NO_QUORUM", "ERR_STALE"},
    "get": {"ERR_RANK_FAILED", "ERR_TIMED_OUT", "ERR_UNREACHABLE", "ERR_STALE"},
    "step": {"ERR_RANK_FAILED", "ERR_TIMED_OUT", "ERR_UNREACHABLE", "ERR_STALE", "ERR_REVOKED"},
    "agree": {"ERR_STALE"},
    "shrink": {"ERR_STALE"},
    "join": {"ERR_BUSY", "ERR_UNREACHABLE", "ERR_TIMED_OUT", "ERR_RANK_FAILED", "ERR_NO_SPACE"},
    "sync": {"ERR_STALE", "ERR_BUSY"},
    "open": {"ERR_STALE", "ERR_TIMED_OUT", "ERR_NOT_FOUND"},
    "activate": {"ERR_STALE", "ERR_TIMED_OUT", "ERR_NO_QUORUM"},
}
# Where processes join, one may agree while the others shrink: then all agree on that again.
OF_JOINS = {"agree": {"ERR_INVALID_PARAM"}, "shrink": {"ERR_INVALID_PARAM"}}


def _views(ranks):
    """All that saw a view with a number saw the same; FAILED came before the VIEW without the rank, and JOINED before
    the one with a process."""
    faults, seen = [], {}
    for rank in ranks:
        failed, joined, members = set(), set(), None
        for event in (line for line in rank.said if line["what"] == "event"):
            if event["type"] == "FAILED":
                failed |= set(event["ranks"])
            if event["type"] == "JOINED":
                joined |= set(event["ranks"])
            if event["type"] != "VIEW":
                continue
            now = set(event["ranks"])
            other = seen.setdefault(event["view"], (event["id"], now, rank.slot))
            if (event["id"], now) != other[:2]:
                faults.append(f"view {event['view']} is {sorted(now)} for rank {rank.slot} and {sorted(other[1])} for "
                              f"rank {other[2]}")
            if members is not None and not (members - now) <= failed:
                faults.append(f"rank {rank.slot}: view {event['view']} lacks {sorted(members - now - failed)}, "
                              "which it was not told of before")
            if members is not None and not (now - members) <= joined:
                faults.append(f"rank {rank.slot}: view {event['view']} has {sorted(now - members - joined)}, "
                              "of whose joining it was not told before")
            members, failed, joined = now, (failed & now) - joined, set()  # a view may still have one that has failed
    return faults


def _calls(ranks, joins):
    faults = []
    allowed = {call: {"OK"} | errors | (OF_JOINS.get(call, set()) if joins else set()) for call, errors in
               ALLOWED.items()}
    for rank in ranks:
        for line in rank.said:
            if line["what"] == "wrong":
                faults.append(f"rank {rank.slot}: wrong bytes: {line}")
            elif line["what"] == "failed" and line["status"] not in allowed[line["call"]]:
                faults.append(f"rank {rank.slot}: a {line['call']} ended with {line['status']}")
            elif line["what"] == "tally" and line["late"] != 0:
                faults.append(f"rank {rank.slot}: {line['late']} of its {line['call']}s ended late, "
                              f"at most {line['worst_over_ms']} ms after the deadline")
    return faults


def lies(ranks):
    """What is wrong whichever ranks are left."""
    return _views(ranks) + [f"rank {rank.slot}: wrong bytes: {line}" for rank in ranks for line in rank.said
                            if line["what"] == "wrong"]


def faults(ranks, survivors, missing, plan):
    """Sentences, one for each thing that is wrong. missing: acknowledged blocks that no survivor finds; the plan's
    lost: how many may be missing, None: any number."""
    lost = plan["lost"]
    wrong = _views(ranks) + _calls(ranks, plan["joins"])
    last = {(rank.view()["view"], rank.view()["id"]) for rank in survivors if rank.view()}
    if len(last) > 1:
        wrong.append(f"the last views of those that are left differ: {sorted(last)}")
    if lost is not None and missing > lost:
        wrong.append(f"{missing} acknowledged blocks are lost, {lost} allowed")
    return wrong
