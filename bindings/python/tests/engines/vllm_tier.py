"""vLLM's OffloadingConnector with KVCL as its secondary tier: what one process has stored, another one loads. After
the store was killed, the engine generates the same.
"""

import faulthandler
import json
import os
import signal
import subprocess
import sys

import engine
from engine import check, generate

CHUNK = 2 * engine.PART  # both heads of a block
HITS = [640, 256, 128, 0]  # vLLM's tiers also load the block that ends a prompt


def start(store):
    from vllm import LLM
    from vllm.config import KVTransferConfig
    return LLM("model", max_model_len=2048, enforce_eager=True, kv_transfer_config=KVTransferConfig(
        kv_connector="OffloadingConnector", kv_role="kv_both", kv_connector_extra_config={
            "spec_name": "CpuTier", "spec_module_path": "cpu_tier", "cpu_bytes_to_use": 16 << 20,
            "secondary_tiers": [{"type": "KVCLTier", "module_path": "kvcl.vllm", "store": store, "connect": 2,
                                 "timeout": 2}]}))


def tier_of(llm):
    scheduler = engine.scheduler_of(llm)
    return scheduler.connector_scheduler.manager.secondary_tiers[0]


def one(name, store):
    """A process: what it generates, and how many tokens were cached."""
    llm = start(store)
    jobs = tier_of(llm)._jobs
    engine.until(lambda: jobs._job.is_open)
    out, cached, _ = generate(llm)
    generate(llm, [[5, 6, 7]], 4)  # steps in which the last chunks are stored
    jobs.drain()
    with open(f"{name}.json", "w", encoding="ascii") as file:
        json.dump([out, cached], file)
    os._exit(0)


def run(name, store):
    subprocess.run([sys.executable, __file__, name, store], check=True, timeout=engine.LIMIT)
    with open(f"{name}.json", encoding="ascii") as file:
        return json.load(file)


def main():
    if len(sys.argv) > 1:
        return one(*sys.argv[1:])
    faulthandler.dump_traceback_later(engine.LIMIT, exit=True)
    base = engine.expected()
    store = engine.Server(block=CHUNK)
    out, cached = run("first", store.file)
    check("the first process computes", out == base and cached == [0] * 4, (out, cached))
    out, cached = run("second", store.file)
    check("the second one has its chunks from the store", cached == HITS, cached)
    check("and generates the same", out == base, out)
    llm = start(store.file)
    jobs = tier_of(llm)._jobs
    engine.until(lambda: jobs._job.is_open)
    store.end(signal.SIGKILL)
    out, cached, _ = generate(llm)
    check("the store killed: the same", out == base, (out, cached))
    store = engine.Server(block=CHUNK)
    check("another store is taken up", engine.until(lambda: jobs._job.is_open))
    out, _, _ = generate(llm, [[9, *prompt] for prompt in engine.PROMPTS])
    check("and the engine goes on", len(out) == 4)
    store.end()
    engine.end()


if __name__ == "__main__":
    main()
