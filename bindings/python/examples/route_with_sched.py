#!/usr/bin/env python3
"""A small gateway: it reads the KV events of its engines, and places each request where the scheduler says.

    route_with_sched.py                    two simulated engines, 24 requests
    route_with_sched.py HOST:PORT[,REPLAY] ...
                                           vLLM or SGLang engines with --kv-events-config: their events are read (this
                                           needs pyzmq), and requests are placed as they come on standard input, one a
                                           line: token ids

One thread for each engine feeds the index; a placement is one match and one decision. A request is remembered as
predicted blocks until the engine's events tell, so that the next one of the same conversation goes to the same engine.
"""

import importlib.util
import sys
import threading
import time
from typing import Callable, Iterator, List, Optional

import kvcl
from kvcl import sched

MODEL, BLOCK = "example", 16
ROOT = sched.root(model=MODEL)


class Gateway:
    """Engines, the index of their blocks, and what was placed on them."""

    def __init__(self, engines: int, policy: str = "prefill=local,decode=load") -> None:
        self.index = sched.Index()
        self.sources = [self.index.source(f"engine {i}", i, sched.Feed.VLLM, model=MODEL, block_tokens=BLOCK,
                                          tiers=[kvcl.Tier.CACHE, kvcl.Tier.DRAM]) for i in range(engines)]
        self.scheduler = sched.Scheduler(policy, [sched.MODEL])  # for real: the model that fits your engines
        self.queues = [0.0] * engines
        self.number = 0

    def event(self, engine: int, frames: List[bytes],
              replay: Optional[Callable[[bytes], Iterator[List[bytes]]]]) -> None:
        """A message of an engine; what was missed before it is replayed."""
        try:
            state = self.index.feed(self.sources[engine], frames)
        except kvcl.ProtocolError as error:
            print("ignored:", error, file=sys.stderr)
            return
        if state is sched.State.DEGRADED and replay is not None:
            for answer in replay(self.index.replay_request(self.sources[engine])):
                self.index.feed(self.sources[engine], answer, replayed=True)

    def place(self, tokens: List[int], now: float) -> sched.Decision:
        """Where a request goes."""
        keys = kvcl.key_chain(ROOT, tokens, BLOCK)
        self.index.expire(now)
        self.number += 1
        decision = self.scheduler.decide(
            sched.Request(tokens=len(tokens), block_tokens=BLOCK, id=self.number, arrival=now), keys,
            [sched.Instance(id=i, queue=queue) for i, queue in enumerate(self.queues)], self.index.match(keys), now)
        if decision.verdict is sched.Verdict.GO and decision.prefill is not None:
            self.index.predict(decision.prefill, keys, now)
            self.queues[decision.prefill] += decision.busy
        return decision


def stored(first_hash: int, tokens: List[int]) -> bytes:
    """vLLM's message of the stored blocks of a prompt, as MessagePack."""
    def number(value: int) -> bytes:
        return b"\xcf" + value.to_bytes(8, "big")

    def items(values: List[bytes]) -> bytes:
        return b"\xdc" + len(values).to_bytes(2, "big") + b"".join(values)

    full = len(tokens) // BLOCK
    event = [b"\xabBlockStored", items([number(first_hash + i) for i in range(full)]), b"\xc0",
             items([number(token) for token in tokens[:full * BLOCK]]), number(BLOCK), b"\xc0", b"\xa3GPU"]
    return items([b"\x00", items([items(event)])])


def simulate() -> None:
    """Six conversations of four turns on two engines that tell what they have stored."""
    gateway, sent, reused = Gateway(2), [0, 0], 0
    for turn in range(1, 5):
        for conversation in range(6):
            tokens = [conversation * 1000 + i for i in range(turn * 64)]
            decision = gateway.place(tokens, now=turn * 10.0 + conversation)
            engine = decision.prefill if decision.prefill is not None else 0
            reused += decision.there_tokens
            number = sent[engine].to_bytes(8, "big")
            gateway.event(engine, [b"kv", number, stored((conversation + 1) << 32, tokens)], None)
            sent[engine] += 1
            gateway.queues = [max(0.0, queue - 0.01) for queue in gateway.queues]
    total = sum(turn * 64 for turn in range(1, 5)) * 6
    print(f"24 requests, {sent[0]} and {sent[1]} to each engine, {reused} of {total} tokens were there")


def follow(gateway: Gateway, engine: int, endpoint: str, replay_endpoint: Optional[str]) -> None:
    """Read an engine's events for ever."""
    import zmq

    context = zmq.Context.instance()
    events = context.socket(zmq.SUB)
    events.connect(f"tcp://{endpoint}")
    events.setsockopt(zmq.SUBSCRIBE, b"")

    def replay(request: bytes) -> Iterator[List[bytes]]:
        asker = context.socket(zmq.DEALER)
        try:
            asker.connect(f"tcp://{replay_endpoint}")
            asker.send_multipart([b"", request])
            while asker.poll(2000):
                answer = asker.recv_multipart()
                yield answer
                if answer[-2] == b"\xff" * 8:
                    break
        finally:
            asker.close(0)

    while True:
        gateway.event(engine, events.recv_multipart(), replay if replay_endpoint else None)


def main() -> None:
    if len(sys.argv) == 1:
        simulate()
        return
    if any(argument.startswith("-") for argument in sys.argv[1:]):
        sys.exit(__doc__)
    if importlib.util.find_spec("zmq") is None:
        sys.exit("route_with_sched.py: reading the events of engines needs pyzmq: pip install pyzmq")
    gateway = Gateway(len(sys.argv) - 1)
    for engine, argument in enumerate(sys.argv[1:]):
        endpoint, _, replay_endpoint = argument.partition(",")
        threading.Thread(target=follow, args=(gateway, engine, endpoint, replay_endpoint or None), daemon=True).start()
    for line in sys.stdin:
        print(gateway.place([int(word) for word in line.split()], time.monotonic()).text)


if __name__ == "__main__":
    main()
