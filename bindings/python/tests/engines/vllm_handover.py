"""Prefill and decode apart: one engine computes prompts; another one, started separately, generates from them: out of
the first one's memory, without a store, and through the store, also layer by layer while they are computed. There are
prompts of several blocks, of whole ones only, and of less than one. A handover that never arrives, is of another
prompt, or whose engine was killed, is computed. Poisoned in the store, a handover changes what is generated.
"""

import faulthandler
import json
import os
import signal
import subprocess
import sys

import engine
from engine import PROMPTS, check, generate
from vllm_store import poison, record_keys

SMALL = [[5, 6, 7]]


def options(how, store):
    """Nothing ends by time but what a test shortens: the decode engine starts when the prompts are computed."""
    return {"handover_timeout": float(engine.LIMIT),
            **({"store": "none"} if how == "direct" else {"store": store, "handover": "store"}),
            **({"by_layer": "yes", "load": "sync"} if how == "layers" else {})}


def write(name, what):
    """A reader finds the whole file or none."""
    with open(name + ".new", "w", encoding="ascii") as file:
        json.dump(what, file)
    os.replace(name + ".new", name)


def prefill(how, store):
    """Write the parameters that each request's decode takes. Directly, the engine lives until it is killed."""
    llm = engine.start(options(how, store), "kv_producer")
    scheduler, worker = engine.sides(llm)
    asked = [{"do_remote_decode": True}] * len(PROMPTS)
    if how != "direct":
        engine.until(lambda: scheduler._link.ready() and worker._link.ready())
        sent = layers_sent(worker._transfers)
        _, _, params = generate(llm, tokens=1, params=asked)
        write("sent.json", list(sent))
        _, _, more = generate(llm, PROMPTS[:2], 1, params=asked[:2])
        engine.forget(llm)  # until the blocks have been saved, and are free
        write(f"{how}.json", params + more)
        os._exit(0)
    _, _, params = generate(llm, tokens=1, params=asked)
    _, _, more = generate(llm, PROMPTS[:2], 1, params=asked[:2])
    write("direct.json", params + more)
    engine.until(lambda: os.path.exists("read.json"), engine.LIMIT)
    leases = worker._transfers.leases
    engine.until(lambda: generate(llm, SMALL, 1) and len(leases._open) == 1)
    write("freed.json", [len(leases._open), leases.late])
    engine.until(lambda: False, engine.LIMIT)


def layers_sent(transfers):
    """A list that gets, for each layer that is computed, its number and how many saves wait for it."""
    sent, ready = [], transfers.layer_ready

    def layer_ready(layer, stream=None):
        sent.append([layer, len(transfers._computing)])
        return ready(layer, stream)

    transfers.layer_ready = layer_ready
    return sent


def decode(how, store, prefiller):
    """Generate from them."""
    base = engine.expected()
    engine.until(lambda: os.path.exists(f"{how}.json"), engine.LIMIT)
    with open(f"{how}.json", encoding="ascii") as file:
        params = json.load(file)
    check(f"{how}: every request has parameters", all(one and one["do_remote_prefill"] for one in params), params)
    check(f"{how}: with addresses, or not", all(("kvcl_peers" in one) == (how == "direct") for one in params), params)
    llm = engine.start(options(how, store), "kv_consumer")
    scheduler, worker = engine.sides(llm)
    if how != "direct":
        engine.until(lambda: scheduler._link.ready() and worker._link.ready())
    keys = record_keys()
    counts, waited, load = engine.count(worker), [], worker._transfers.load

    def seen(work):
        waited.append(work.waited)
        return load(work)

    worker._transfers.load = seen
    out, _, _ = generate(llm, params=params[:len(PROMPTS)])
    check(f"{how}: the decode engine generates what one engine does", out == base, out)
    check(f"{how}: all blocks came from the prefill engine", counts["loaded_blocks"] == 6 + 3 + 1 + 1, counts)
    engine.forget(llm)
    if how == "layers":
        with open("sent.json", encoding="ascii") as file:
            sent = json.load(file)
        check("layers: the prefill engine sent each layer while it computed", {layer for layer, saves in sent if saves}
              == {0, 1, 2, 3}, sent)
    if how == "store":
        check("store: all whole blocks are poisoned", poison(store, list(keys)) >= 2 * 8)
        before = counts["loaded_blocks"]
        out, _, _ = generate(llm, PROMPTS[:2], params=params[len(PROMPTS):])
        check("store: poisoned blocks change what is generated", out[0] != base[0] and out[1] != base[1] and
              counts["loaded_blocks"] == before + 6 + 3, (out, counts))
        engine.forget(llm)
    if how == "direct":
        out, _, _ = generate(llm, PROMPTS[1:2], params=params[-1:])
        check("direct: it is read again", out == base[1:2] and counts["loaded_blocks"] == 11 + 3, (out, counts))
        check("direct: a step waits for an engine that was read before", waited == [False] * 4 + [True], waited)
        engine.forget(llm)
    for side in (scheduler, worker):
        side._options["handover_timeout"] = 5.0
    out, _, _ = generate(llm, PROMPTS[:1], params=[dict(params[0], kvcl_id="no such handover")])
    check(f"{how}: a handover that never arrives is computed", out == base[:1], out)
    if how == "direct":
        direct(llm, base, params[len(PROMPTS)], prefiller, counts)
    engine.end()


def direct(llm, base, params, prefiller, counts):
    """params: of the first prompt, which nobody has read."""
    write("read.json", [])
    engine.until(lambda: os.path.exists("freed.json"), engine.LIMIT)
    with open("freed.json", encoding="ascii") as file:
        left = json.load(file)
    check("direct: blocks that were read are free at once", left == [1, 0], left)
    engine.forget(llm)
    before = counts["loaded_blocks"]
    other = dict(params, kvcl_tokens=300, kvcl_blocks=params["kvcl_blocks"][:3])
    out, _, _ = generate(llm, PROMPTS[1:2], params=[other])
    check("direct: another prompt's blocks are not taken", out == base[1:2] and counts["loaded_blocks"] == before, out)
    engine.forget(llm)
    os.kill(prefiller, signal.SIGKILL)
    out, _, _ = generate(llm, PROMPTS[:1], params=[params])
    check("direct: the prefill engine killed: computed", out == base[:1] and counts["loaded_blocks"] == before, out)


def main():
    faulthandler.dump_traceback_later(engine.LIMIT, exit=True)
    if len(sys.argv) > 2:
        if sys.argv[1] == "prefill":
            return prefill(*sys.argv[2:])
        return decode(*sys.argv[2:4], int(sys.argv[4]))
    failed = 0
    for how in ("direct", "store", "layers"):
        store = engine.Server()
        try:
            first = subprocess.Popen([sys.executable, __file__, "prefill", how, store.file])
            try:
                second = subprocess.run([sys.executable, __file__, "decode", how, store.file, str(first.pid)],
                                        timeout=engine.LIMIT)
            finally:
                first.kill()
                first.wait()
            failed += second.returncode != 0
        finally:
            store.end()
    sys.exit(failed)


if __name__ == "__main__":
    main()
