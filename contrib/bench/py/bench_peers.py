#!/usr/bin/env python3
"""The peers' benchmark after the installation: contrib/bench/peers runs it, and has the help."""

import os
import sys

import lists
import options
import report
import run_kvcl
import run_peer
from rounds import Results, WrongBytes, announce, measure
from run_kvcl import Failed

OURS = "KVCL"
PEERS = (
    ("plugin", "NIXL by KVCL's plugin", ("shm", "tcp"), ("default",)),
    ("nixl", "NIXL", ("shm", "tcp"), ("default", "best")),
    ("mooncake", "Mooncake", ("tcp",), ("default", "best")),
)


def ours(perf, path, blocks):
    return lambda: run_kvcl.run(perf, path, run_kvcl.of_list(blocks))


def theirs(args, who, path, setting, blocks):
    return lambda: run_peer.run(args.python, who, path, setting, [blocks], args.seconds,
                                run_peer.environment(args.build, who))[0]


def one_list(args, perf, results, path, blocks):
    measure(results, (path, blocks.name, OURS), ours(perf, path, blocks))
    for who, name, paths, settings in PEERS:
        for setting in settings:
            if path in paths and who in args.only:
                measure(results, (path, blocks.name, f"{name}, {setting}"), theirs(args, who, path, setting, blocks))


def run(args, results):
    perf = run_kvcl.find_perf(args.build)
    blocks = lists.QUICK_LISTS + lists.LATENCIES if args.quick else lists.LISTS + lists.LATENCIES
    sweep = lists.QUICK_SWEEP if args.quick else lists.SWEEP
    for number in range(args.rounds):
        announce(number + 1, args.rounds)
        for path in args.paths:
            for wanted in blocks + [one for one in sweep if one not in lists.LATENCIES]:
                one_list(args, perf, results, path, wanted)
    return blocks, sweep


def main():
    parser = options.common()
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--only", default="nixl,mooncake", type=lambda text: text.split(","))
    args = options.parse(parser)
    results = Results()
    blocks, sweep = run(args, results)
    os.makedirs(args.out, exist_ok=True)
    text = report.table(results, "KVCL beside its peers", OURS)
    print("\n" + text)
    print("table: " + report.write(args.out, "table.txt", text))
    print("figures: " + report.write(args.out, "figures.tsv", report.figures(results)))
    report.bars(results, args.out, "lists", "Block lists, random order: KVCL beside its peers",
                [one.name for one in blocks if one.count > 1 or one.unit > lists.MIB])
    report.curves(results, args.out, "sweep", "One get: KVCL beside its peers", {one.name: one.unit for one in sweep})
    return 1 if results.reasons else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failed, WrongBytes) as failure:
        sys.exit(f"bench/peers: {failure}")
