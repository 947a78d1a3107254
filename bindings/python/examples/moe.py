#!/usr/bin/env python3
"""A toy mixture-of-experts model on some ranks, any of which may be killed (contrib/examples/moe.c is the same in C).

    python3 moe.py --ranks 4    prints the ranks' processes, and a line a second: step, view, alive, lost, wrong
    kill -9 PID                 in another terminal: the lines go on
    python3 moe.py --join A,B   a process comes in the place of a killed rank, and gets experts; A, B: as printed

The others go on in the same layer without the dead rank, restore its experts from a store, and compare each output of a
token that lost nothing with that of the model in one process, bit by bit. --kill RANK kills one after ten steps.
--seconds N ends it, once the others go on without that one. Exit status 0: no output was wrong. It needs NumPy.
"""

import argparse
import os
import signal
import socket
import sys
import time
from typing import Any, List, Tuple

import numpy as np

LAYERS, EXPERTS, HIDDEN, TOKENS, TOP_K = 4, 64, 32, 8, 2
BYTES = HIDDEN * HIDDEN * 4
GO_ON, WHOLE = 1 << 63, 1 << 62  # in what the ranks agree on, beside a bit for each rank; WHOLE: all are members
RANKS = (1 << 62) - 1


def weights_of(layer: int, expert: int) -> Any:
    return (np.random.default_rng(layer * EXPERTS + expert).random((HIDDEN, HIDDEN), np.float32) - 0.5) / 8


def tokens_of(rank: int, step: int) -> Any:
    return np.random.default_rng((1, step, rank)).random((TOKENS, HIDDEN), np.float32)


def route(rank: int, step: int, layer: int) -> Tuple[Any, Any]:
    """The experts and weights of each token."""
    dice = np.random.default_rng((2, step, rank, layer))
    experts = np.array([dice.choice(EXPERTS, TOP_K, replace=False) for _ in range(TOKENS)], np.int64)
    first = 0.25 + dice.random(TOKENS, np.float32) / 2
    return experts, np.stack([first, 1 - first], axis=1)


def run_expert(w: Any, x: Any) -> Any:
    return np.maximum(w @ x, 0)


def one_process(model: List[Any], rank: int, step: int) -> Any:
    """The right outputs."""
    x = tokens_of(rank, step)
    for layer in range(LAYERS):
        experts, weights = route(rank, step, layer)
        for t in range(TOKENS):
            out = np.zeros(HIDDEN, np.float32)
            for k in range(TOP_K):
                out += weights[t, k] * run_expert(model[layer][experts[t, k]], x[t])
            x[t] += out
    return x


def say(line: str) -> None:
    """In one write, so that the lines of two ranks do not mix."""
    os.write(1, line.encode() + b"\n")


class Rank:
    def __init__(self, joins: bool) -> None:
        import kvcl  # in each process for itself
        from kvcl import ep
        self.kvcl, self.ep = kvcl, ep
        self.number, self.lost, self.wrong, self.waiting = 0, 0.0, 0, 0
        self.experts: Any = None  # not yet, in a process that joins
        self.ctx = kvcl.Context()
        self.world = self.ctx.world
        self.rank, self.ranks = self.world.rank, self.world.size
        self.all = (1 << self.ranks) - 1
        self.per = -(-2 * EXPERTS // self.ranks)
        self.model = ep.Model(experts=EXPERTS, slots=self.per * self.ranks, ranks=self.ranks, active=[1] * self.ranks)
        self.right = [[weights_of(layer, expert) for expert in range(EXPERTS)] for layer in range(LAYERS)]
        self.cache = self.ctx.cache("experts", kvcl.Layout.bytes(blocks=2 * LAYERS * self.per, block_bytes=BYTES))
        self.placement = self.place()
        self.know()
        say(f"rank {self.rank}: pid {os.getpid()}, join at {self.ctx.join_address()}")
        if joins:
            self.world.sync(float("inf"))  # until a member has activated this process
            return
        self.open()
        for layer in range(LAYERS):
            for slot in range(self.per):
                expert = self.placement[layer, self.rank * self.per + slot]
                self.cache.write(layer * self.per + slot, self.right[layer][expert].tobytes())
        self.use(self.placement)

    def place(self) -> Any:
        return self.ep.place(self.model._replace(active=[1] * self.ranks),
                             [[100 + (i * 37) % 200 for i in range(EXPERTS)]] * LAYERS)

    def know(self) -> None:
        """Sums and keys of all experts."""
        self.keys, self.sums, spare = [], [], LAYERS * self.per
        for layer in range(LAYERS):
            self.sums.append([])
            for expert in range(EXPERTS):
                self.cache.write(spare, self.right[layer][expert].tobytes())
                self.sums[-1].append(self.ep.weights_sum(self.cache, spare))
                self.keys.append(self.kvcl.key_from_string(f"moe: expert {expert} of layer {layer}"))

    def open(self) -> None:
        """What the ranks open together; all experts are in the store, each put by one rank."""
        self.comm = self.world.create(range(self.ranks))
        self.store = self.kvcl.Store(self.comm, dram_bytes=LAYERS * EXPERTS * BYTES, block_bytes=BYTES, replicas=2)
        for i in range(self.rank, LAYERS * EXPERTS, self.ranks):
            self.cache.write(LAYERS * self.per, self.right[i // EXPERTS][i % EXPERTS].tobytes())
            self.store.put([self.keys[i]], self.cache, [LAYERS * self.per]).wait()
        self.weights = self.ep.Weights(self.comm, self.cache, self.sums, self.store, self.keys)
        self.experts = self.ep.open(self.comm, slots=self.model.slots, max_tokens=TOKENS, top_k=TOP_K, hidden=HIDDEN,
                                    dtype="float32")

    def close(self) -> None:
        for opened in (self.experts, self.store, self.comm) if self.experts else ():
            opened.close()
        self.experts = None

    def use(self, placement: Any, holes: bool = False) -> None:
        self.number += 1
        self.experts.activate(self.number, self.model, placement, holes=holes)
        self.placement = placement

    def step(self, step: int) -> None:
        x, lacks = tokens_of(self.rank, step), np.zeros(TOKENS, bool)
        for layer in range(LAYERS):
            chosen, weights = route(self.rank, step, layer)
            out = np.zeros_like(x)
            batch = self.experts.dispatch(x, np.asarray(self.experts.choose(layer, chosen)))
            for slot in range(self.per):
                rows = batch.counts[slot]
                if rows:
                    w = np.frombuffer(self.cache.read(layer * self.per + slot), np.float32).reshape(HIDDEN, HIDDEN)
                    for row in range(rows):
                        np.asarray(batch.y)[slot, row] = run_expert(w, np.asarray(batch.x)[slot, row])
            lost = np.asarray(self.experts.combine(weights, out).lost)
            lacks |= lost != 0
            self.lost += float(lost.sum())
            x += out
        same = (x == one_process(self.right, self.rank, step)).all(axis=1)
        self.wrong += int((~same & ~lacks).sum())

    def agree(self, flags: int) -> int:
        """The ranks that all living ones have seen take part, and of flags those that all give: GO_ON; WHOLE: all are
        members, and none has failed. Also a barrier. A process that has joined says that it has no part yet."""
        part = [rank != self.rank for rank in range(self.ranks)] if self.experts is None else self.experts.active
        members = self.world.active()
        mask = sum(1 << rank for rank in range(self.ranks) if part[rank] and members[rank])
        if not all(members) or self.experts is not None and list(part) != list(self.model.active or []):
            flags &= ~WHOLE
        self.world.ack_failed(len(self.world.failed()))
        flags, _ = self.world.agree(flags | mask)
        if self.experts is not None and not flags >> self.rank & 1:
            sys.exit(f"rank {self.rank} was skipped by the others")
        return flags

    def fetch(self, placement: Any) -> Tuple[Any, Any, int]:
        """What this rank's slots get, from the ranks that have it; the ranks that agree; GO_ON: nothing is missing."""
        moves = self.ep.moves(self.model, self.placement, placement)
        done = self.ep.restore(self.model, self.weights, self.placement, moves)
        return moves, done, self.agree(0 if done.missing else GO_ON)  # nobody reads slots any more

    def repair(self, seen: int) -> None:
        while True:  # again if one more dies meanwhile
            mask = seen & RANKS
            self.model = self.model._replace(active=[mask >> rank & 1 for rank in range(self.ranks)])
            repaired, restored, _ = self.ep.repair(self.model, self.placement, holes=True)
            moves, done, seen = self.fetch(repaired)
            if seen == mask | GO_ON:
                break
        self.ep.settle(self.model, self.weights, moves, done)
        self.use(repaired, holes=True)
        say(f"rank {self.rank}: {restored} experts were restored")

    def let_in(self) -> None:
        """The lowest rank activates processes that wait, when one waits in the place of each killed rank."""
        for event in iter(self.ctx.event, None):
            bits = sum(1 << rank for rank in event.ranks)
            if event.kind == self.kvcl.ViewEventKind.WAITING:
                self.waiting |= bits
            elif event.kind == self.kvcl.ViewEventKind.JOINED:
                self.waiting &= ~bits
        active = list(self.model.active or [])
        missing = [rank for rank in range(self.ranks) if not active[rank]]
        if missing and active.index(1) == self.rank and all(self.waiting >> rank & 1 for rank in missing):
            _, dropped = self.world.activate(missing)
            self.waiting &= ~sum(1 << rank for rank in dropped)

    def take_in(self, seen: int, step: int) -> int:
        """All are members. What the lowest rank with experts knows all are told; each fetches its experts."""
        root = ((seen & -seen).bit_length() - 1)
        self.close()
        self.open()
        told = np.array([self.number, step], np.int64)
        placement = np.ascontiguousarray(self.placement, np.int32)
        self.comm.bcast_bytes(root, told).wait()
        self.comm.bcast_bytes(root, placement).wait()
        self.number, self.placement = int(told[0]), placement
        self.model = self.model._replace(active=[1] * self.ranks)
        whole = self.place()
        moves, done, agreed = self.fetch(whole)
        if agreed != self.all | GO_ON:
            sys.exit(f"rank {self.rank}: the experts of a rank that has joined are not there")
        self.ep.settle(self.model, self.weights, moves, done)
        self.use(whole)
        say(f"rank {self.rank}: all {self.ranks} ranks have experts again")
        return int(told[1])

    def run(self, seconds: float, kill: int) -> int:
        seen, step, end, line = GO_ON, 0, time.monotonic() + seconds, time.monotonic()
        waits = 0 <= kill < self.ranks  # until that rank's experts are restored
        while seen & GO_ON:
            if self.experts is not None:
                step += 1
                self.step(step)
                self.let_in()
            if step == 10 and self.rank == kill:
                os.kill(os.getpid(), signal.SIGKILL)
            seen = self.agree(WHOLE | (GO_ON if waits or not seconds or time.monotonic() < end else 0))
            if seen & WHOLE and seen & RANKS != self.all:
                step = self.take_in(seen & RANKS, step)
            elif self.experts and [seen >> rank & 1 for rank in range(self.ranks)] != list(self.model.active or []):
                self.repair(seen)
                waits = False
            lowest = (seen & -seen).bit_length() - 1
            if self.rank == lowest and time.monotonic() - line >= 1:  # of the lowest living rank, for its own tokens
                line = time.monotonic()
                say(f"step {step}  view {self.world.view}  alive {bin(seen & RANKS).count('1')} of {self.ranks}  "
                    f"lost {self.lost:.3f}  wrong {self.wrong}")
        self.agree(0)  # nobody leaves before the others are done
        say(f"rank {self.rank}: {step} steps, lost {self.lost:.3f}, wrong {self.wrong}")
        self.close()
        self.ctx.close()
        return 1 if self.wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="A mixture-of-experts model that goes on when ranks are killed.")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=0, help="default: until Ctrl-C")
    parser.add_argument("--kill", type=int, default=-1, help="a rank that is killed after ten steps")
    parser.add_argument("--join", metavar="HOST:PORT,...", help="come in the place of a killed rank")
    args = parser.parse_args()
    os.environ.update(KVCL_VIEWS="yes", KVCL_JOIN_AT="127.0.0.1:0", KVCL_JOIN_WAITS="yes")
    if args.join:
        os.environ["KVCL_JOIN"] = args.join
        return Rank(True).run(0, -1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(KVCL_RENDEZVOUS=f"tcp://127.0.0.1:{port}", KVCL_SIZE=str(args.ranks))
    pids = {}
    for rank in range(args.ranks):  # a launcher would do this
        pid = os.fork()
        if pid == 0:
            os.environ["KVCL_RANK"] = str(rank)
            sys.exit(Rank(False).run(args.seconds, args.kill))
        pids[pid] = rank
    bad = 0
    while pids:
        pid, status = os.wait()
        rank = pids.pop(pid)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            print(f"rank {rank}, pid {pid}, was killed", flush=True)
        else:
            bad += status != 0
    print("FAILED" if bad else "all ranks that lived were right", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
