"""What an engine says of itself, from vLLM's configuration; and whether this version can share its blocks."""

import dataclasses
import hashlib
import json
from typing import Any, List, Tuple

import torch
import vllm

from .._introduce import Fields


@dataclasses.dataclass(frozen=True)
class Engine:
    """The engine's shape. why: the reason why it cannot share blocks; "" if it can."""

    why: str
    fields: Fields
    block_size: int
    heads: int      # KV heads of the model; 1 for MLA
    tp: int
    tp_rank: int
    by_heads: bool  # a block of the store is one head (_pages.py)
    layers: List[str]  # with several groups: of one with the most
    token_bytes: int  # of a rank, over all layers
    windows: Tuple[int, ...] = ()  # of each group of layers, 0: full attention; (): there is one group, of that

    @property
    def parts(self) -> int:
        """How many blocks of the store a block of vLLM's has, over all ranks."""
        return self.heads if self.by_heads else self.tp


def _config_hash(model: Any) -> str:
    """Of the model's own configuration: engines with different architectures under one name share nothing."""
    try:
        text = json.dumps(model.hf_text_config.to_dict(), sort_keys=True, default=str)
    except Exception:  # noqa: B902: a configuration of a form of its own
        text = str(getattr(model, "hf_text_config", ""))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _unfit(config: Any, groups: Any) -> str:
    parallel = config.parallel_config
    specs = [group.kv_cache_spec for group in groups]
    for spec in specs:
        kind = type(spec).__name__
        if kind not in ("FullAttentionSpec", "SlidingWindowSpec") and (len(specs) > 1 or kind != "MLAAttentionSpec"):
            return (f"the model has {len(specs)} groups of KV caches, of which one is a {kind}: this version shares "
                    "those of full attention and sliding windows, and of MLA alone")
        if getattr(spec, "extra_retained_tokens", 0):
            return "the model drafts tokens by several modules: this version shares no sliding windows then"
    if len({(spec.block_size, spec.page_size_bytes, getattr(spec, "num_kv_heads", 1)) for spec in specs}) > 1:
        return "the model's groups of KV caches have different blocks: this version shares those with equal ones"
    for name in ("pipeline", "decode_context", "prefill_context"):
        size = getattr(parallel, f"{name}_parallel_size", 1)
        if size != 1:
            return f"{name}_parallel_size is {size}: this version shares with 1"
    if not config.cache_config.enable_prefix_caching:
        return "prefix caching is off: blocks have no hashes without it"
    return ""


def _window(spec: Any) -> int:
    """Of a group of layers; 0: full attention. Without vLLM's manager of several groups a layer with a window has full
    attention's blocks: its FullAttentionSpec says the window, and all of its blocks are kept."""
    return int(spec.sliding_window) if type(spec).__name__ == "SlidingWindowSpec" else 0


def engine(config: Any, kv_config: Any, options: Any, tp_rank: int) -> Engine:
    """Of vLLM's VllmConfig and KVCacheConfig."""
    model, cache, parallel = config.model_config, config.cache_config, config.parallel_config
    groups = kv_config.kv_cache_groups
    why = _unfit(config, groups)
    spec = groups[0].kv_cache_spec
    hash_size = getattr(kv_config, "hash_block_size", None)
    if not why and hash_size not in (None, spec.block_size):
        why = f"hashes are of {hash_size} tokens and blocks of {spec.block_size}"
    mla = bool(model.use_mla)
    heads = 1 if mla else model.get_total_num_kv_heads()
    tp = parallel.tensor_parallel_size
    layout = str(getattr(kv_config, "kv_cache_layout", None) or "")
    by_heads = mla or layout.rsplit(".", 1)[-1] == "LBHNC"
    device = config.device_config.device_type
    fields = {
        "model": options["model"] or model.model,
        "revision": str(model.revision or ""),
        "config": _config_hash(model),
        "quantization": str(model.quantization or ""),
        "dtype": str(getattr(spec, "dtype", model.dtype)),
        "cache dtype": str(cache.cache_dtype),
        "block size": spec.block_size,
        "layers": max(len(group.layer_names) for group in groups),
        "KV heads": heads,
        "page bytes of a head": spec.page_size_bytes // max(1, getattr(spec, "num_kv_heads", 1)),
        "layout": layout,
        "hash": str(getattr(cache.prefix_caching_hash_algo, "value", cache.prefix_caching_hash_algo)),
        "vllm": vllm.__version__,
        "device": device + (f" {torch.backends.cpu.get_cpu_capability()}" if device == "cpu" else ""),
    }
    if not by_heads:
        fields["tensor-parallel size"] = tp
    windows = tuple(_window(group.kv_cache_spec) for group in groups)
    if any(windows) or len(windows) > 1:
        fields["groups"] = [[window, len(group.layer_names)] for window, group in zip(windows, groups)]
        if not why and options["store"] == "none":
            why = "option store is none, and a model with sliding windows shares blocks through a store only"
    layers = max((list(group.layer_names) for group in groups), key=lambda names: len(names))
    return Engine(why, fields, spec.block_size, heads, tp, tp_rank, by_heads, layers,
                  len(layers) * spec.page_size_bytes // spec.block_size,
                  windows if "groups" in fields else ())
