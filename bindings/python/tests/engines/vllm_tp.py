"""Engines of different tensor-parallel sizes, in processes of their own, share blocks by heads: 2 ranks save, 1 loads;
and ranks read prompts out of the memory of an engine of as many ranks, or of more or fewer. In float32, since sums of
bfloat16 differ between the sizes. An engine with another block size finds nothing, and says why.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"

import engine  # noqa: E402
from engine import HITS, check, generate  # noqa: E402

# On a busy machine the engines' threads, which poll, leave those that connect little of two cores: nothing here ends by
# time.
HANDOVER = {"store": "none", "handover_timeout": float(engine.LIMIT)}
SECOND = [[(11 * i) % 900 + 5 for i in range(400)]]


def one(name, store, size, settings):
    """An engine: what it generates, and how many blocks it has loaded and saved."""
    options = None if store == "none" else {"store": store, "match_timeout": 20.0}
    llm = engine.start(options, dtype="float32", tensor_parallel_size=int(size), **json.loads(settings))
    out, cached, _ = generate(llm)
    second, more, _ = generate(llm, SECOND)
    counts = {}
    if options is not None:
        engine.forget(llm)  # until the blocks have been saved
        for metric in llm.get_metrics():
            if metric.name.startswith("vllm:kvcl_"):
                counts[metric.name[len("vllm:kvcl_"):]] = metric.value
    write(f"{name}.json", [out + second, cached + more, counts])


def write(name, what):
    """A reader finds the whole file or none."""
    with open(f"{name}.new", "w", encoding="ascii") as file:
        json.dump(what, file)
    os.replace(f"{name}.new", name)


def read(name):
    with open(name, encoding="ascii") as file:
        return json.load(file)


def prefill(name, size):
    """An engine that computes the prompts when the other one has started, and then lives until it is killed."""
    llm = engine.start(HANDOVER, "kv_producer", dtype="float32", tensor_parallel_size=int(size))
    engine.until(lambda: os.path.exists(f"{name} started.json"), engine.LIMIT)
    asked = [{"do_remote_decode": True}] * len(engine.PROMPTS)
    write(f"{name} params.json", generate(llm, tokens=1, params=asked)[2])
    engine.until(lambda: os.path.exists(f"{name} read.json"), engine.LIMIT)
    write(f"{name} again.json", generate(llm, tokens=1, params=asked)[2])
    engine.until(lambda: False, engine.LIMIT)


def decode(name, size):
    """An engine that generates from them, twice: what, and how many blocks it has read."""
    llm = engine.start(HANDOVER, "kv_consumer", dtype="float32", tensor_parallel_size=int(size))
    outs = []
    for ours, theirs in (("started", "params"), ("read", "again")):
        write(f"{name} {ours}.json", [])
        if not engine.until(lambda theirs=theirs: os.path.exists(f"{name} {theirs}.json"), engine.LIMIT):
            return
        params = read(f"{name} {theirs}.json")
        outs.append(generate(llm, params=params)[0])
        engine.forget(llm)
    counts = {one.name[len("vllm:kvcl_"):]: one.value for one in llm.get_metrics() if one.name.startswith("vllm:kvcl_")}
    write(f"{name}.json", [outs, len(params[0]["kvcl_peers"]), counts])


def handed(theirs, ours):
    """The same as decode(), from an engine of theirs ranks to one of ours."""
    name = f"from {theirs} to {ours}"
    both = [subprocess.Popen([sys.executable, __file__, what, name, str(size)], start_new_session=True)
            for what, size in (("prefill", theirs), ("decode", ours))]
    try:
        engine.until(lambda: any(one.poll() is not None for one in both), engine.LIMIT)
    finally:
        for one in both:
            with contextlib.suppress(ProcessLookupError):  # it has failed, and its line is on standard error
                os.killpg(one.pid, signal.SIGKILL)
            one.wait()
    return read(f"{name}.json") if os.path.exists(f"{name}.json") else (None, None, None)


def run(name, store, size, **settings):
    done = subprocess.run([sys.executable, __file__, name, store, str(size), json.dumps(settings)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=engine.LIMIT)
    if not os.path.exists(f"{name}.json"):
        engine.say(done.stdout)
        return None, None, None, done.stdout
    return (*read(f"{name}.json"), done.stdout)


def main():
    if len(sys.argv) > 1:
        what = {"prefill": prefill, "decode": decode}.get(sys.argv[1])
        return what(*sys.argv[2:]) if what else one(*sys.argv[1:])
    store = engine.Server(block=2 * engine.PART)
    base, _, _, _ = run("base32", "none", 1)
    out, cached, counts, _ = run("two", store.file, 2)
    check("2 ranks generate what 1 does", out == base, out)
    check("they have saved their heads", counts and counts["saved_blocks"] >= 2 * 11, counts)
    out, cached, counts, _ = run("one", store.file, 1)
    check("1 rank loads them, and generates the same", out == base and cached == HITS + [384], (out, cached))
    check("each block once", counts and counts["loaded_blocks"] == 10 and counts["failed_blocks"] == 0, counts)
    out, cached, counts, text = run("other", store.file, 1, block_size=32)
    check("another block size finds nothing", out == base and set(cached) == {0}, (out, cached))
    check("and says why", "block size is 32 here and 128 there" in text, text)
    store.end()
    for theirs, ours in ((2, 1), (1, 2), (2, 2)):
        outs, peers, counts = handed(theirs, ours)
        check(f"a prompt of {theirs} ranks is read by {ours}, which generate the same", outs == [base[:4]] * 2, outs)
        check("all blocks were read, twice", counts and peers == theirs and not counts["failed_blocks"] and
              counts["loaded_blocks"] == 2 * 11 * ours, (peers, counts))
    engine.end()


if __name__ == "__main__":
    main()
