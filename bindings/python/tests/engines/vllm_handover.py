"""Prefill and decode apart: one engine computes prompts; another one, started separately, generates from them. There
are prompts of several blocks, of whole ones only, and of less than one. A handover that never arrives is computed.
"""

import faulthandler
import json
import os
import subprocess
import sys

import engine
from engine import PROMPTS, check, generate


def prefill(store):
    """Write the parameters that each request's decode takes."""
    llm = engine.start({"store": store}, "kv_producer")
    engine.until(lambda: all(side._link.ready() for side in engine.sides(llm)))
    _, _, params = generate(llm, tokens=1, params=[{"do_remote_decode": True}] * len(PROMPTS))
    engine.forget(llm)  # until the blocks have been saved, and are free
    with open("handover.json", "w", encoding="ascii") as file:
        json.dump(params, file)
    os._exit(0)


def decode(store):
    """Generate from them."""
    base = engine.expected()
    with open("handover.json", encoding="ascii") as file:
        params = json.load(file)
    check("every request has parameters", all(one and one["do_remote_prefill"] for one in params), params)
    llm = engine.start({"store": store, "handover_timeout": 5.0}, "kv_consumer")
    scheduler, worker = engine.sides(llm)
    engine.until(lambda: scheduler._link.ready() and worker._link.ready())
    loaded = []
    take = worker._transfers.take_counts

    def counted():
        counts = take()
        loaded.append(counts["loaded_blocks"])
        return counts

    worker._transfers.take_counts = counted
    out, _, _ = generate(llm, params=params)
    check("the decode engine generates what one engine does", out == base, out)
    check("all blocks came from the prefill engine", sum(loaded) == 6 + 3 + 1 + 1, loaded)
    engine.forget(llm)
    out, _, _ = generate(llm, PROMPTS[:1], params=[dict(params[0], kvcl_id="no such handover")])
    check("a handover that never arrives is computed", out == base[:1], out)
    engine.end()


def main():
    faulthandler.dump_traceback_later(engine.LIMIT, exit=True)
    if len(sys.argv) > 2:
        return {"prefill": prefill, "decode": decode}[sys.argv[1]](sys.argv[2])
    store = engine.Server()
    try:
        subprocess.run([sys.executable, __file__, "prefill", store.file], check=True, timeout=engine.LIMIT)
        sys.exit(subprocess.run([sys.executable, __file__, "decode", store.file], timeout=engine.LIMIT).returncode)
    finally:
        store.end()


if __name__ == "__main__":
    main()
