#!/usr/bin/env python3
"""
Measures one peer on some lists with two processes: the initiator (this one) reads the blocks of the target (its
child). The target refills them before the first and before the last read of each list; both reads are verified. Prints
one JSON object per list.

    peer.py NAME --path shm|tcp --setting default|best --lists UNIT:COUNT:ORDER[,...] [--seconds S]
"""

import argparse
import importlib
import json
import mmap
import os
import socket
import subprocess
import sys
import time

import numpy as np

import pattern
from line import Line
from lists import BlockList

LEAST_ITERATIONS = 3


def allocate(size):
    memory = np.frombuffer(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype=np.uint8)
    memory[:] = 0
    return memory


def open_peer(args, role):
    lists = [BlockList.parse(text) for text in args.lists.split(",")]
    memory = allocate(max(blocks.bytes for blocks in lists))
    return importlib.import_module(f"peer_{args.name}").Peer(args.path, args.setting, role, memory), lists, memory


def target(args):
    line = Line(socket.socket(fileno=args.target))
    peer, lists, memory = open_peer(args, "target")
    line.say(**peer.card())
    peer.meet(line.hear())
    line.say(met=True)
    busy = True  # the connection may need both sides until the first read has ended
    while True:
        while busy and not line.waiting():
            peer.poll()
        asked = line.hear()
        if asked["do"] == "quit":
            break
        if asked["do"] == "fill":
            blocks = lists[asked["list"]]
            pattern.fill(memory, blocks, pattern.orders(blocks)[1], asked["generation"])
        if asked["do"] == "settled":
            busy = peer.busy
        line.say(cpu=time.process_time())
    peer.close()
    os._exit(0)


def once(peer):
    start = time.perf_counter_ns()
    peer.post()
    posted = time.perf_counter_ns()
    peer.wait()
    return posted - start, time.perf_counter_ns() - start


def measure(peer, line, memory, number, blocks, seconds):
    here, there = pattern.orders(blocks)
    generation = 2 * number + 1
    line.ask(do="fill", list=number, generation=generation)
    memory[: blocks.bytes] = 0
    start = time.perf_counter_ns()
    peer.prepare(here, there, blocks.unit)
    prepared = time.perf_counter_ns() - start
    once(peer)
    wrong = pattern.wrong(memory, blocks, here, generation)
    far = line.ask(do="settled")["cpu"]
    near = time.process_time()
    took, posts = [], []
    end = time.perf_counter_ns() + int(seconds * 1e9)
    while len(took) < LEAST_ITERATIONS or time.perf_counter_ns() < end:
        posted, all_of_it = once(peer)
        posts.append(posted)
        took.append(all_of_it)
    near = time.process_time() - near
    far = line.ask(do="cpu")["cpu"] - far
    line.ask(do="fill", list=number, generation=generation + 1)
    once(peer)
    wrong += pattern.wrong(memory, blocks, here, generation + 1)
    moved = blocks.bytes * len(took)
    return {
        "list": blocks.spell(),
        "gbps": moved / sum(took),
        "p50_us": float(np.percentile(took, 50)) / 1e3,
        "p99_us": float(np.percentile(took, 99)) / 1e3,
        "post_ns_per_run": float(np.median(posts)) / min(blocks.count, peer.most),
        "prepare_ns_per_run": prepared / blocks.count,
        "cpu_s_per_gib": (near + far) / (moved / 2**30),
        "iterations": len(took),
        "wrong": wrong,
    }


def initiator(args):
    mine, theirs = socket.socketpair()
    child = subprocess.Popen([sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--target",
                              str(theirs.fileno())], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL)
    theirs.close()
    try:
        line = Line(mine)
        peer, lists, memory = open_peer(args, "initiator")
        peer.meet(line.hear())
        line.ask(**peer.card())
        for number, blocks in enumerate(lists):
            print(json.dumps(measure(peer, line, memory, number, blocks, args.seconds)), flush=True)
        line.say(do="quit")
        child.wait(timeout=20)
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=("nixl", "plugin", "mooncake"))
    parser.add_argument("--path", choices=("shm", "tcp"), required=True)
    parser.add_argument("--setting", choices=("default", "best"), default="default")
    parser.add_argument("--lists", required=True)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--cores", help="two, A,B: one for each process")
    parser.add_argument("--target", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.cores is not None:
        os.sched_setaffinity(0, {int(args.cores.split(",")[0 if args.target is None else 1])})
    if args.target is not None:
        target(args)
    else:
        initiator(args)
        sys.stdout.flush()
        os._exit(0)  # the peers' destructors at exit are not measured


if __name__ == "__main__":
    main()
