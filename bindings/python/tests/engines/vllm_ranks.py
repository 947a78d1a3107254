"""A rank of a store is killed, or stopped, while an engine runs: the requests finish, computed where they must be; what
is generated stays the same; and SOON seconds after the fault a request hits again. The store has two ranks with a copy
of each block on both; the fault is at the rank that the engine uses, and at the other one.
"""

import faulthandler
import os
import random
import signal
import time

import engine
from engine import HITS, PROMPTS, check, generate

SOON = 2.0  # on a machine with a core for each process that runs; otherwise longer by as much


def fault(number, near):
    """An engine over two ranks, of which one gets a signal while requests run."""
    what = f"{signal.Signals(number).name} at {'its own' if near else 'the other'} rank"
    ranks = engine.job(2, [f"{what} {rank}" for rank in range(2)])
    for side in sides:
        side._link._files, side._link._at = [one.file for one in ranks], 0
        if side._link.client is not None:  # of the ranks before
            side._link.client.close()
            side._link.progress()
    check(f"{what}: its store is taken up", engine.until(lambda: all(one._link.ready() for one in sides)))
    generate(llm)
    engine.forget(llm)
    out, cached, _ = generate(llm)
    check(f"{what}: it hits before", out == base and cached == HITS, (out, cached))
    engine.forget(llm)
    victim = ranks[0 if near else 1].process
    for i, prompt in enumerate(PROMPTS):
        llm.llm_engine.add_request(f"{what} {i}", {"prompt_token_ids": prompt}, engine.greedy(16))
    outs, steps, after = {}, 0, random.randrange(4)
    while llm.llm_engine.has_unfinished_requests():
        if steps == after:
            victim.send_signal(number)
            begun = time.monotonic()
        steps += 1
        for one in llm.llm_engine.step():
            outs[one.request_id] = list(one.outputs[0].token_ids)
    took = time.monotonic() - begun
    check(f"{what}: the requests finish, with the same tokens", [outs[f"{what} {i}"] for i in range(4)] == base, outs)
    turns, hit = 0, False
    while not hit and time.monotonic() < begun + 60:
        engine.forget(llm)
        out, cached, _ = generate(llm)
        turns, hit = turns + 1, cached[:2] == HITS[:2]
        check(f"{what}: then too", out == base, (out, cached))
        last = time.monotonic() - begun
    slow = max(1.0, os.getloadavg()[0] / os.cpu_count())
    check(f"{what}: hits again in {SOON:g} s", hit and last < SOON * slow, (hit, last, turns, slow))
    engine.say(f"{what}: requests ended after {took:.2f} s, hits again after {last:.2f} s, in turn {turns}")
    for one in ranks:
        one.end(signal.SIGKILL)


def main():
    global llm, sides, base
    faulthandler.dump_traceback_later(engine.LIMIT, exit=True)
    seed = engine.seed()
    random.seed(seed)
    base, lines = engine.expected(), engine.Lines()
    llm = engine.start({"store": "none yet", "retry": 0.2})
    sides = engine.sides(llm)
    for number in (signal.SIGKILL, signal.SIGSTOP):
        for near in (True, False):
            fault(number, near)
    check("nothing failed inside", not lines.having("failed: the engine goes on"), lines.lines)
    engine.say("\n".join(lines.lines))
    engine.end()


if __name__ == "__main__":
    main()
