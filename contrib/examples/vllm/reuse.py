"""One process of run: generate from a long prompt, and say how much of its KV cache came from the store."""

import sys
import time

from vllm import LLM, SamplingParams
from vllm.config import KVTransferConfig


def main():
    process, model, store = sys.argv[1:]
    llm = LLM(model, max_model_len=2048, enforce_eager=True, disable_log_stats=False,
              kv_transfer_config=KVTransferConfig(
                  kv_connector="KVCLConnector", kv_connector_module_path="kvcl.vllm", kv_role="kv_both",
                  kv_connector_extra_config={"store": store}))
    prompt = {"prompt_token_ids": [(7 * i) % 500 + 3 for i in range(1500)]}
    begun = time.monotonic()
    out, = llm.generate([prompt], SamplingParams(temperature=0, max_tokens=8), use_tqdm=False)
    took = time.monotonic() - begun
    llm.generate([{"prompt_token_ids": [5, 6, 7]}], SamplingParams(max_tokens=2), use_tqdm=False)  # saves end meanwhile
    print(f"{process} process: {out.num_cached_tokens} of {len(prompt['prompt_token_ids'])} tokens of the prompt from "
          f"the store, {took:.2f} s, generated {list(out.outputs[0].token_ids)}", flush=True)


if __name__ == "__main__":
    main()
