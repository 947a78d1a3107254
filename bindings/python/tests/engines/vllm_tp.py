"""Engines of different tensor-parallel sizes, in processes of their own, share blocks by heads: 2 ranks save, 1 loads.
In float32, since sums of bfloat16 differ between the sizes. An engine with another block size finds nothing, and
says why.
"""

import json
import os
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
        one(*sys.argv[1:])
        return
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
    engine.end()


if __name__ == "__main__":
    main()
