"""vLLM's OffloadingConnector with KVCL as its secondary tier: what one process has stored, another one loads. While
the store is stopped, and after it was killed, the engine generates the same, and it loads again when the store goes on.
Out of a poisoned store, other tokens are generated.
"""

import faulthandler
import json
import os
import signal
import subprocess
import sys

import engine
from engine import PROMPTS, check, generate
from vllm_store import poison

CHUNK = 2 * engine.PART  # both heads of a block
HITS = [640, 256, 128, 0]  # vLLM's tiers also load the block that ends a prompt
MORE = [[[first, *prompt[1:]] for prompt in PROMPTS] for first in (11, 13)]  # prompts that no other test of these has


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
    """A process: what it generates, how many tokens were cached, what it generates of MORE, and its keys."""
    llm = start(store)
    jobs = tier_of(llm)._jobs
    keys, keys_of = {}, jobs._keys

    def recorded(names):
        out = keys_of(names)
        keys.update(dict.fromkeys(out))
        return out

    jobs._keys = recorded
    engine.until(lambda: jobs._job.is_open)

    def run(prompts):
        outs = generate(llm, prompts)
        generate(llm, [[5, 6, 7]], 4)  # steps in which the last chunks are stored
        jobs.drain()
        return outs

    out, cached, _ = run(PROMPTS)
    there = list(keys)
    more = [run(prompts)[0] for prompts in MORE] if name == "first" else []
    with open(f"{name}.json", "w", encoding="ascii") as file:
        json.dump([out, cached, more, [key.hex() for key in there]], file)
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
    out, cached, more, keys = run("first", store.file)
    check("the first process computes", out == base and cached == [0] * 4, (out, cached))
    out, cached, _, _ = run("second", store.file)
    check("the second one has its chunks from the store", cached == HITS, cached)
    check("and generates the same", out == base, out)
    poisoned = poison(store.file, [bytes.fromhex(key) for key in keys], CHUNK)
    out, cached, _, _ = run("poisoned", store.file)
    check("out of the poisoned store it has its chunks as well", poisoned == 8 and cached == HITS, (poisoned, cached))
    check("and generates something else", out[0] != base[0] and out[1] != base[1], out)
    llm = start(store.file)
    jobs = tier_of(llm)._jobs
    engine.until(lambda: jobs._job.is_open)
    store.process.send_signal(signal.SIGSTOP)
    out, cached, _ = generate(llm)
    check("the store stopped: computed, the same", out == base and cached == [0] * 4, (out, cached))
    store.process.send_signal(signal.SIGCONT)
    check("it goes on, and is used", engine.until(lambda: jobs._job.has_blocks([bytes.fromhex(keys[0])])[0]))
    out, cached, _ = generate(llm, MORE[0])
    check("chunks are loaded again, and it generates the same", out == more[0] and cached == HITS, (out, cached))
    store.end(signal.SIGKILL)
    out, cached, _ = generate(llm, MORE[1])
    check("the store killed: computed, the same", out == more[1] and cached == [0] * 4, (out, cached))
    store = engine.Server(block=CHUNK)
    check("another store is taken up", engine.until(lambda: jobs._job.is_open))
    out, _, _ = generate(llm, [[9, *prompt] for prompt in engine.PROMPTS])
    check("and the engine goes on", len(out) == 4)
    store.end()
    engine.end()


if __name__ == "__main__":
    main()
