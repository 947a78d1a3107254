#!/usr/bin/env python3
"""Route requests to where their prefix is cached, by following a store's events.

    mpirun -n 4 python3 route_by_cache.py

The last rank plays a router, the others workers with a pool each. A conversation returns repeatedly, each time with one
turn more. The router sends no query when a request arrives: it has a snapshot of the blocks of each rank and applies
the events since, so it knows the rank with the longest prefix, and sends the request there. Occasionally it moves the
blocks of a conversation to a worker with less load, and receives that change, like any other, by events.
"""

import hashlib
import queue
import sys
import threading
from typing import Dict, List, Set

import kvcl

TOKENS = 16
CONVERSATIONS, TURNS, BLOCKS_A_TURN = 12, 4, 4
LAYOUT = kvcl.Layout(layers=2, blocks=CONVERSATIONS * TURNS * BLOCKS_A_TURN, tokens=TOKENS, heads=2, head_dim=32,
                     elem_bytes=2)
ASK, ANSWER = 1, 2  # tags


def report(line: str) -> None:
    """One write for each line, so that mpirun does not join the lines of two ranks."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def computed(key: bytes) -> bytes:
    """The bytes that a model would compute for this block."""
    return hashlib.shake_128(key).digest(LAYOUT.block_bytes)


def keys_of(conversation: int, turns: int) -> List[bytes]:
    tokens = [conversation * 1000 + i % 997 for i in range(turns * BLOCKS_A_TURN * TOKENS)]
    return kvcl.key_chain(kvcl.key_root(b"a tenant's secret", "llama-tiny"), tokens, TOKENS)


class View:
    """The blocks that each rank holds, kept up to date by one thread for each rank."""

    def __init__(self, store: kvcl.Store, ranks: range) -> None:
        self.held: Dict[int, Set[bytes]] = {rank: set() for rank in ranks}
        self.news: "queue.Queue[int]" = queue.Queue()
        self.stop = False
        self.threads = [threading.Thread(target=self._follow, args=(store, rank)) for rank in ranks]
        for thread in self.threads:
            thread.start()

    def _follow(self, store: kvcl.Store, rank: int) -> None:
        items, since = store.snapshot(rank)
        self.held[rank] = {item.key for item in items}
        self.news.put(rank)  # no event tells of these blocks
        while not self.stop:
            for event in store.follow(rank, since, timeout=0.2):
                since = event.seq
                if event.kind == kvcl.EventKind.STORED:
                    self.held[rank].add(event.key)
                elif event.kind in (kvcl.EventKind.EVICTED, kvcl.EventKind.REMOVED, kvcl.EventKind.MOVED):
                    self.held[rank].discard(event.key)
                self.news.put(rank)

    def prefix(self, rank: int, keys: List[bytes]) -> int:
        """The number of leading blocks that a rank holds."""
        return next((i for i, key in enumerate(keys) if key not in self.held[rank]), len(keys))

    def until(self, rank: int, keys: List[bytes]) -> None:
        """Until the snapshot or events say that a rank holds all of these."""
        while self.prefix(rank, keys) < len(keys):
            self.news.get(timeout=60)

    def close(self) -> None:
        self.stop = True
        for thread in self.threads:
            thread.join()


def route(world: kvcl.Comm, store: kvcl.Store) -> None:
    workers = range(world.size - 1)
    view = View(store, workers)
    load, well, moved = [0] * world.size, 0, 0
    for turn in range(1, TURNS + 1):
        for conversation in range(CONVERSATIONS):
            keys = keys_of(conversation, turn)
            best = max(workers, key=lambda rank: (view.prefix(rank, keys), -load[rank]))
            idle = min(workers, key=lambda rank: load[rank])
            have = view.prefix(best, keys)
            if have and load[best] > load[idle] + 2:  # their rank is busy: move them to an idle one
                moved += sum(store.move(keys[:have], idle))
                view.until(idle, keys[:have])
                best = idle
            well += view.prefix(best, keys) == (turn - 1) * BLOCKS_A_TURN
            world.send_bytes(best, ASK, bytes([conversation, turn])).wait()
            world.recv_bytes(best, ANSWER, bytearray(1)).wait()
            load[best] += len(keys) - have
            view.until(best, keys)
    for rank in workers:
        world.send_bytes(rank, ASK, b"").wait()  # no more requests
    view.close()
    requests = TURNS * CONVERSATIONS
    share = 100 * well // requests
    report(f"router: {requests} requests, {moved} blocks moved, served where the blocks were: {share}%")


def work(world: kvcl.Comm, store: kvcl.Store, cache: kvcl.Cache) -> None:
    served = reused = wrong = 0
    while True:
        what = bytearray(2)
        if world.recv_bytes(world.size - 1, ASK, what).wait().bytes == 0:
            break
        keys = keys_of(*what)
        hit = store.match(keys)
        store.get(keys[:hit], cache, range(hit)).wait()
        for i in range(hit, len(keys)):
            cache.write(i, computed(keys[i]))
        store.put(keys[hit:], cache, range(hit, len(keys))).wait()
        wrong += sum(cache.read(i) != computed(key) for i, key in enumerate(keys))
        served, reused = served + 1, reused + hit
        world.send_bytes(world.size - 1, ANSWER, b"x").wait()
    report(f"rank {world.rank}: {served} requests, {reused} blocks reused, {wrong} wrong")


def main() -> None:
    with kvcl.Context() as ctx:
        world = ctx.world
        router = world.rank == world.size - 1
        cache = ctx.cache("main", LAYOUT)
        with kvcl.Store(world, dram_bytes=LAYOUT.blocks * LAYOUT.block_bytes, block_bytes=LAYOUT.block_bytes) as store:
            if router:
                route(world, store)
            else:
                work(world, store, cache)
            world.barrier()
        cache.close()


if __name__ == "__main__":
    main()
