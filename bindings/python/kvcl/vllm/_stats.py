"""The connector's numbers through vLLM: its log lines and its own Prometheus registry; and its KV events."""

from typing import Any, Dict, List, Optional

from vllm.distributed.kv_events import MEDIUM_STORAGE, BlockRemoved, BlockStored
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats
from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash

from ._plan import Stored
from ._transfers import COUNTS

_HELP = {
    "loaded_blocks": "blocks loaded from the store or from a prefill engine",
    "loaded_bytes": "bytes loaded from the store or from a prefill engine",
    "ahead_bytes": "bytes of loaded_bytes that were read while the prefill engine computed the prompt",
    "load_seconds": "seconds from the beginning of loads to their end, summed up",
    "failed_blocks": "blocks whose load failed",
    "saved_blocks": "blocks saved, or in the store already",
    "saved_bytes": "bytes of saved blocks",
    "save_seconds": "seconds from the beginning of saves to their end, summed up",
    "unsaved_blocks": "blocks that the store did not take",
}


class Stats(KVConnectorStats):
    """Sums since the last report."""

    @classmethod
    def of(cls, counts: Dict[str, float]) -> "Optional[Stats]":
        """None: nothing happened."""
        return cls(data=counts) if any(counts.values()) else None

    def reset(self) -> None:
        self.data: Dict[str, float] = {}

    def aggregate(self, other: KVConnectorStats) -> "Stats":
        return Stats(data={name: self.data.get(name, 0) + other.data.get(name, 0) for name in COUNTS})

    def reduce(self) -> Dict[str, Any]:
        return {name: round(value, 3) for name, value in self.data.items()}

    def is_empty(self) -> bool:
        return not any(self.data.values())


class Prom(KVConnectorPromMetrics):
    """vllm:kvcl_<count>, a counter for each engine."""

    def __init__(self, vllm_config: Any, metric_types: Any, labelnames: Any, per_engine_labelvalues: Any) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters = {}
        for name in COUNTS:
            counter = self._counter_cls(name=f"vllm:kvcl_{name}", documentation=f"KVCL: {_HELP[name]}.",
                                        labelnames=labelnames)
            self._counters[name] = {engine: counter.labels(*values)
                                    for engine, values in per_engine_labelvalues.items()}

    def observe(self, transfer_stats_data: Dict[str, Any], engine_idx: int = 0) -> None:
        for name, value in transfer_stats_data.items():
            if name in self._counters and value:
                self._counters[name][engine_idx].inc(value)


def event(stored: Stored, block_size: int) -> BlockStored:
    """Blocks that the store has, as vLLM's publisher tells them."""
    convert: Any = maybe_convert_block_hash
    return BlockStored(
        block_hashes=[convert(one) for one in stored.names],
        parent_block_hash=convert(stored.parent) if stored.parent is not None else None, token_ids=stored.tokens,
        block_size=block_size, lora_id=getattr(stored.request.lora_request, "adapter_id", None), medium=MEDIUM_STORAGE,
        lora_name=getattr(stored.request.lora_request, "lora_name", None), ownership="KVCL")


def removed(names: List[bytes]) -> BlockRemoved:
    """Blocks that the store has no more."""
    convert: Any = maybe_convert_block_hash
    return BlockRemoved(block_hashes=[convert(one) for one in names], medium=MEDIUM_STORAGE, ownership="KVCL")
