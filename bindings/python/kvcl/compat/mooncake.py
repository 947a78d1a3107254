"""MooncakeDistributedStore's calls over KVCL's store, for programs written for mooncake.store.

    from kvcl.compat.mooncake import MooncakeDistributedStore, ReplicateConfig

or, before the program imports mooncake.store itself, `kvcl.compat.mooncake.install()`.

setup()'s global_segment_size is the pool of this process. The servers that it names are not used, since KVCL's store
has no master: KVCL_RENDEZVOUS, KVCL_SIZE and the options of contrib/doc/engines, as a JSON object in MOONCAKE_KVCL, say
where the ranks meet. Calls return Mooncake's numbers: 0 or a count, and negative for an error; no failure of the store
raises. Calls that are not here raise AttributeError with their name. Where it differs: a put under a key that exists
replaces a value of another length; soft pins are not kept.
"""

import ctypes
import json
import os
import sys
import types
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .._job import Job
from .._job_options import block_is_first, options
from .._keys import key_from_bytes

WHO = "kvcl.compat.mooncake"
OK, FAILED, INVALID, NOT_FOUND = 0, -1, -600, -704


class ReplicateConfig:
    """How a value is kept. replica_num: its copies."""

    def __init__(self) -> None:
        self.replica_num = 1
        self.with_soft_pin = False
        self.with_hard_pin = False
        self.preferred_segment = ""
        self.preferred_segments: List[str] = []
        self.prefer_alloc_in_same_node = False


def _replicas(config: Optional[ReplicateConfig]) -> int:
    if config is None:
        return 0
    if config.with_hard_pin:
        raise NotImplementedError(f"{WHO}: ReplicateConfig.with_hard_pin")
    return config.replica_num


class MooncakeDistributedStore:
    """The calls of Mooncake's class for bytes and buffers."""

    def __init__(self) -> None:
        self._job: Optional[Job] = None
        self._first = False
        self._host = ""
        self._salt = b""
        self._ranges: Dict[int, int] = {}  # registered buffers: address, bytes

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{WHO}: MooncakeDistributedStore.{name} is not offered")

    # ---- the store ----

    def setup(self, local_hostname: Any = "localhost", metadata_server: str = "", global_segment_size: int = 16 << 20,
              local_buffer_size: int = 16 << 20, protocol: str = "tcp", rdma_devices: str = "",
              master_server_addr: str = "", *unused: Any, **unused_too: Any) -> int:
        """Open the store. 0, also if it opens later; ValueError: MOONCAKE_KVCL has a wrong option."""
        if isinstance(local_hostname, dict):
            return self.setup(**local_hostname)
        self.close()
        given = json.loads(os.environ.get("MOONCAKE_KVCL", "{}"))
        if "store" not in given:
            given.setdefault("pool", int(global_segment_size))
        found = options(f"{WHO}: MOONCAKE_KVCL", given)
        self._host = str(local_hostname)
        self._salt = found.salt.encode()
        self._first = block_is_first(f"{WHO}: MOONCAKE_KVCL", found, "the usual value")
        self._job = Job(WHO, found)
        if not self._first:
            self._job.open()
        return OK

    def close(self) -> int:
        """Leave the store."""
        job, self._job = self._job, None
        if job is not None:
            job.close()
        return OK

    def get_hostname(self) -> str:
        """setup()'s local_hostname."""
        return self._host

    def health_check(self) -> int:
        """1: the store is open; 0: it is not (yet)."""
        return 1 if self._job is not None and self._job.is_open else 0

    # ---- bytes ----

    def put(self, key: str, value: Any, config: Optional[ReplicateConfig] = None) -> int:
        """Put a value: any buffer of bytes, which is copied before the call returns. 0, or an error."""
        return self.put_batch([key], [value], config)

    def put_parts(self, key: str, *parts: Any, config: Optional[ReplicateConfig] = None) -> int:
        """Put one value, whose parts follow each other. 0, or an error."""
        return self._put([key], [[memoryview(part).cast("B") for part in parts]], config)[0]

    def put_batch(self, keys: Sequence[str], values: Sequence[Any], config: Optional[ReplicateConfig] = None) -> int:
        """Put values; 0, or an error if one was not stored."""
        if len(keys) != len(values):
            return INVALID
        return min(self._put(keys, [[memoryview(value).cast("B")] for value in values], config), default=OK)

    def get(self, key: str) -> bytes:
        """A value's bytes; b"" if it is absent."""
        return self.get_batch([key])[0]

    def get_batch(self, keys: Sequence[str]) -> List[bytes]:
        """The bytes of each value; b"" where it is absent."""
        sizes = self._sizes(keys)
        found = [i for i, size in enumerate(sizes) if size >= 0]
        buffers = [bytearray(sizes[i]) for i in found]
        out = [b""] * len(keys)
        if found and self._job is not None:
            arrived = self._job.get_values([self._key(keys[i]) for i in found], buffers)
            for i, buffer, ok in zip(found, buffers, arrived):
                out[i] = bytes(buffer) if ok else b""
        return out

    # ---- registered buffers ----

    def register_buffer(self, buffer_ptr: int, size: int) -> int:
        """Allow the calls below to use this memory, which must stay until unregister_buffer()."""
        if buffer_ptr <= 0 or size <= 0:
            return INVALID
        self._ranges[buffer_ptr] = size
        return OK

    def unregister_buffer(self, buffer_ptr: int) -> int:
        """The memory may be freed. 0, or an error if it was not registered."""
        return OK if self._ranges.pop(buffer_ptr, None) is not None else INVALID

    def put_from(self, key: str, buffer_ptr: int, size: int, config: Optional[ReplicateConfig] = None) -> int:
        """Put a value out of a registered buffer. 0, or an error."""
        return self.batch_put_from([key], [buffer_ptr], [size], config)[0]

    def batch_put_from(self, keys: Sequence[str], buffer_ptrs: Sequence[int], sizes: Sequence[int],
                       config: Optional[ReplicateConfig] = None) -> List[int]:
        """Put values out of one buffer each; 0 for each, or an error."""
        return self.batch_put_from_multi_buffers(keys, [[one] for one in buffer_ptrs], [[one] for one in sizes], config)

    def batch_put_from_multi_buffers(self, keys: Sequence[str], all_buffer_ptrs: Sequence[Sequence[int]],
                                     all_sizes: Sequence[Sequence[int]],
                                     config: Optional[ReplicateConfig] = None) -> List[int]:
        """Put values out of several buffers each; 0 for each, or an error."""
        views = self._views(keys, all_buffer_ptrs, all_sizes)
        return [INVALID] * len(keys) if views is None else self._put(keys, views, config)

    def get_into(self, key: str, buffer_ptr: int, size: int) -> int:
        """Get a value into at least as much memory; its bytes, or an error."""
        return self.batch_get_into([key], [buffer_ptr], [size])[0]

    def batch_get_into(self, keys: Sequence[str], buffer_ptrs: Sequence[int], sizes: Sequence[int]) -> List[int]:
        """Get values into one buffer each; their bytes, or errors."""
        return self.batch_get_into_multi_buffers(keys, [[one] for one in buffer_ptrs], [[one] for one in sizes])

    def batch_get_into_multi_buffers(self, keys: Sequence[str], all_buffer_ptrs: Sequence[Sequence[int]],
                                     all_sizes: Sequence[Sequence[int]],
                                     prefer_alloc_in_same_node: bool = False) -> List[int]:
        """Get values into several buffers each; their bytes, or errors."""
        views = self._views(keys, all_buffer_ptrs, all_sizes)
        if views is None:
            return [INVALID] * len(keys)
        rooms = [sum(one.nbytes for one in view) for view in views]
        if self._job is None:
            return [FAILED] * len(keys)
        out = [room if ok else NOT_FOUND
               for room, ok in zip(rooms, self._job.get_values([self._key(key) for key in keys], views))]
        left = [i for i, one in enumerate(out) if one < 0]  # absent, or shorter than the memory
        sizes = self._sizes([keys[i] for i in left])
        short = [(i, size) for i, size in zip(left, sizes) if 0 <= size < rooms[i]]
        for i, size in zip(left, sizes):
            out[i] = INVALID if size > rooms[i] else NOT_FOUND
        arrived = self._job.get_values([self._key(keys[i]) for i, _ in short],
                                       [_cut(views[i], size) for i, size in short]) if short else []
        for (i, size), ok in zip(short, arrived):
            out[i] = size if ok else NOT_FOUND
        return out

    # ---- keys ----

    def is_exist(self, key: str) -> int:
        """1: it exists; 0: it does not; negative: there is no store."""
        return self.batch_is_exist([key])[0]

    def batch_is_exist(self, keys: Sequence[str]) -> List[int]:
        """is_exist() of each key."""
        if self._job is None:
            return [FAILED] * len(keys)
        return [int(one) for one in self._job.has_values([self._key(key) for key in keys])]

    def get_size(self, key: str) -> int:
        """A value's bytes, or an error."""
        return self._sizes([key])[0]

    def remove(self, key: str, force: bool = False) -> int:
        """Remove a value. 0, or an error; force has no meaning here."""
        if self._job is None:
            return FAILED
        if not self._job.has_values([self._key(key)])[0]:
            return NOT_FOUND
        return OK if self._job.remove_values([self._key(key)]) else FAILED

    def remove_all(self, force: bool = False) -> int:
        """Remove all values of the store, those of other programs too; the number of blocks removed."""
        if self._job is None:
            return FAILED
        return self._job.call(FAILED, lambda o: o.store.clear(timeout=o.timeout))

    # ---- inside ----

    def _key(self, key: str) -> bytes:
        return key_from_bytes(f"mooncake/{key}", self._salt)

    def _put(self, keys: Sequence[str], values: Sequence[Sequence[memoryview]],
             config: Optional[ReplicateConfig]) -> List[int]:
        replicas = _replicas(config)
        if self._job is None:
            return [FAILED] * len(keys)
        sizes = [sum(one.nbytes for one in value) for value in values]
        if self._first and sizes:
            self._job.open(block=max(max(sizes), 4096))
        done = self._job.put_values([self._key(key) for key in keys], values, sizes, replicas)
        return [OK if one else FAILED for one in done]

    def _sizes(self, keys: Sequence[str]) -> List[int]:
        """The bytes of values, or an error for each."""
        if self._job is None:
            return [FAILED] * len(keys)
        found: Sequence[Optional[int]] = self._job.call(
            [None] * len(keys), lambda o: o.store.value_sizes([self._key(key) for key in keys], timeout=o.timeout))
        return [NOT_FOUND if size is None else size for size in found]

    def _views(self, keys: Sequence[str], all_ptrs: Sequence[Sequence[int]],
               all_sizes: Sequence[Sequence[int]]) -> Optional[List[List[memoryview]]]:
        """Registered memory as buffers; None: some of it is not registered."""
        if not len(keys) == len(all_ptrs) == len(all_sizes):
            return None
        out: List[List[memoryview]] = []
        for ptrs, sizes in zip(all_ptrs, all_sizes):
            if len(ptrs) != len(sizes) or not all(self._known(ptr, size) for ptr, size in zip(ptrs, sizes)):
                return None
            out.append([memoryview((ctypes.c_ubyte * size).from_address(ptr)).cast("B")
                        for ptr, size in zip(ptrs, sizes)])
        return out

    def _known(self, ptr: int, size: int) -> bool:
        return size >= 0 and any(base <= ptr and ptr + size <= base + room for base, room in self._ranges.items())


def _cut(views: Sequence[memoryview], size: int) -> List[memoryview]:
    """The first `size` bytes of several buffers."""
    out: List[memoryview] = []
    for view in views:
        out.append(view[:size])
        size -= out[-1].nbytes
    return out


def install() -> None:
    """Make `from mooncake.store import MooncakeDistributedStore` give the class of this module, in this process."""
    package: Any = sys.modules.get("mooncake") or types.ModuleType("mooncake")
    package.store = sys.modules[__name__]
    sys.modules["mooncake"], sys.modules["mooncake.store"] = package, sys.modules[__name__]
