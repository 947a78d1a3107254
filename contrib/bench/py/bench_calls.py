"""What a call from Python costs beside the same call from C, or by two builds of the package, in turns.

    LD_LIBRARY_PATH=... python3 bench_calls.py python=FOLDER c=contrib/bench/calls/calls_bench [--rounds 7]
    LD_LIBRARY_PATH=... python3 bench_calls.py limited=FOLDER full=FOLDER

Each FOLDER holds a package kvcl; a file is the C program, built by "make contrib/bench/calls/calls_bench". All use the
same libkvcl. Two ranks over shared memory: a get of one block of 4 KiB, a get of 1,024 blocks of 4 KiB in random order,
by lists of ints and by arrays of 32-bit integers, and a match of 512 keys, which both ranks hold, by a list of bytes
and by one bytes object. A round starts the two ranks anew, for one side and then for the other;
a line has the medians over the rounds of the median call, their difference and ratio, and the load average of the
machine. For the full API of Python, build in a second folder:

    ../configure && make PYTHON_CFLAGS="$(python3-config --includes)"
"""

import argparse
import array
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time

BLOCK, BLOCKS, KEYS = 4096, 1024, 512


def median_us(call, seconds):
    """The median of single calls, for about so long."""
    until, took = time.perf_counter() + seconds, []
    while time.perf_counter() < until or len(took) < 100:
        begin = time.perf_counter_ns()
        call()
        took.append(time.perf_counter_ns() - begin)
    return statistics.median(took) / 1000


def rank(seconds):
    import kvcl
    with kvcl.Context() as context:
        world = context.world
        cache = context.cache("calls", kvcl.Layout.bytes(blocks=2 * BLOCKS, block_bytes=BLOCK))  # as the C program
        with kvcl.Store(world, dram_bytes=2 * KEYS * BLOCK, block_bytes=BLOCK) as store:
            keys = [kvcl.key_from_string(f"key {i}") for i in range(KEYS)]
            mine = range(world.rank, KEYS, world.size)
            store.put([keys[i] for i in mine], cache, list(mine)).wait()
            world.barrier()
            if world.rank == 0:
                assert store.match(keys) == KEYS
                order = random.Random(1).sample(range(BLOCKS), BLOCKS)
                into = list(range(BLOCKS, 2 * BLOCKS))
                there, here, packed = array.array("I", order), array.array("I", into), b"".join(keys)
                print(json.dumps({
                    "a get of 4 KiB": median_us(lambda: world.get(1, cache, remote=[3], local=[5]).wait(), seconds),
                    "a get of 1,024 blocks": median_us(lambda: world.get(1, cache, order, into).wait(), seconds),
                    "a get of 1,024 blocks (arrays)": median_us(lambda: world.get(1, cache, there, here).wait(),
                                                                seconds),
                    "a match of 512 keys": median_us(lambda: store.match(keys), seconds),
                    "a match of 512 keys (bytes)": median_us(lambda: store.match(packed), seconds)}))
            world.barrier()


def ranks(path, seconds):
    """What rank 0 measured."""
    program = [path, str(seconds)] if os.path.isfile(path) else [sys.executable, __file__, "--rank", "--seconds",
                                                                 str(seconds)]
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    started = [subprocess.Popen(program, stdout=subprocess.PIPE,
                                env=dict(os.environ, PYTHONPATH=path, KVCL_SIZE="2", KVCL_RANK=str(number),
                                         KVCL_RENDEZVOUS=f"tcp://127.0.0.1:{port}")) for number in range(2)]
    outs = [one.communicate()[0] for one in started]
    if any(one.returncode for one in started):
        sys.exit(f"a rank of {path} failed")
    return json.loads(outs[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="*", metavar="NAME=PATH")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each measurement")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    opt = parser.parse_args()
    if opt.rank:
        rank(opt.seconds)
        return
    builds = dict(one.split("=", 1) for one in opt.builds if "=" in one)
    if len(builds) != 2:
        parser.error("two sides are needed, NAME=PATH each")
    took = {name: [] for name in builds}
    for _ in range(opt.rounds):
        for name, folder in builds.items():
            took[name].append(ranks(os.path.abspath(folder), opt.seconds))
    first, second = builds
    print(f"{'median us':32} {first:>10} {second:>10} {'difference':>10} {first + '/' + second:>16}  "
          f"load {os.getloadavg()[0]:.1f}")
    for what in max((took[name][0] for name in builds), key=len):
        plain = what.partition(" (")[0]  # C has one form of each
        one, other = (statistics.median(each.get(what, each[plain]) for each in took[name]) for name in builds)
        print(f"{what:32} {one:10.2f} {other:10.2f} {one - other:10.2f} {one / other:16.3f}")


if __name__ == "__main__":
    main()
