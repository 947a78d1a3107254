"""SGLang's pools beside that of K and V (v2 of its storage interface): states of Mamba, windows, indexers, drafts.

Their pages are values of the store, copied straight from and into SGLang's memory. Which pages of a prompt can be
restored is decided from one query for all pools (restorable(), pure).
"""

from typing import Any, Dict, List, Sequence, Set, Tuple

try:
    from sglang.srt.mem_cache.hicache_storage import PoolName, PoolTransferResult
    KV: Any = PoolName.KV
except ImportError:  # the parts below need no engine
    from types import SimpleNamespace
    KV = "kv"

    def PoolTransferResult(kv_hit_pages: int, extra_pool_hit_pages: Any, restorable_prefix_pages: Any) -> Any:
        return SimpleNamespace(kv_hit_pages=kv_hit_pages, extra_pool_hit_pages=extra_pool_hit_pages,
                               restorable_prefix_pages=restorable_prefix_pages)


def text_of(name: Any) -> str:
    """The name of a pool, or a hit policy, which SGLang gives as an enumeration of strings."""
    return str(getattr(name, "value", name))


def is_shared(name: str) -> bool:
    """Whether all tensor-parallel ranks of an MLA model have the same pages in this pool, as in that of K and V. Others
    may be split (states of Mamba, drafts): each rank stores its own."""
    return name in ("swa", "indexer", "draft_indexer") or name.startswith("deepseek_v4_")


def restorable(policy: str, window: int, present: Sequence[bool]) -> Tuple[int, Set[int]]:
    """Of a prompt's pages, those of one pool being present: (pages that count as hit, the lengths of a prefix that the
    pool can restore). window: the pages that must end there, of policy trailing_pages."""
    if policy == "all_pages":
        hit = list(present).index(False) if False in present else len(present)
        return hit, set(range(1, hit + 1))
    run, good = 0, set()
    for length, there in enumerate(present, 1):
        run = run + 1 if there else 0
        if run >= min(window, length):
            good.add(length)
    return max(good, default=0), good


class Pools:
    """The calls of v2. The class that inherits it has _job, _logical, batch_exists(), batch_get_v1(), batch_set_v1(),
    _pool_keys() and _views()."""

    _others: Dict[str, Any]

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        """A pool beside that of K and V."""
        if text_of(host_pool_name) != "kv":
            self._others[text_of(host_pool_name)] = host_pool

    def on_host_pools_registered(self: Any) -> None:
        """All pools are known. A store whose blocks are as large as the first page waits for that page."""
        if self._logical and (self._job.options.block or not self._job.options.pool):
            self._job.open()

    def batch_exists_v2(self: Any, keys: List[str], pool_transfers: Any = None, extra_info: Any = None) -> Any:
        """How many leading pages can be restored, and how many each pool has."""
        pages = len(keys) if self._logical else self.batch_exists(keys)
        hits = {KV: pages} if pages else {}
        asked = [one for one in pool_transfers or [] if text_of(one.hit_policy) != "block_groups"]  # they gate nothing
        names = [name for one in asked for name in self._pool_keys(text_of(one.name), keys[:pages])]
        found = self._job.has_values(names) if names else []
        lengths = set(range(1, pages + 1))
        for i, one in enumerate(asked if pages else ()):
            hit, good = restorable(text_of(one.hit_policy), max(1, len(one.keys or ())),
                                   found[i * pages:(i + 1) * pages])
            if hit:
                hits[one.name] = hit
            lengths &= good
        return PoolTransferResult(max(lengths, default=0), hits, sorted(lengths))

    def batch_get_v2(self: Any, transfers: List[Any], extra_info: Any = None) -> Dict[Any, List[bool]]:
        """Copy pages into their pools; which have arrived."""
        arrived: Dict[Any, List[bool]] = self._move_v2(transfers, self._job.get_values, self.batch_get_v1)
        return arrived

    def batch_set_v2(self: Any, transfers: List[Any], extra_info: Any = None) -> Dict[Any, List[bool]]:
        """Copy pages out of their pools; which are stored."""
        def put(names: List[bytes], views: List[Any]) -> List[bool]:
            sizes = [sum(one.nbytes for one in view) for view in views]
            if self._logical:
                self._job.open(block=max(sizes))
            done: List[bool] = self._job.put_values(names, views, sizes)
            return done

        stored: Dict[Any, List[bool]] = self._move_v2(transfers, put, self.batch_set_v1)
        return stored

    def _move_v2(self: Any, transfers: List[Any], move: Any, v1: Any) -> Dict[Any, List[bool]]:
        out: Dict[Any, List[bool]] = {}
        names: List[bytes] = []
        views: List[Any] = []
        parts = []
        for one in transfers:
            keys, name = list(one.keys or ()), text_of(one.name)
            out[one.name] = [False] * len(keys)
            try:
                if name == "kv" and keys:
                    out[one.name] = v1(keys, one.host_indices)
                elif keys:
                    pieces = self._views(self._others[name], one.host_indices, len(keys))
                    parts.append((one.name, len(names), len(keys)))
                    names += self._pool_keys(name, keys)
                    views += pieces
            except Exception as error:  # a pool of a later SGLang, or one that was not registered
                self._job.say(("pool", name), f"pages of the pool {name} are not moved: {error!r}")
        done = move(names, views) if names else []
        for name, at, n in parts:
            out[name] = done[at:at + n]
        return out
