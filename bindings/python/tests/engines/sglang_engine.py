"""SGLang itself, on a CPU, with HiCache over kvcl.sglang: after a flush of its caches the pages come from the store,
and what is generated stays the same. Arguments: the model's folder, and options of kvcl.sglang as JSON, or "file": for
comparison, SGLang's own backend (SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR).
"""

import json
import os
import sys
import time

from sglang.srt.mem_cache.pool_host import base

# Else no host pool is made where less than 10 GB are free. The engine's processes import this file too.
base.HICACHE_HOST_MEMORY_RESERVE_BYTES = 0
PROMPTS = [[(7 * i + s) % 1000 + 3 for i in range(n)] for s, n in ((0, 700), (5, 300))]
HITS = [640, 256]  # tokens of whole pages


def main():
    import sglang
    file = sys.argv[2] == "file"  # SGLang's own backend, for comparison
    extra = {} if file else {"backend_name": "kvcl", "module_path": "kvcl.sglang", "class_name": "Storage",
                             "interface_v1": 1, "kvcl": json.loads(sys.argv[2])}
    engine = sglang.Engine(
        model_path=sys.argv[1], device="cpu", attention_backend="torch_native", sampling_backend="pytorch",
        disable_overlap_schedule=True, mem_fraction_static=0.5, max_total_tokens=4096, disable_cuda_graph=True,
        skip_server_warmup=True, page_size=64, log_level="info", enable_hierarchical_cache=True, hicache_ratio=2.0,
        hicache_io_backend="direct", hicache_mem_layout="page_first_direct", hicache_write_policy="write_through",
        hicache_storage_prefetch_policy="wait_complete", hicache_storage_backend="file" if file else "dynamic",
        hicache_storage_backend_extra_config=json.dumps(extra))

    def generate():
        outs = engine.generate(input_ids=PROMPTS, sampling_params={"temperature": 0, "max_new_tokens": 8})
        details = [out["meta_info"].get("cached_tokens_details") or {} for out in outs]
        return [out["output_ids"] for out in outs], [one.get("storage", 0) for one in details]

    def flush():
        until = time.monotonic() + 300
        while not engine.flush_cache().success:  # pages are written in the background
            assert time.monotonic() < until, "the caches cannot be flushed"
            time.sleep(1)

    cold, warm = generate(), generate()
    runs = []
    for _ in range(2):
        flush()
        runs.append(generate())
    for what, run in (("cold", cold), ("warm", warm), *(("flushed", run) for run in runs)):
        print(f"{what}: from the store {run[1]}, generated {run[0]}", flush=True)
    good = all(run == (warm[0], HITS) for run in runs) and cold[1] == [0, 0]
    print("ok" if good else "FAILED", flush=True)
    engine.shutdown()
    os._exit(0 if good else 1)


if __name__ == "__main__":
    main()
