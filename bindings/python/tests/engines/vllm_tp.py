"""Engines of different tensor-parallel sizes, in processes of their own, share blocks by heads: 2 ranks save, 1 loads;
and 1 rank reads a prompt out of the memory of 2, and 2 out of that of 1. In float32, since sums of bfloat16 differ
between the sizes. An engine with another block size finds nothing, and says why.
"""

import json
import os
import signal
import subprocess
import sys

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"

import engine  # noqa: E402
from engine import HITS, check, generate  # noqa: E402

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
    with open(f"{name}.json", "w", encoding="ascii") as file:
        json.dump([out + second, cached + more, counts], file)


def prefill(name, size):
    """An engine that computes the prompts for another one, and lives until it is killed."""
    llm = engine.start({"store": "none"}, "kv_producer", dtype="float32", tensor_parallel_size=int(size))
    params = [None]
    while not params[0] or "kvcl_peers" not in params[0]:  # the ranks tell their addresses in a step
        params = generate(llm, [[5, 6, 7]], 1, [{"do_remote_decode": True}])[2]
    params = generate(llm, tokens=1, params=[{"do_remote_decode": True}] * len(engine.PROMPTS))[2]
    with open(f"{name}.new", "w", encoding="ascii") as file:
        json.dump(params, file)
    os.replace(f"{name}.new", f"{name}.json")
    engine.until(lambda: False, engine.LIMIT)


def decode(name, size, params):
    """An engine that generates from them: what, and how many blocks it has read."""
    llm = engine.start({"store": "none"}, "kv_consumer", dtype="float32", tensor_parallel_size=int(size))
    with open(params, encoding="ascii") as file:
        out, _, _ = generate(llm, params=json.load(file))
    counts = {one.name[len("vllm:kvcl_"):]: one.value for one in llm.get_metrics() if one.name.startswith("vllm:kvcl_")}
    with open(f"{name}.json", "w", encoding="ascii") as file:
        json.dump([out, counts], file)


def handed(theirs, ours):
    """The same as decode(), from an engine of theirs ranks to one of ours."""
    name = f"from {theirs} to {ours}"
    first = subprocess.Popen([sys.executable, __file__, "prefill", f"{name} params", str(theirs)],
                             start_new_session=True)
    try:
        if not engine.until(lambda: os.path.exists(f"{name} params.json") or first.poll() is not None, engine.LIMIT):
            return None, None
        subprocess.run([sys.executable, __file__, "decode", name, str(ours), f"{name} params.json"],
                       timeout=engine.LIMIT)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    if not os.path.exists(f"{name}.json"):
        return None, None
    with open(f"{name}.json", encoding="ascii") as file:
        return json.load(file)


def run(name, store, size, **settings):
    done = subprocess.run([sys.executable, __file__, name, store, str(size), json.dumps(settings)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=engine.LIMIT)
    if not os.path.exists(f"{name}.json"):
        engine.say(done.stdout)
        return None, None, None, done.stdout
    with open(f"{name}.json", encoding="ascii") as file:
        return (*json.load(file), done.stdout)


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
    for theirs, ours in ((2, 1), (1, 2)):
        out, counts = handed(theirs, ours)
        check(f"a prompt of {theirs} ranks is read by {ours}, which generate the same", out == base[:4], out)
        check("all blocks were read", counts and counts["loaded_blocks"] == 11 * ours and not counts["failed_blocks"],
              counts)
    engine.end()


if __name__ == "__main__":
    main()
