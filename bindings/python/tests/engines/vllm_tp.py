"""Engines of different tensor-parallel sizes, in processes of their own, share blocks by heads: what 2 ranks have saved
is loaded by 1 and by 2 others, and what 1 has saved is loaded by 2; and ranks read prompts out of the memory of an
engine of as many ranks, or of more or fewer. In float32, since sums of
bfloat16 differ between the sizes. An engine with another block size finds nothing, and says why.

Three engines do all of it, since each takes long to start: of 2 ranks, which computes what it is asked (it loads
nothing); of 1 rank, which loads it out of the store, saves a prompt of its own, and then hands on what it has loaded;
and another one of 2 ranks, which loads the blocks of both, and saves nothing.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"

import engine  # noqa: E402
from engine import HITS, PROMPTS, check, generate  # noqa: E402

# On a busy machine the engines' threads, which poll, leave those that connect little of two cores: nothing here ends by
# time.
PATIENT = {"handover_timeout": float(engine.LIMIT), "match_timeout": 20.0}
SECOND = [[(11 * i) % 900 + 5 for i in range(400)]]
THIRD = [[(13 * i) % 900 + 5 for i in range(530)]]  # of the engine of 1 rank alone


def one(name, store, settings):
    """An engine of one rank, that ends at once: what it generates."""
    options = None if store == "none" else {"store": store, **PATIENT}
    llm = engine.start(options, dtype="float32", **json.loads(settings))
    out, cached, _ = generate(llm, PROMPTS + SECOND + THIRD)
    with open(f"{name}.json", "w", encoding="ascii") as file:
        json.dump([out, cached], file)


def run(name, store, **settings):
    done = subprocess.run([sys.executable, __file__, name, store, json.dumps(settings)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=engine.LIMIT)
    if not os.path.exists(f"{name}.json"):
        engine.say(done.stdout)
        return None, None, done.stdout
    with open(f"{name}.json", encoding="ascii") as file:
        return (*json.load(file), done.stdout)


def serve(store, role, size):
    """An engine that answers lines of JSON: what it generates, and its counts so far."""
    llm = engine.start({"store": store, **PATIENT}, role, dtype="float32", tensor_parallel_size=int(size))
    for line in sys.stdin:
        given = json.loads(line)
        out, cached, params = generate(llm, given["prompts"], given["tokens"], given["params"])
        if given["forget"]:
            engine.forget(llm)  # until the blocks have been saved, or read
        counts = {each.name[len("vllm:kvcl_"):]: each.value for each in llm.get_metrics()
                  if each.name.startswith("vllm:kvcl_")}
        print("ANSWER " + json.dumps([out, cached, params, counts]), flush=True)


class Engine:
    def __init__(self, store, role, size):
        self.size, self.counts = size, {}
        self.process = subprocess.Popen([sys.executable, __file__, "serve", store, role, str(size)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)

    def ask(self, prompts, tokens=16, params=None, forget=True):
        """(tokens generated, cached tokens, parameters, what it has counted since the last answer)"""
        self.process.stdin.write(json.dumps({"prompts": prompts, "tokens": tokens, "params": params,
                                             "forget": forget}) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("ANSWER "):
                out, cached, params, counts = json.loads(line[len("ANSWER "):])
                more = {name: value - self.counts.get(name, 0) for name, value in counts.items()}
                self.counts = counts
                return out, cached, params, more
        raise AssertionError("an engine has ended: its lines are on standard error")

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def handed(first, second, base):
    """Prompts that the first engine has, and the second one reads, twice."""
    what = f"a prompt of {first.size} ranks is read by {second.size}"
    for turn in ("", ", again"):
        params = first.ask(PROMPTS, 1, [{"do_remote_decode": True}] * len(PROMPTS), forget=False)[2]
        check(f"{what}{turn}: it is named by its ranks", [len(one["kvcl_peers"]) for one in params] ==
              [first.size] * len(PROMPTS), params)
        out, _, _, counts = second.ask(PROMPTS, params=params)
        check(f"{what}{turn}: which generate the same", out == base[:len(PROMPTS)], out)
        check(f"{what}{turn}: all blocks were read", counts["loaded_blocks"] == 11 * second.size and
              counts["failed_blocks"] == 0, counts)
        first.ask([])


def main():
    if len(sys.argv) > 1:
        return serve(*sys.argv[2:]) if sys.argv[1] == "serve" else one(*sys.argv[1:])
    store = engine.Server(block=2 * engine.PART)
    *base, third = run("base32", "none")[0]
    engines = [Engine(store.file, role, size)
               for role, size in (("kv_producer", 2), ("kv_both", 1), ("kv_consumer", 2))]
    try:
        shared(store, base, third, *engines)
    finally:
        for each in engines:
            each.end()
    store.end()
    engine.end()


def shared(store, base, third, two, single, other):
    out, _, _, counts = two.ask(PROMPTS + SECOND)
    check("2 ranks generate what 1 does", out == base, out)
    check("they have saved their heads", counts["saved_blocks"] >= 2 * 11, counts)
    out, cached, _, counts = single.ask(PROMPTS + SECOND)
    check("1 rank loads them, and generates the same", out == base and cached == HITS + [384], (out, cached))
    check("each block once", counts["loaded_blocks"] == 10 and counts["failed_blocks"] == 0, counts)
    out, cached, _, counts = other.ask(PROMPTS + SECOND)
    check("2 other ranks load them, and generate the same", out == base and cached == HITS + [384], (out, cached))
    check("each rank its head of a block", counts["loaded_blocks"] == 2 * 10 and counts["failed_blocks"] == 0, counts)
    out, cached, _, counts = single.ask(THIRD)
    check("1 rank computes another prompt, and saves it", out == [third] and cached == [0] and
          counts["saved_blocks"] == 4, (out, cached, counts))
    out, cached, _, counts = other.ask(THIRD)
    check("2 ranks load what 1 has saved, and generate the same", out == [third] and cached == [512], (out, cached))
    check("each rank its part of it", counts["loaded_blocks"] == 2 * 4 and counts["failed_blocks"] == 0, counts)
    out, cached, text = run("other", store.file, block_size=32)
    check("another block size finds nothing", out == [*base, third] and set(cached) == {0}, (out, cached))
    check("and says why", "block size is 32 here and 128 there" in text, text)
    for first, second in ((two, single), (single, other), (two, other)):
        handed(first, second, base)


if __name__ == "__main__":
    main()
