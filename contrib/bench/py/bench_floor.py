#!/usr/bin/env python3
"""KVCL against its floors: contrib/bench/floor runs it, and has the help."""

import os
import statistics
import sys

import lists
import options
import report
import run_iperf
import run_kvcl
from lists import BlockList
from rounds import Results, WrongBytes, announce, measure
from run_kvcl import Failed
from targets import FRAMES, IPERF, MEMCPY, MEMCPY2, OURS, RAW, Targets

# The members of kvcl_perf's JSON that belong to each side.
LANES = (
    (MEMCPY, {"gbps": "memcpy_gbps", "p50_us": "memcpy_p50_us", "cpu_s_per_gib": "memcpy_cpu_s_per_gib"}),
    (MEMCPY2, {"gbps": "memcpy2_gbps", "p50_us": "memcpy2_p50_us", "cpu_s_per_gib": "memcpy2_cpu_s_per_gib"}),
    (RAW, {"gbps": "floor_gbps", "p50_us": "floor_p50_us", "cpu_s_per_gib": "floor_cpu_s_per_gib"}),
    (FRAMES, {"gbps": "frames_gbps", "p50_us": "frames_p50_us", "cpu_s_per_gib": "frames_cpu_s_per_gib"}),
)
SELF_TEST = [BlockList("2,000 x 4 KiB", 4096, 2000, True), BlockList("1 x 20 MiB", 20 << 20, 1, False)]


def one_list(perf, results, path, blocks, iterations):
    arguments = run_kvcl.of_list(blocks) + ["--floor"]
    if blocks.bytes > lists.MIB:
        arguments += ["--iters", str(iterations)]
    got = measure(results, (path, blocks.name, OURS), lambda: run_kvcl.run(perf, path, arguments))
    if got is None:
        return
    for who, members in LANES:
        figures = {ours: got[theirs] for ours, theirs in members.items() if got.get(theirs) is not None}
        if figures:
            results.add((path, blocks.name, who), figures)


def beside(perf, path, bulk, iterations):
    """p99 of a small get with a bulk transfer, and without."""
    got = run_kvcl.run(perf, path, ["--unit", "4K", "--count", "1", "--beside", bulk, "--iters", str(iterations)])
    gbps = got["beside_gbps"]
    print(f"  {path:4} one 4 KiB beside a bulk get of {bulk}: p99 {got['p99_us']:.1f} us, idle"
          f" {got['idle_p99_us']:.1f} us, bulk " + ("not once" if gbps is None else f"{gbps:.2f} GB/s"), flush=True)
    return got


def cold(perf, size):
    got = run_kvcl.run(perf, "shm", ["--unit", size, "--count", "1", "--iters", "1", "--cold"])
    print(f"  shm  first touch of {size}: {got['cold_ms']:.1f} ms, the second get {got['warm_ms']:.1f} ms", flush=True)
    return got


def plan(args):
    if args.self_test:
        return {path: SELF_TEST for path in args.paths}
    if args.quick:
        return {path: lists.QUICK_LISTS for path in args.paths}
    many = {"shm": lists.LISTS + lists.LATENCIES, "tcp": lists.LISTS + lists.SMALL_RUNS + lists.LATENCIES}
    return {path: many[path] for path in args.paths}


def sides(args, perf, seen):
    small = args.self_test or args.quick
    for path in args.paths:
        seen.setdefault(path, []).append(beside(perf, path, "16M" if small else "256M", 200 if small else 2000))
    if "shm" in args.paths:
        seen.setdefault("cold", []).append(cold(perf, "64M" if small else "1G"))


def run(args, results, seen):
    perf = run_kvcl.find_perf(args.build)
    stream = run_iperf.there() and not args.self_test
    if not stream:
        print("without iperf3" + ("" if args.self_test else " (Debian: iperf3)"))
    wanted = plan(args)
    for number in range(args.rounds):
        announce(number + 1, args.rounds)
        for path in args.paths:
            for blocks in wanted[path]:
                one_list(perf, results, path, blocks, args.iterations)
                if path == "tcp" and stream and blocks.bytes > lists.MIB:
                    measure(results, (path, blocks.name, IPERF), lambda: run_iperf.run(args.seconds))
        sides(args, perf, seen)
    return wanted


def judge(results, seen, wanted):
    targets = Targets(results)
    for path, blocks in ((path, one) for path, some in wanted.items() for one in some if one.count > 1):
        (targets.shared_memory if path == "shm" else targets.tcp)(blocks)
    for path in wanted:
        targets.small_beside_bulk(path, statistics.median(got["p99_us"] / got["idle_p99_us"] for got in seen[path]))
    text = "Targets (speeds by the median iteration, the median of the rounds' ratios)\n\n" + targets.text()
    if "cold" in seen:
        text += "\nFirst touch of a peer's region: " + ", ".join(
            f"{got['cold_ms']:.1f} ms (the second get {got['warm_ms']:.1f})" for got in seen["cold"]) + "\n"
    return text


def main():
    parser = options.common()
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--self-test", action="store_true")
    args = options.parse(parser)
    if args.quick or args.self_test:
        args.rounds, args.iterations, args.seconds = 1, 3, 1
    results, seen = Results(), {}
    wanted = run(args, results, seen)
    os.makedirs(args.out, exist_ok=True)
    text = report.table(results, "KVCL beside its floors", OURS) + "\n" + judge(results, seen, wanted)
    print("\n" + text)
    print("table: " + report.write(args.out, "table.txt", text))
    print("figures: " + report.write(args.out, "figures.tsv", report.figures(results)))
    report.bars(results, args.out, "lists", "Block lists: KVCL beside its floors",
                [one.name for some in wanted.values() for one in some if one.bytes > lists.MIB])
    return 1 if results.reasons else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failed, WrongBytes) as failure:
        sys.exit(f"bench/floor: {failure}")
