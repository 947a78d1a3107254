"""SGLang over KVCL: Storage is a dynamic backend of HiCache, the third level below the GPU's and the host's memory.

    --enable-hierarchical-cache --hicache-storage-backend dynamic --hicache-storage-backend-extra-config
        '{"backend_name": "kvcl", "module_path": "kvcl.sglang", "class_name": "Storage", "interface_v1": 1,
          "kvcl": {"pool": "8G"}}'

The options below "kvcl" are those of contrib/doc/engines. Pages are blocks of the store, copied straight from and into
SGLang's host pool.
"""

import ctypes
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ._cache import Layout
from ._introduce import Fields
from ._job import Job, Memory
from ._job_options import options
from ._keys import keys_from_bytes
from ._sglang_pools import Pools, is_shared, text_of

try:
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorage
except ImportError:  # the parts below need no engine
    HiCacheStorage = object

WHO = "kvcl.sglang"
MEMORY = "sglang host pool"


class Pages(NamedTuple):
    """The pages of a host pool: the pieces of one, and their places if those are regular."""

    page_bytes: int
    pieces: int
    shape: str                # what two pools must have in common to share pages
    layout: Optional[Layout]  # None: the pieces are copied one by one


def pages_of(name: str, first: Sequence[int], second: Sequence[int], sizes: Sequence[int], pages: int,
             base: int) -> Pages:
    """Pages from the addresses of the pieces of page 0 and of page 1.

    A page of SGLang's pools is one piece (MLA), one for K and one for V, or one for each layer of both, in
    one allocation. Their order in the store is that of their addresses. name: SGLang's for the order of the bytes.
    base: the address of the pool.
    """
    shape = f"{name}/{'+'.join(map(str, sizes))}"
    size, at = sizes[0], sorted(first)
    step = at[1] - at[0] if len(at) > 1 else 0
    stride = second[0] - first[0]
    regular = (all(one == size for one in sizes) and at[0] == base and stride >= size and
               at == [base + i * step for i in range(len(at))] and
               list(second) == [one + stride for one in first])
    layout = Layout(layers=len(at), kv=1, blocks=pages, head_dim=size, elem_bytes=1, layer_stride=step,
                    block_stride=stride) if regular else None
    return Pages(sum(sizes), len(sizes), shape, layout)


def suffix_of(config: Any, shape: str, shared: bool = True) -> str:
    """What a page's key has in addition to SGLang's hash of its tokens: everything else that decides its bytes.

    shared: all tensor-parallel ranks of an MLA model have the same pages, and one of them stores them for all.
    """
    def get(name: str, default: Any) -> Any:
        return getattr(config, name, default)

    tp = "all" if shared and get("is_mla_model", False) else f"{get('tp_rank', 0)}.{get('tp_size', 1)}"
    return (f"/sglang/{get('model_name', None) or ''}/tp{tp}/pp{get('pp_rank', 0)}.{get('pp_size', 1)}"
            f"/cp{get('attn_cp_rank', 0)}.{get('attn_cp_size', 1)}/dcp{get('dcp_rank', 0)}.{get('dcp_size', 1)}"
            f"/{shape}")


def fields_of(config: Any, pool: Any, pages: Optional[Pages] = None) -> Tuple[Fields, List[int]]:
    """What decides the bytes of a page besides its tokens, and this process's ranks: each compares itself with those of
    the same ranks in other engines. pages: None if other pools have all bytes."""
    def get(name: str, default: Any) -> Any:
        return getattr(config, name, default)

    fields = {"model": get("model_name", None) or "", "pipeline-parallel size": get("pp_size", 1),
              "context-parallel size": get("attn_cp_size", 1), "decode-context-parallel size": get("dcp_size", 1),
              "layout": text_of(getattr(pool, "layout", "")), "dtype": str(getattr(pool, "dtype", "")),
              "cache dtype": _kv_cache_dtype(), "page size": getattr(pool, "page_size", 0)}
    if not get("is_mla_model", False):
        fields["tensor-parallel size"] = get("tp_size", 1)
    if pages is not None:
        fields["page bytes"], fields["pieces of a page"] = pages.page_bytes, pages.pieces
    return fields, [get(name, 0) for name in ("tp_rank", "pp_rank", "attn_cp_rank", "dcp_rank")]


def _kv_cache_dtype() -> str:
    """SGLang's --kv-cache-dtype: two types of 8 bits have one type of storage, which is all that a pool names."""
    try:
        from sglang.srt.runtime_context import get_server_args
        return str(get_server_args().kv_cache_dtype)
    except Exception:  # no server, or another version: models of two such types need different salts
        return ""


def _view(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")


class Storage(Pools, HiCacheStorage):
    """SGLang's interface of a storage backend.

    A page that is absent, or a store that is, is a miss; a page that was not stored is False. No call raises once the
    backend is made. get and set of one page at a time (SGLang's older interface) are for pools without pointers.
    """

    def __init__(self, storage_config: Any, kwargs: Optional[Dict[str, Any]] = None) -> None:
        extra = getattr(storage_config, "extra_config", None) or {}
        given = extra.get("kvcl", {})
        if not isinstance(given, dict):
            raise ValueError(f"{WHO}: \"kvcl\" in the extra config is {given!r}: an object of options is needed")
        found = options(WHO, given)
        self._config = storage_config
        self._salt = found.salt.encode()
        self._suffix = suffix_of(storage_config, "flat")
        self._job = Job(WHO, found)
        self._pages: Optional[Pages] = None
        self._page_tokens = 1
        self._logical = False  # the first pool has indices alone, and the others have all bytes
        self._others = {}

    # ---- SGLang's calls ----

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        """The pool that pages are copied from and into. Opens the store."""
        self.mem_pool_host = pool = mem_pool_host
        self._page_tokens = getattr(pool, "logical_page_size", pool.page_size)
        memory: List[Memory] = []
        self._logical = getattr(pool, "kv_buffer", 0) is None
        if self._logical:
            return self._job.introduce(*fields_of(self._config, pool))
        try:
            self._pages = self._read(pool)
            self._suffix = suffix_of(self._config, self._pages.shape)
            if self._pages.layout is not None:
                memory = [Memory(MEMORY, self._pages.layout, pool.kv_buffer)]
        except Exception as error:  # a pool of a later SGLang: the engine goes on without these pages
            return self._job.say("pool", f"the host pool {type(pool).__name__}, layout {getattr(pool, 'layout', '?')}, "
                                         f"cannot be used, so nothing is found and nothing is kept: {error!r}")
        self._job.introduce(*fields_of(self._config, pool, self._pages))
        self._job.open(block=self._pages.page_bytes, memory=memory)

    def batch_exists(self, keys: List[str], extra_info: Any = None) -> int:
        """The number of leading pages that are stored."""
        return self._job.match(self._keys(keys)) if keys else 0

    def batch_get_v1(self, keys: List[str], host_indices: Any, extra_info: Any = None) -> List[bool]:
        """Copy pages into the host pool; which have arrived."""
        if self._pages is None:
            return [False] * len(keys)
        if self._pages.layout is None:
            return self._job.get_values(self._keys(keys), self._pieces(host_indices))
        return self._job.get_blocks(self._keys(keys), MEMORY, self._ids(keys, host_indices))

    def batch_set_v1(self, keys: List[str], host_indices: Any, extra_info: Any = None) -> List[bool]:
        """Copy pages out of the host pool; which are stored."""
        pages = self._pages
        if pages is None:
            return [False] * len(keys)
        if pages.layout is None:
            return self._job.put_values(self._keys(keys), self._pieces(host_indices), [pages.page_bytes] * len(keys))
        return self._job.put_blocks(self._keys(keys), MEMORY, self._ids(keys, host_indices), pages.page_bytes)

    def exists(self, key: str) -> bool:
        """Whether one page is stored."""
        return self.batch_exists([key]) == 1

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        """Copy one page into a tensor, which it returns; None: absent."""
        return self.batch_get([key], [target_location])[0]

    def batch_get(self, keys: List[str], target_locations: Any = None, target_sizes: Any = None) -> List[Any]:
        """Copy pages into tensors; each of them, or None where its page is absent."""
        tensors = list(target_locations or [])
        if len(tensors) != len(keys) or any(one is None for one in tensors):
            return [None] * len(keys)
        arrived = self._job.get_values(self._keys(keys, "flat/"), tensors)
        return [tensor if ok else None for tensor, ok in zip(tensors, arrived)]

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        """Store one page from a tensor."""
        return self.batch_set([key], [value])

    def batch_set(self, keys: List[str], values: Any = None, target_locations: Any = None,
                  target_sizes: Any = None) -> bool:
        """Store pages from tensors; whether all are stored."""
        tensors = list(values or [])
        if len(tensors) != len(keys) or any(one is None for one in tensors):
            return False
        return all(self._job.put_values(self._keys(keys, "flat/"), tensors, [one.nbytes for one in tensors]))

    def clear(self) -> bool:
        """Remove all blocks of the store, those of other engines too. False: it cannot be done, as by a client of
        kvcl_serve (option store), and the log says why."""
        return self._job.clear() is not None

    def close(self) -> None:
        """Leave the job."""
        self._job.close()

    # ---- pages ----

    def _read(self, pool: Any) -> Pages:
        slots = pool.free_slots.new_tensor(list(range(2 * self._page_tokens)))
        pointers, sizes = pool.get_page_buffer_meta(slots)
        n = len(pointers) // 2
        base = pool.kv_buffer.data_ptr() if hasattr(pool.kv_buffer, "data_ptr") else -1  # several buffers: no layout
        return pages_of(f"{pool.layout}/{pool.dtype}/{_kv_cache_dtype()}", pointers[:n], pointers[n:], sizes[:n],
                        pool.size // pool.page_size, base)

    def _pool_keys(self, name: str, keys: Sequence[str]) -> List[bytes]:
        """Of a pool of v2. Pages of another length are other values, so a key need not name the sizes of its pieces."""
        pool = self._others.get(name)
        shape = f"{name}/{getattr(pool, 'layout', '')}/{getattr(pool, 'dtype', '')}/{_kv_cache_dtype()}"
        suffix = suffix_of(self._config, shape, is_shared(name))
        return keys_from_bytes([f"{key}{suffix}" for key in keys], self._salt)

    def _keys(self, keys: Sequence[str], prefix: str = "") -> List[bytes]:
        return keys_from_bytes([f"{prefix}{key}{self._suffix}" for key in keys], self._salt)

    def _ids(self, keys: Sequence[str], host_indices: Any) -> List[int]:
        return [int(slot) // self._page_tokens for slot in host_indices[::self._page_tokens].tolist()[:len(keys)]]

    def _pieces(self, host_indices: Any) -> List[List[memoryview]]:
        return self._views(self.mem_pool_host, host_indices, len(host_indices) // self._page_tokens)

    def _views(self, pool: Any, host_indices: Any, pages: int) -> List[List[memoryview]]:
        """The pieces of each page, as buffers."""
        pointers, sizes = pool.get_page_buffer_meta(host_indices)
        if pages == 0 or len(pointers) % pages != 0:
            raise ValueError(f"{len(pointers)} pieces of {pages} pages")
        views = [_view(pointer, size) for pointer, size in zip(pointers, sizes)]
        n = len(views) // pages
        return [views[i:i + n] for i in range(0, len(views), n)]
