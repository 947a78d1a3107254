"""What must hold after an attack, read from what the ranks have said."""

ALLOWED = {
    "put": {"ERR_RANK_FAILED", "ERR_TIMED_OUT", "ERR_UNREACHABLE", "ERR_NO_QUORUM", "ERR_STALE"},
    "get": {"ERR_RANK_FAILED", "ERR_TIMED_OUT", "ERR_UNREACHABLE", "ERR_STALE"},
    "step": {"ERR_RANK_FAILED", "ERR_TIMED_OUT", "ERR_UNREACHABLE", "ERR_STALE", "ERR_REVOKED"},
    "agree": {"ERR_STALE"},
    "shrink": {"ERR_STALE"},
}


def _views(ranks):
    """All that saw a view with a number saw the same; FAILED came before the VIEW without the rank."""
    faults, seen = [], {}
    for rank in ranks:
        failed, members = set(), None
        for event in (line for line in rank.said if line["what"] == "event"):
            if event["type"] == "FAILED":
                failed |= set(event["ranks"])
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
            members = now
    return faults


def _calls(ranks):
    faults = []
    for rank in ranks:
        for line in rank.said:
            if line["what"] == "wrong":
                faults.append(f"rank {rank.slot}: wrong bytes: {line}")
            elif line["what"] == "failed" and line["status"] not in ALLOWED[line["call"]] | {"OK"}:
                faults.append(f"rank {rank.slot}: a {line['call']} ended with {line['status']}")
            elif line["what"] == "tally" and line["late"] != 0:
                faults.append(f"rank {rank.slot}: {line['late']} of its {line['call']}s ended late, "
                              f"at most {line['worst_over_ms']} ms after the deadline")
    return faults


def lies(ranks):
    """What is wrong whichever ranks are left."""
    return _views(ranks) + [f"rank {rank.slot}: wrong bytes: {line}" for rank in ranks for line in rank.said
                            if line["what"] == "wrong"]


def faults(ranks, survivors, missing, lost):
    """Sentences, one for each thing that is wrong. missing: acknowledged blocks that no survivor finds; lost: how many
    may be missing, None: any number."""
    wrong = _views(ranks) + _calls(ranks)
    last = {(rank.view()["view"], rank.view()["id"]) for rank in survivors if rank.view()}
    if len(last) > 1:
        wrong.append(f"the last views of those that are left differ: {sorted(last)}")
    if lost is not None and missing > lost:
        wrong.append(f"{missing} acknowledged blocks are lost, {lost} allowed")
    return wrong
