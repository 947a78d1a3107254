"""vLLM reuses KV cache across requests, processes, restarts and machines: a connector over a store of kvcl_serve.

    kvcl_serve --block 256K --pool 8G --clients /run/kvcl/store &          # once, for all engines
    vllm serve MODEL --kv-transfer-config '{"kv_connector": "KVCLConnector", "kv_role": "kv_both",
        "kv_connector_module_path": "kvcl.vllm", "kv_connector_extra_config": {"store": "/run/kvcl/store"}}'

--block is the number of bytes of one block of one KV head over all layers, which the connector logs at its start and
names if the store has another. kv_role is kv_both, kv_producer (saves only) or kv_consumer (loads only). The options
of kv_connector_extra_config are in kvcl.vllm.OPTIONS: `python -m kvcl.vllm` prints them.

KVCLTier is a secondary tier of vLLM's own OffloadingConnector (contrib/doc/vllm).

The engine starts and serves without the store, says so once, and takes it up when it is there.
"""

from typing import Any

from ._options import OPTIONS, describe

__all__ = ["KVCLConnector", "KVCLTier", "OPTIONS", "describe"]


def __getattr__(name: str) -> Any:
    if name == "KVCLConnector":  # only then is vLLM needed
        from ._connector import KVCLConnector
        return KVCLConnector
    if name == "KVCLTier":
        from ._tier import KVCLTier
        return KVCLTier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
