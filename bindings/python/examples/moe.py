#!/usr/bin/env python3
"""A toy mixture-of-experts model on some ranks, any of which may be killed (contrib/examples/moe.c is the same in C).

    python3 moe.py --ranks 4    prints the ranks' processes, and a line a second: step, view, alive, lost, wrong
    kill -9 PID                 in another terminal: the lines go on

The others go on in the same layer without the dead rank, restore its experts from a store, and compare each output of a
token that lost nothing with that of the model in one process, bit by bit. --seconds N ends it; --kill RANK kills one
after ten steps. Exit status 0: no output was wrong. It needs NumPy.
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
GO_ON = 1 << 63  # in what the ranks agree on, beside a bit for each rank


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
    def __init__(self, rank: int, ranks: int) -> None:
        import kvcl  # in each process for itself
        from kvcl import ep
        self.kvcl, self.ep = kvcl, ep
        self.rank, self.ranks, self.number, self.lost, self.wrong = rank, ranks, 1, 0.0, 0
        self.ctx = kvcl.Context()
        self.world = self.ctx.world
        self.per = -(-2 * EXPERTS // ranks)
        self.model = ep.Model(experts=EXPERTS, slots=self.per * ranks, ranks=ranks, active=[1] * ranks)
        self.right = [[weights_of(layer, expert) for expert in range(EXPERTS)] for layer in range(LAYERS)]
        self.load()
        self.experts = ep.open(self.world, slots=self.model.slots, max_tokens=TOKENS, top_k=TOP_K, hidden=HIDDEN,
                               dtype="float32")
        self.experts.activate(self.number, self.model, self.placement)

    def load(self) -> None:
        """The experts of this rank's slots, and its share of all of them in the store."""
        layout = self.kvcl.Layout.bytes(blocks=2 * LAYERS * self.per, block_bytes=BYTES)
        self.cache = self.ctx.cache("experts", layout)
        self.store = self.kvcl.Store(self.world, dram_bytes=LAYERS * EXPERTS * BYTES, block_bytes=BYTES, replicas=2)
        self.placement = self.ep.place(self.model, [[100 + (i * 37) % 200 for i in range(EXPERTS)]] * LAYERS)
        keys, sums, spare = [], [], LAYERS * self.per
        for layer in range(LAYERS):
            sums.append([])
            for expert in range(EXPERTS):
                self.cache.write(spare, self.right[layer][expert].tobytes())
                sums[-1].append(self.ep.weights_sum(self.cache, spare))
                keys.append(self.kvcl.key_from_string(f"moe: expert {expert} of layer {layer}"))
                if len(keys) % self.ranks == self.rank:
                    self.store.put([keys[-1]], self.cache, [spare]).wait()
        for layer in range(LAYERS):
            for slot in range(self.per):
                expert = self.placement[layer, self.rank * self.per + slot]
                self.cache.write(layer * self.per + slot, self.right[layer][expert].tobytes())
        self.weights = self.ep.Weights(self.world, self.cache, sums, self.store, keys)

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
        """The ranks that all living ones have seen take part, and GO_ON where all are to. Also a barrier."""
        for rank, (takes_part, member) in enumerate(zip(self.experts.active, self.world.active())):
            flags |= (takes_part and member) << rank
        self.world.ack_failed(len(self.world.failed()))
        flags, _ = self.world.agree(flags)
        if not flags >> self.rank & 1:
            sys.exit(f"rank {self.rank} was skipped by the others")
        return flags

    def repair(self, seen: int) -> None:
        while True:  # again if one more dies meanwhile
            mask = seen & ~GO_ON
            self.model = self.model._replace(active=[mask >> rank & 1 for rank in range(self.ranks)])
            repaired, restored, _ = self.ep.repair(self.model, self.placement, holes=True)
            moves = self.ep.moves(self.model, self.placement, repaired)
            done = self.ep.restore(self.model, self.weights, self.placement, moves)
            seen = self.agree(0 if done.missing else GO_ON)  # nobody reads slots any more
            if seen == mask | GO_ON:
                break
        self.ep.settle(self.model, self.weights, moves, done)
        self.number += 1
        self.experts.activate(self.number, self.model, repaired, holes=True)
        self.placement = repaired
        say(f"rank {self.rank}: {restored} experts were restored")

    def run(self, seconds: float, kill: int) -> int:
        seen, step, end, line = GO_ON, 0, time.monotonic() + seconds, time.monotonic()
        while seen & GO_ON:
            step += 1
            self.step(step)
            if step == 10 and self.rank == kill:
                os.kill(os.getpid(), signal.SIGKILL)
            seen = self.agree(GO_ON if not seconds or time.monotonic() < end else 0)
            if [seen >> rank & 1 for rank in range(self.ranks)] != list(self.model.active or []):
                self.repair(seen)
            lowest = (seen & -seen).bit_length() - 1
            if self.rank == lowest and time.monotonic() - line >= 1:  # of the lowest living rank, for its own tokens
                line = time.monotonic()
                say(f"step {step}  view {self.world.view}  alive {bin(seen & ~GO_ON).count('1')} of {self.ranks}  "
                    f"lost {self.lost:.3f}  wrong {self.wrong}")
        self.agree(0)  # nobody leaves before the others are done
        say(f"rank {self.rank}: {step} steps, lost {self.lost:.3f}, wrong {self.wrong}")
        self.experts.close()
        self.store.close()
        self.ctx.close()
        return 1 if self.wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="A mixture-of-experts model that goes on when ranks are killed.")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=0, help="default: until Ctrl-C")
    parser.add_argument("--kill", type=int, default=-1, help="a rank that is killed after ten steps")
    args = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(KVCL_VIEWS="yes", KVCL_RENDEZVOUS=f"tcp://127.0.0.1:{port}", KVCL_SIZE=str(args.ranks))
    pids = {}
    for rank in range(args.ranks):  # a launcher would do this
        pid = os.fork()
        if pid == 0:
            os.environ["KVCL_RANK"] = str(rank)
            sys.exit(Rank(rank, args.ranks).run(args.seconds, args.kill))
        pids[pid] = rank
        print(f"rank {rank}: pid {pid}", flush=True)
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
