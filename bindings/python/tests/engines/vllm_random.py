"""Requests with random prefixes in common over three engines of one store, which has room for a tenth of their blocks
and two ranks, of which one is killed or stopped now and then: no request generates anything else than a lone vLLM does.
vllm_random.py [REQUESTS]; by default 60, or TEST_REQUESTS.
"""

import faulthandler
import json
import os
import random
import signal
import subprocess
import sys
import time

import engine
from engine import check, generate

ENGINES, BLOCK, TOKENS = 3, 32, 6
PART = engine.PART * BLOCK // 128
STEMS, STEM, TAIL = 12, 20, 6  # prompts begin with up to so many blocks of one of the stems, and differ in the tail


def prompts(seed, n):
    rand = random.Random(seed)
    stems = [[rand.randrange(3, 1000) for _ in range(STEM * BLOCK)] for _ in range(STEMS)]
    return [stems[rand.randrange(STEMS)][:rand.randrange(1, STEM + 1) * BLOCK - rand.randrange(BLOCK)]
            + [rand.randrange(3, 1000) for _ in range(rand.randrange(1, TAIL * BLOCK))] for _ in range(n)]


def one(name, store, seed, n):
    """An engine: it answers lines, the number of the first and the last request of a batch, with what they generate
    and how many of their tokens were there."""
    llm = engine.start({"store": store, "retry": 0.1, "timeout": 3.0} if store != "none" else None, block_size=BLOCK)
    asked = prompts(int(seed), int(n))
    print(f"ANSWER {json.dumps(name)}", flush=True)
    for line in sys.stdin:
        first, last = json.loads(line)
        if store != "none":
            llm.reset_prefix_cache()  # so that most hits are the store's
        out, cached, _ = generate(llm, asked[first:last], TOKENS)
        print(f"ANSWER {json.dumps([out, sum(cached)])}", flush=True)


class Child:
    def __init__(self, *args):
        self.process = subprocess.Popen([sys.executable, __file__, "engine", *map(str, args)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def ask(self, what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def answer(self):
        for line in self.process.stdout:
            if line.startswith("ANSWER "):
                return json.loads(line[7:])
        raise AssertionError("an engine has ended")


class Store:
    """Two ranks in turn: of the job that lives, and what is to be done to it."""

    def __init__(self, pool):
        self.pool, self.faults = pool, 0
        self.files = [os.path.abspath(f"rank{rank}") for rank in range(2)]
        self.ranks = engine.job(2, self.files, block=PART, pool=str(pool))

    def fault(self, rand):
        """Kill or stop a rank; or end both and start a new job, if one has gone already."""
        self.faults += 1
        if any(one.process.poll() is not None for one in self.ranks):
            self.end()
            self.ranks = engine.job(2, self.files, block=PART, pool=str(self.pool))
            return "a new job"
        rank = rand.randrange(2)
        number = rand.choice((signal.SIGKILL, signal.SIGSTOP))
        self.ranks[rank].process.send_signal(number)
        if number == signal.SIGKILL:
            self.ranks[rank].process.wait()
        return f"{signal.Signals(number).name} of rank {rank}"

    def resume(self):
        """A stopped rank goes on."""
        for one in self.ranks:
            if one.process.poll() is None:
                one.process.send_signal(signal.SIGCONT)

    def end(self):
        for one in self.ranks:
            one.process.kill()
            one.process.wait()


def main():
    faulthandler.dump_traceback_later(engine.LIMIT, exit=True)
    if sys.argv[1:2] == ["engine"]:
        return one(*sys.argv[2:])
    n = int(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("TEST_REQUESTS", "60"))
    seed = engine.seed()
    rand, asked = random.Random(seed), prompts(seed, n)
    blocks = len({tuple(one[:end]) for one in asked for end in range(BLOCK, len(one) + 1, BLOCK)})
    pool = max(16, 2 * blocks // 10) * PART  # two heads a block
    begun = time.monotonic()
    lone = Child("lone", "none", seed, n)
    lone.answer()
    lone.ask([0, n])
    base, _ = lone.answer()
    lone.process.kill()
    store, engines, wrong, reused, first = Store(pool // 2), [], [], 0, 0
    for number in range(ENGINES):  # one after the other: each takes a core to start
        engines.append(Child(number, ",".join(store.files), seed, n))
        engines[-1].answer()
    while first < n:
        batches = []
        for child in engines:
            last = min(n, first + rand.randrange(1, 5))
            if first < last:
                child.ask([first, last])
                batches.append((child, first, last))
            first = last
        if rand.random() < 0.3:
            engine.say(f"before request {first}: {store.fault(rand)}")
        for child, begin, end in batches:
            out, cached = child.answer()
            reused += cached
            wrong += [begin + i for i, tokens in enumerate(out) if tokens != base[begin + i]]
        store.resume()
    tokens = sum(len(one) for one in asked)
    engine.note(f"{n} requests, {tokens} tokens of prompts in {blocks} blocks, room for {pool // (2 * PART)}: "
                f"{store.faults} faults, {reused / tokens:.0%} reused, {len(wrong)} wrong, "
                f"{time.monotonic() - begun:.0f} s")
    check("no output is wrong", not wrong, wrong)
    check("the store is of use", reused > 0)
    check("there were faults", store.faults > 0)
    for child in engines:
        child.process.kill()
    store.end()
    engine.end()


if __name__ == "__main__":
    main()
