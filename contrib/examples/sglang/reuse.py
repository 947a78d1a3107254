"""One process of run: generate from a long prompt, and say how much of its KV cache came from the store. The keywords
of Engine are the options of `python -m sglang.launch_server`, with - for _.
"""

import json
import os
import sys
import time


def main():
    import sglang
    process, model, store = sys.argv[1:]
    on_cpu = {}
    on_cpu = dict(device="cpu", attention_backend="torch_native", sampling_backend="pytorch",  # CPU
                  disable_overlap_schedule=True, disable_cuda_graph=True, max_total_tokens=4096)  # CPU
    engine = sglang.Engine(
        model_path=model, page_size=64, mem_fraction_static=0.5, skip_server_warmup=True, log_level="warning",
        enable_hierarchical_cache=True, hicache_ratio=2.0, hicache_mem_layout="page_first_direct",
        hicache_io_backend="direct", hicache_write_policy="write_through",
        hicache_storage_prefetch_policy="wait_complete", hicache_storage_backend="dynamic",
        hicache_storage_backend_extra_config=json.dumps({
            "backend_name": "kvcl", "module_path": "kvcl.sglang", "class_name": "Storage", "interface_v1": 1,
            "kvcl": {"store": store}}),
        **on_cpu)
    prompt = [(7 * i) % 500 + 3 for i in range(1500)]
    begun = time.monotonic()
    out = engine.generate(input_ids=prompt, sampling_params={"temperature": 0, "max_new_tokens": 8})
    took = time.monotonic() - begun
    stored = (out["meta_info"].get("cached_tokens_details") or {}).get("storage", 0)
    print(f"{process} process: {stored} of {len(prompt)} tokens of the prompt from the store, {took:.2f} s, generated "
          f"{out['output_ids']}", flush=True)
    until = time.monotonic() + 60
    while not engine.flush_cache().success and time.monotonic() < until:  # once all pages are written
        time.sleep(0.5)
    engine.shutdown()
    os._exit(0)


if __name__ == "__main__":
    main()
