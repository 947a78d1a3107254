"""What the connector costs the engine's scheduler thread in a step, in run_vllm.sh's environment: measure_steps.py
[events]. events: stored blocks are told as KV events.

Over the engine of vllm_calls.py, which makes vLLM's calls and computes nothing. A line each for a step with nothing to
do, one with 32 requests that decode, and the step that takes 32 new requests, with the questions whether the store has
their blocks. Times are of the scheduler's calls alone: on the clock, and of the thread on its processor, which other
programs do not lengthen so much.
"""

import os
import statistics
import sys
import time

import engine
import vllm.distributed.parallel_state as parallel_state
from vllm_calls import PART, TOKENS, Blocks, Fake, request

STEPS, REQUESTS, PROMPT, ROUNDS = 1000, 32, 2000, 20


class Meter:
    """The time of one side's calls, summed up for each step."""

    def __init__(self, side, names):
        self.steps, self.sum = [], [0, 0]
        for name in names:
            setattr(side, name, self.timed(getattr(side, name)))

    def timed(self, method):
        def call(*args):
            clock, thread = time.perf_counter_ns(), time.thread_time_ns()
            try:
                return method(*args)
            finally:
                self.sum[1] += time.thread_time_ns() - thread
                self.sum[0] += time.perf_counter_ns() - clock
        return call

    def end(self):
        self.steps.append(tuple(self.sum))
        self.sum = [0, 0]

    def say(self, what):
        clock, thread = (sorted(one[i] / 1000 for one in self.steps) for i in range(2))
        late = clock[min(len(clock) - 1, len(clock) * 99 // 100)]
        print(f"{what}: {statistics.median(clock):.1f} us (p99 {late:.1f}), of the thread "
              f"{statistics.median(thread):.1f} us", flush=True)
        self.steps.clear()


def arrive(fake, meter, new, tables):
    """Requests arrive together: the times of the steps until all are computed. As vLLM does, a step asks once for each
    that waits for the store's answer."""
    side, waiting = fake.scheduler, list(new)
    for one in new:
        side.on_new_request(one)
    while waiting:
        side._computing = {"another"}  # no step waits for an answer
        known = [one for one in waiting if side.get_num_new_matched_tokens(one, 0)[0] is not None]
        for one in known:
            waiting.remove(one)
            side.update_state_after_alloc(one, Blocks(tables[one.request_id]), 0)
        fake.step([(one, 0) for one in known], {one.request_id: PROMPT for one in known}, tables)
        meter.end()
    steps = list(meter.steps)
    meter.steps.clear()
    return steps


def main():
    parallel_state.get_tensor_model_parallel_rank = lambda: 0
    store = engine.Server(block=PART, pool="256M", file=os.path.abspath("steps"))
    fake = Fake("kv_both", store=store.file, events="events" in sys.argv)
    engine.until(fake.ready)
    side = fake.scheduler
    meter = Meter(side, ("on_new_request", "get_num_new_matched_tokens", "update_state_after_alloc",
                         "build_connector_meta", "update_connector_output", "take_events",
                         "request_finished_all_groups"))
    blocks = -(-PROMPT // TOKENS)
    table = list(range(blocks))
    print(f"load {os.getloadavg()[0]:.0f}, {REQUESTS} requests of {PROMPT} tokens, {blocks} blocks")
    for _ in range(STEPS):
        fake.step()
        meter.end()
    meter.say("a step with nothing to do")
    decodes, longest = [], []
    for turn in range(ROUNDS):
        new = [request(f"{turn} {i}", PROMPT, salt=f"{turn} {i}") for i in range(REQUESTS)]
        tables = {one.request_id: table for one in new}
        longest.append(max(arrive(fake, meter, new, tables)))
        for i in range(50):
            fake.step([(one, PROMPT + i) for one in new], {one.request_id: 1 for one in new}, tables)
            meter.end()
            decodes.append(meter.steps.pop())
        for one in new:
            side.request_finished_all_groups(one, (table,))
        engine.until(lambda: not fake.step() or not fake.worker._transfers._saving)
        meter.end()
        meter.steps.clear()
    for what, meter.steps in ((f"a step with {REQUESTS} requests that decode", decodes),
                              (f"the longest step of those that take {REQUESTS} new requests", longest)):
        meter.say(what)
    store.end()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
