#!/usr/bin/env python3
"""
Measures one store by its Python API with two processes. The holder (a child of this one) puts blocks into its own
memory, one at a time and in batches. The getter (this process) gets them, one at a time in random order and in batches
of 64, and queries keys in batches of 1,024. Every block got is verified, outside of the measured time. Prints one JSON
object.

    store_peer.py NAME --path shm|tcp --setting default|best --keys N [--seconds S] [--address WHERE] [--master PID]
"""

import argparse
import hashlib
import importlib
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time

from line import Line

BLOCK = 4096
BATCH = 64
ASK = 1024
SMALL_KEYS = 100_000  # for the measurement of a key's memory


def content(number):
    """Block `number`: all blocks differ."""
    return hashlib.shake_128(str(number).encode()).digest(BLOCK)


def resident(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def open_store(args, role):
    kind = importlib.import_module(f"store_{args.name}").Store
    return kind(args.path, args.setting, role, args.address, BLOCK, BATCH)


def timed(seconds, each, most=None):
    """Call each() repeatedly; the times of the calls in ns."""
    took = []
    end = time.perf_counter_ns() + int(seconds * 1e9)
    while (time.perf_counter_ns() < end or len(took) < 3) and (most is None or len(took) < most):
        took.append(each())
    return took


def clock(call):
    start = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - start


def put_single(store, args):
    """Separate keys, fewer than there is room for."""
    keys = store.keys(f"single {args.path}", args.keys)
    contents = [content(number) for number in range(args.keys)]
    number = iter(range(args.keys))

    def each():
        at = next(number)
        store.fill(0, contents[at])
        return clock(lambda: store.put(keys[at]))

    return timed(args.seconds, each, args.keys)


def put_all(store, args):
    keys = store.keys(f"all {args.path}", args.keys)
    for first in range(0, args.keys, BATCH):
        n = min(BATCH, args.keys - first)
        for place in range(n):
            store.fill(place, content(first + place))
        store.put_many(keys[first:first + n])


def bytes_of_keys(store, args):
    """The growth of the master for each of many small objects."""
    before = resident(args.master)
    store.put_small("small", SMALL_KEYS)
    return (resident(args.master) - before) / SMALL_KEYS


def holder(args):
    line = Line(socket.socket(fileno=args.holder))
    store = open_store(args, "holder")
    line.say(ready=True)
    while True:
        asked = line.hear()["do"]
        if asked == "quit":
            break
        if asked == "put":
            took = put_single(store, args)
            line.say(took=took)
        elif asked == "all":
            put_all(store, args)
            line.say(done=True)
        else:
            line.say(bytes=bytes_of_keys(store, args))
    line.say(done=True)
    store.close()
    os._exit(0)


class Getter:
    def __init__(self, store, args):
        self.store, self.args, self.wrong = store, args, 0
        self.keys = store.keys(f"all {args.path}", args.keys)
        self.contents = [content(number) for number in range(args.keys)]  # so that little time passes between calls
        self.random = random.Random(20)

    def check(self, places):
        for place, number in enumerate(places):
            self.wrong += self.store.block(place) != self.contents[number]
            self.store.wipe(place)

    def single(self):
        number = self.random.randrange(self.args.keys)
        took = clock(lambda: self.store.get(self.keys[number]))
        self.check([number])
        return took

    def batch(self):
        first = self.random.randrange(self.args.keys - BATCH)
        keys = self.keys[first:first + BATCH]
        took = clock(lambda: self.store.get_many(keys))
        self.check(range(first, first + BATCH))
        return took

    def ask(self):
        first = self.random.randrange(self.args.keys - ASK)
        keys = self.store.asked(self.keys[first:first + ASK])
        found = 0

        def call():
            nonlocal found
            found = self.store.exists(keys)

        took = clock(call)
        self.wrong += ASK - found
        return took


def rate(took, each):
    return each * len(took) * 1e9 / sum(took)


def measure(args, line):
    store = open_store(args, "getter")
    getter = Getter(store, args)
    line.hear()
    puts = line.ask(do="put")["took"]
    line.ask(do="all")
    getter.single()
    gets = timed(args.seconds, getter.single)
    batches = timed(args.seconds, getter.batch)
    asks = timed(args.seconds, getter.ask)
    figures = {
        "put_p50_us": statistics.median(puts) / 1e3,
        "puts_per_s": rate(puts, 1),
        "get_p50_us": statistics.median(gets) / 1e3,
        "gets_per_s": rate(gets, 1),
        "get64_keys_per_s": rate(batches, BATCH),
        "exists_keys_per_s": rate(asks, ASK),
        "bytes_per_key": line.ask(do="memory")["bytes"] if args.master else None,
        "wrong": getter.wrong,
    }
    line.ask(do="quit")
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=("kvcl", "mooncake"))
    parser.add_argument("--path", choices=("shm", "tcp"), required=True)
    parser.add_argument("--setting", choices=("default", "best"), default="default")
    parser.add_argument("--keys", type=int, default=8192)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--address", required=True, help="where the two meet")
    parser.add_argument("--master", type=int, help="whose memory a key is counted in")
    parser.add_argument("--cores", help="two, A,B: one for each process")
    parser.add_argument("--holder", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.cores is not None:
        os.sched_setaffinity(0, {int(args.cores.split(",")[0 if args.holder is None else 1])})
    if args.holder is not None:
        holder(args)
    mine, theirs = socket.socketpair()
    child = subprocess.Popen([sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--holder",
                              str(theirs.fileno())], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL)
    theirs.close()
    try:
        print(json.dumps(measure(args, Line(mine))), flush=True)
        child.wait(timeout=20)
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
    sys.stdout.flush()
    os._exit(0)  # destructors at exit are not measured


if __name__ == "__main__":
    main()
