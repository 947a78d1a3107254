"""vLLM with LMCache's connector, for run_engines.sh. lmcache_vllm.py MODEL OUT [PORT]: generate and write the tokens,
and how many of each prompt were cached, to OUT; with PORT over the LMCache server there, otherwise without LMCache.
"""

import json
import os
import sys

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")

PROMPTS = [[(7 * i + s) % 1000 + 3 for i in range(n)] for s, n in ((0, 700), (5, 300), (9, 128), (2, 17))]


def main():
    import vllm.triton_utils.dispatcher as dispatcher
    dispatcher._rebind_kernels = lambda *unused, **unused_too: None  # it trips over numba's objects
    from vllm import LLM, SamplingParams
    from vllm.config import KVTransferConfig
    more = {}
    if len(sys.argv) > 3:
        more["kv_transfer_config"] = KVTransferConfig(
            kv_connector="LMCacheMPConnector", kv_role="kv_both",
            kv_connector_extra_config={"lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": int(sys.argv[3])})
    llm = LLM(sys.argv[1], max_model_len=2048, enforce_eager=True, **more)
    outs = llm.generate([{"prompt_token_ids": one} for one in PROMPTS],
                        SamplingParams(temperature=0, max_tokens=16), use_tqdm=False)
    with open(sys.argv[2], "w", encoding="ascii") as file:
        json.dump({"tokens": [list(out.outputs[0].token_ids) for out in outs],
                   "cached": [out.num_cached_tokens for out in outs]}, file)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
