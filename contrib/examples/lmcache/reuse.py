"""One process of run: generate from a long prompt, and say how much of its KV cache came from LMCache."""

import sys
import time

import vllm.triton_utils.dispatcher  # CPU
vllm.triton_utils.dispatcher._rebind_kernels = lambda *unused, **unused_too: None  # CPU: it trips over numba's objects
from vllm import LLM, SamplingParams
from vllm.config import KVTransferConfig


def main():
    process, model, port = sys.argv[1:]
    llm = LLM(model, max_model_len=2048, enforce_eager=True, disable_log_stats=False,
              kv_transfer_config=KVTransferConfig(
                  kv_connector="LMCacheMPConnector", kv_role="kv_both",
                  kv_connector_extra_config={"lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": int(port)}))
    prompt = {"prompt_token_ids": [(7 * i) % 500 + 3 for i in range(1500)]}
    begun = time.monotonic()
    out, = llm.generate([prompt], SamplingParams(temperature=0, max_tokens=8), use_tqdm=False)
    took = time.monotonic() - begun
    print(f"{process} process: {out.num_cached_tokens} of {len(prompt['prompt_token_ids'])} tokens of the prompt from "
          f"the store, {took:.2f} s, generated {list(out.outputs[0].token_ids)}", flush=True)
    time.sleep(2)  # LMCache stores behind the request


if __name__ == "__main__":
    main()
