"""SGLang itself, on a CPU, with HiCache over a kvcl_serve that is stopped, and one that is killed, while the engine runs:
it generates the same tokens, computed where they must be, and pages come from the store again when that goes on, or
another one is there. Argument: the model's folder.
"""

import json
import os
import signal
import sys
import time

from sglang.srt.mem_cache.pool_host import base

from engine import PART, Server, check

base.HICACHE_HOST_MEMORY_RESERVE_BYTES = 0  # see sglang_engine.py; the engine's processes import this file too
PROMPTS = [[(7 * i + s) % 1000 + 3 for i in range(n)] for s, n in ((0, 700), (5, 300))]
HITS = [640, 256]  # tokens of whole pages
LIMIT = 300        # seconds until a test that hangs is ended


def main():
    import sglang
    store = Server(block=PART)
    extra = {"backend_name": "kvcl", "module_path": "kvcl.sglang", "class_name": "Storage", "interface_v1": 1,
             "kvcl": {"store": store.file, "timeout": 2, "connect": 60}}
    engine = sglang.Engine(
        model_path=sys.argv[1], device="cpu", attention_backend="torch_native", sampling_backend="pytorch",
        disable_overlap_schedule=True, mem_fraction_static=0.5, max_total_tokens=4096, disable_cuda_graph=True,
        skip_server_warmup=True, page_size=64, log_level="warning", enable_hierarchical_cache=True, hicache_ratio=2.0,
        hicache_io_backend="direct", hicache_mem_layout="page_first_direct", hicache_write_policy="write_through",
        hicache_storage_prefetch_policy="wait_complete", hicache_storage_backend="dynamic",
        hicache_storage_backend_extra_config=json.dumps(extra))

    def generate():
        """(what is generated, tokens from the store), once the engine's own caches are empty"""
        until = time.monotonic() + LIMIT
        while not engine.flush_cache().success:  # pages are written in the background
            assert time.monotonic() < until, "the caches cannot be flushed"
            time.sleep(0.5)
        outs = engine.generate(input_ids=PROMPTS, sampling_params={"temperature": 0, "max_new_tokens": 8})
        details = [out["meta_info"].get("cached_tokens_details") or {} for out in outs]
        return [out["output_ids"] for out in outs], [one.get("storage", 0) for one in details]

    def hits(what):
        """Ask until all comes from the store."""
        begun, run = time.monotonic(), generate()
        while run[1] != HITS and run[0] == cold and time.monotonic() < begun + LIMIT:
            run = generate()
        print(f"noticed: {what}: after {time.monotonic() - begun:.1f} s", flush=True)
        check(f"{what}: pages come from the store, and it generates the same", run == (cold, HITS), run)

    cold, stored = generate()
    check("an empty store has nothing", stored == [0, 0], stored)
    hits("a store")
    store.process.send_signal(signal.SIGSTOP)
    run = generate()
    check("the store stopped: computed, the same", run == (cold, [0, 0]), run)
    store.process.send_signal(signal.SIGCONT)
    hits("it goes on")
    store.end(signal.SIGKILL)
    run = generate()
    check("the store killed: computed, the same", run == (cold, [0, 0]), run)
    store = Server(block=PART)
    hits("another store")
    store.end()
    engine.shutdown()
    print("done", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
