"""A model with two groups of KV caches, full attention and a sliding window, reuses blocks of both out of a store: of
the window only those that it still has. What is generated stays that of vLLM without the connector.
"""

import faulthandler
import json
import os
import signal
import subprocess
import sys

import engine
from engine import HITS, PROMPTS, check, generate
from vllm_store import poison

PART = engine.PART // 2  # two layers of a group
LONG = [[(3 * i) % 990 + 4 for i in range(1500)]]
SETTINGS = {"model": "hybrid", "max_num_batched_tokens": 256, "disable_hybrid_kv_cache_manager": False}


def base():
    llm = engine.start(**SETTINGS)
    with open("hybrid.json", "w", encoding="ascii") as file:
        json.dump([generate(llm)[0], generate(llm, LONG)[0]], file)
    os._exit(0)


def main():
    faulthandler.dump_traceback_later(engine.LIMIT, exit=True)
    if sys.argv[1:] == ["base"]:
        return base()
    here = os.path.dirname(os.path.abspath(__file__))
    for command in ([f"{here}/model.py", "hybrid", "hybrid"], [__file__, "base"]):
        subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL, timeout=engine.LIMIT)
    with open("hybrid.json", encoding="ascii") as file:
        base_out, long_out = json.load(file)
    store, lines = engine.Server(block=PART), engine.Lines()
    llm = engine.start({"store": store.file, "retry": 0.2}, **SETTINGS)
    scheduler, worker = engine.sides(llm)
    check("the engine shares", not scheduler._engine.why and sorted(scheduler._engine.windows) == [0, 200], lines.lines)
    check("the store is taken up", engine.until(lambda: scheduler._link.ready() and worker._link.ready()))
    loads, load, names = [], worker._transfers.load, []

    def seen(work):
        loads.extend(name[-4:] for name in work.names)
        names.extend(work.names)
        return load(work)

    def again(prompts=None):
        engine.forget(llm)
        loads.clear()
        out, cached, _ = generate(llm, prompts)
        return out, cached, [loads.count(bytes([group, 0, 0, 0])) for group in order]

    worker._transfers.load = seen
    order = sorted(range(2), key=lambda group: scheduler._engine.windows[group])  # full attention first
    out, cached, loaded = again()
    check("an empty store has nothing", out == base_out and loaded == [0, 0], (out, cached, loaded))
    out, cached, loaded = again()
    check("the same, out of the store", out == base_out and cached == HITS, (out, cached))
    check("all blocks of full attention, those of the window of the other", loaded == [5 + 2, 2 + 2], loaded)
    again(LONG)
    out, cached, loaded = again(LONG)
    check("a prompt that is computed in parts", out == long_out and cached == [1408] and loaded == [11, 2],
          (out, cached, loaded))
    generate(llm, PROMPTS[:1])
    _, cached, _ = generate(llm, [[*PROMPTS[0][:256], *LONG[0][:200]]])
    check("the engine's own blocks first", cached == [256], cached)

    window = bytes([order[1], 0, 0, 0])
    read = [key for name in set(names) if name[-4:] == window for key in scheduler._keys([name])]
    check("blocks of the window are poisoned", poison(store.file, read, PART) > 0)
    out, cached, _ = again()
    check("they are what is read", out[0] != base_out[0] and cached == HITS, (out, cached))

    def kill(work):
        store.end(signal.SIGKILL)
        worker._transfers.load = load
        return load(work)

    worker._transfers.load = kill
    out, _, _ = again(PROMPTS[:1])
    check("the store killed between match and load: computed", out == base_out[:1], out)
    engine.say("\n".join(lines.lines))
    check("it says so", bool(lines.having("were not loaded")), lines.lines)
    check("nothing failed inside", not lines.having("failed: the engine goes on"), lines.lines)
    engine.end()


if __name__ == "__main__":
    main()
