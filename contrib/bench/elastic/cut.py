#!/usr/bin/env python3
"""From a cut link between two hosts to what the ranks of both sides are told: contrib/bench/elastic/cut.py, as root.

Hosts are network namespaces and ranks those of the nemesis (make -C build contrib/nemesis/nemesis_rank), which put, get
and step meanwhile. Each round is a new job whose link is cut, both ways. One line for each figure, as those of elastic.
The side with the lowest rank is told SUSPECT, FAILED and the view without the others; the other side has no quorum: it
is told SUSPECT, and, after the link is back, that it is excluded (counted from then).
"""
import argparse
import os
import sys
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "nemesis"))
# pylint: disable=wrong-import-position
from hosts import Hosts, HostsError
from ranks import Ranks


def told(ranks, others, kind, since_ns):
    """For each rank and each other one: ms from then until the rank was told of it."""
    took = []
    for rank in ranks:
        for other in others:
            found = [event["ns"] for event in rank.events(kind) if event["ns"] > since_ns and
                     (other.slot in event["ranks"]) == (kind != "VIEW")]
            if not found:
                return None
            took.append((min(found) - since_ns) / 1e6)
    return took


def wait_told(job, figures, what, side, others, since_ns):
    job.until(f"told of {what}", lambda: told(side, others, what[2], since_ns) is not None)
    figures.setdefault(what, []).extend(told(side, others, what[2], since_ns))


def one(options, how, figures):
    half = options.ranks // 2
    plan = {"ranks": options.ranks, "hosts": [list(range(half)), list(range(half, options.ranks))], "path": "tcp",
            "replicas": 2}
    hosts = job = None
    try:
        hosts = Hosts(2)
        job = Ranks(plan, options.program, hosts, 1, 1000, lambda rank, said: None)
        job.until("all ranks step", lambda: all(rank.last("step") and rank.view() for rank in job.ranks))
        time.sleep(0.5)
        job.until("all ranks step", lambda: all(rank.last("step") for rank in job.ranks))
        sides = (job.ranks[:half], job.ranks[half:])
        since = time.monotonic_ns()
        hosts.cut([[0], [1]], how, False)
        for name, side, others, kind in (("lower", *sides, "SUSPECT"), ("other", *sides[::-1], "SUSPECT"),
                                         ("lower", *sides, "FAILED"), ("lower", *sides, "VIEW")):
            wait_told(job, figures, (how, name, kind), side, others, since)
        since = time.monotonic_ns()
        hosts.mend()
        job.until("the other side is excluded", lambda: all(rank.events("EXCLUDED") for rank in sides[1]))
        figures.setdefault((how, "other", "EXCLUDED"), []).extend(
            (rank.events("EXCLUDED")[0]["ns"] - since) / 1e6 for rank in sides[1])
    finally:
        if job:
            job.close()
        if hosts:
            hosts.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5, help="jobs for each kind of cut")
    parser.add_argument("--program", default="build/contrib/nemesis/nemesis_rank", help="the rank's program")
    options = parser.parse_args()
    figures = {}
    try:
        for how in ("drop", "reject"):
            for _ in range(options.rounds):
                one(options, how, figures)
    except HostsError as error:
        print(f"SKIP: {error}")
        return 77
    print(f"{'what':44} {'p50':>9} {'p99':>9} {'most':>9} unit {'times':>9}   wanted")
    for (how, name, kind), took in figures.items():
        took.sort()
        wanted = {"SUSPECT": "400", "FAILED": "1500"}.get(kind, "")
        print(f"{how + ', to ' + kind + ', ' + name + ' side':44} {took[len(took) // 2]:9.0f} "
              f"{took[(len(took) - 1) * 99 // 100]:9.0f} {took[-1]:9.0f} ms   {len(took):9}   {wanted}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
