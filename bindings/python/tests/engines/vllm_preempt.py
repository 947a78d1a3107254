"""vLLM preempts a request, since its few KV blocks are used up, while that request's saves are under way: what is
generated stays that of vLLM without the connector, with whole blocks and layer by layer; and what was saved is what the
request had computed, since the same is generated out of it, although the blocks were given to another request at once.

vllm_preempt.py [base | no | yes STORE]
"""

import faulthandler
import json
import os
import signal
import subprocess
import sys
import threading

import engine
from engine import check, generate

# Four requests that take two blocks each and soon need a third one, which only one of them can get.
PROMPTS = [[(7 * i + s) % 1000 + 3 for i in range(250)] for s in (0, 5, 9, 14)]
TOKENS, BLOCKS = 150, 10  # of which vLLM keeps one


def begin(options):
    return engine.start(options, num_gpu_blocks_override=BLOCKS if options else None, max_model_len=512)


def one(by_layer, store):
    """An engine whose store is stopped from its first save on, until shortly after the first preemption."""
    with open("preempt.json", encoding="ascii") as file:
        base = json.load(file)
    what = "layer by layer" if by_layer == "yes" else "whole blocks"
    path, pid = store.split(",")
    llm = begin({"store": path, "by_layer": by_layer, "save": "all", "retry": 0.2, "timeout": 120.0})
    scheduler, worker = engine.sides(llm)
    check(f"{what}: the store is taken up", engine.until(lambda: scheduler._link.ready() and worker._link.ready()))
    transfers, counts, preempted, stopped = worker._transfers, engine.count(worker), [], []
    save, handle = transfers.save, worker.handle_preemptions

    def stopping(*args, **more):
        if not stopped:
            stopped.append(1)
            os.kill(int(pid), signal.SIGSTOP)
        return save(*args, **more)

    def handling(metadata):
        for request in metadata.work.preempted:
            preempted.append(sum(len(move.blocks) for move in transfers._saving if move.request == request))
            threading.Timer(1.0, os.kill, (int(pid), signal.SIGCONT)).start()
        return handle(metadata)

    transfers.save, worker.handle_preemptions = stopping, handling
    out, _, _ = generate(llm, PROMPTS, TOKENS)
    os.kill(int(pid), signal.SIGCONT)
    check(f"{what}: a request was preempted while its blocks were saved", preempted and preempted[0] > 0, preempted)
    check(f"{what}: it generates the same", out == base, out)
    engine.forget(llm)
    check(f"{what}: all was saved", counts["saved_blocks"] >= 4 * 3 and counts["unsaved_blocks"] == 0, counts)
    before = counts["loaded_blocks"]
    out, _, _ = generate(llm, [prompt + tokens[:140] for prompt, tokens in zip(PROMPTS, base)], TOKENS - 140)
    check(f"{what}: the same out of what was saved", out == [tokens[140:] for tokens in base] and
          counts["loaded_blocks"] >= before + 4 * 3, (out, counts))
    engine.note(f"{what}: {len(preempted)} preemptions, of requests with {preempted} blocks under way")
    engine.end()


def main():
    faulthandler.dump_traceback_later(engine.LIMIT, exit=True)
    if sys.argv[1:2] == ["base"]:
        with open("preempt.json", "w", encoding="ascii") as file:
            json.dump(generate(begin(None), PROMPTS, TOKENS)[0], file)
        return None
    if len(sys.argv) > 2:
        return one(*sys.argv[1:])
    subprocess.run([sys.executable, __file__, "base"], check=True, timeout=engine.LIMIT)
    failed = 0
    for by_layer in ("no", "yes"):
        store = engine.Server()
        try:
            failed += subprocess.run([sys.executable, __file__, by_layer, f"{store.file},{store.process.pid}"],
                                     timeout=engine.LIMIT).returncode != 0
        finally:
            store.end(signal.SIGKILL)
    return sys.exit(failed)


if __name__ == "__main__":
    main()
