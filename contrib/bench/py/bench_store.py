#!/usr/bin/env python3
"""KVCL's store against Mooncake's, in turns: contrib/bench/peers --store runs it, and has the help."""

import os
import sys

import options
import report
import run_kvcl
import run_store
from rounds import Results, WrongBytes, announce, measure
from run_kvcl import Failed

# figure, description, unit, more is better
FIGURES = (
    ("get_p50_us", "one get of 4 KiB, p50", "us", False),
    ("put_p50_us", "one put of 4 KiB, p50", "us", False),
    ("gets_per_s", "gets of one 4 KiB", "keys/s", True),
    ("puts_per_s", "puts of one 4 KiB", "keys/s", True),
    ("get64_keys_per_s", "gets of 64 x 4 KiB", "keys/s", True),
    ("exists_keys_per_s", "existence, 1,024 keys a call", "keys/s", True),
    ("bytes_per_key", "memory a key: master, directory", "bytes", False),
)
NAMES = tuple(figure for figure, _, _, _ in FIGURES)
LIST = "store"


def jobs(args):
    """path, system, the function that measures it."""
    perf = run_kvcl.find_perf(args.build)
    found = []
    for path in args.paths:
        found.append((path, "KVCL, C", lambda path=path: run_store.by_perf(perf, path, args.keys, args.memory_keys)))
        if not args.without_package:
            found.append((path, "KVCL, Python", lambda path=path: run_store.by_package(args.python, args.build, path,
                                                                                        args.keys, args.seconds)))
    for setting in ("default", "best") if "mooncake" in args.only else ():
        found.append(("tcp", f"Mooncake, {setting}", lambda setting=setting: run_store.by_mooncake(
            args.python, setting, args.keys, args.seconds)))
    return found


def times(results, key, theirs, figure, more):
    """The factor by which KVCL is better: the median of the rounds."""
    found = results.ratio(key, theirs, figure) if more else results.ratio(theirs, key, figure)
    return "-" if found is None else f"{found:.1f}"


def table(results):
    title = "KVCL's store beside Mooncake's"
    lines = [title, "=" * len(title), "", "min/median/max of the rounds; times: so many times better than Mooncake's "
             "default, and its best, the rounds' medians", "Mooncake goes over TCP, its callers are in Python."]
    theirs = [("tcp", LIST, "Mooncake, default"), ("tcp", LIST, "Mooncake, best")]
    for figure, what, unit, more in FIGURES:
        lines += ["", f"{what}, {unit}"]
        for key in results.keys():
            if key not in results.samples:
                lines.append(f"    {key[2]:20} {key[0]:5} failed: {results.reasons[key]}")
                continue
            better = [times(results, key, other, figure, more) for other in theirs] if key not in theirs else ["", ""]
            spread = report.cell(results.spread(key, figure))
            lines.append(f"    {key[2]:20} {key[0]:5} {spread:>30} {better[0]:>9} {better[1]:>9}")
    return "\n".join(lines) + "\n"


def main():
    parser = options.common()
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--only", default="mooncake", type=lambda text: text.split(","))
    parser.add_argument("--without-package", action="store_true", help="not by the Python package")
    args = options.parse(parser)
    args.keys, args.memory_keys = (2048, 50_000) if args.quick else (8192, 1 << 20)
    results = Results(NAMES)
    for number in range(args.rounds):
        announce(number + 1, args.rounds)
        for path, who, job in jobs(args):
            measure(results, (path, LIST, who), job, ("gets_per_s", "gets/s"))
    os.makedirs(args.out, exist_ok=True)
    text = table(results)
    print("\n" + text)
    print("table: " + report.write(args.out, "store.txt", text))
    print("figures: " + report.write(args.out, "store.tsv", report.figures(results)))
    return 1 if results.reasons else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failed, WrongBytes) as failure:
        sys.exit(f"bench/peers: {failure}")
