"""Mooncake's calls over KVCL's store, for programs written for mooncake.store.

    from kvcl.compat.mooncake import MooncakeDistributedStore, ReplicateConfig

or, before the program imports mooncake.store itself, `kvcl.compat.mooncake.install()`. Programs of several processes,
such as vLLM with LMCache, find it by a folder in PYTHONPATH:

    python -m kvcl.compat.mooncake FOLDER

setup()'s global_segment_size is the pool of this process. The servers that it names are not used, since KVCL's store
has no master: KVCL_RENDEZVOUS, KVCL_SIZE and the options of contrib/doc/engines, as a JSON object in MOONCAKE_KVCL, say
where the ranks meet. Calls return Mooncake's numbers: 0 or a count, and negative for an error; no failure of the store
raises. Calls that are not here raise AttributeError with their name. Where it differs: a put under a key that exists
replaces a value of another length; soft pins are not kept.
"""

import ctypes
import enum
import json
import os
import sys
import types
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .._job import Job
from .._job_options import block_is_first, options
from .._keys import keys_from_bytes
from .._options import bytes_of
from ._tensors import FAILED, INVALID, NOT_FOUND, OK, Tensors

WHO = "kvcl.compat.mooncake"
SERVERS = ("device_name", "master_server_address")  # other names of rdma_devices and master_server_addr
OFF = ("", "0", "false", "none")  # values of an option of setup() that ask for nothing
PACKAGE = '''"""mooncake.store and mooncake.engine over KVCL. Made by python -m kvcl.compat.mooncake."""

from kvcl.compat.mooncake import install

install()
'''


class SoftPinAction(enum.Enum):
    PRESERVE = 0
    ENABLE = 1
    DISABLE = 2


class ReplicateConfig:
    """How a value is kept. replica_num: its copies. The others are checked, and have no effect."""

    def __init__(self) -> None:
        self.replica_num = 1
        self.nof_replica_num = 0
        self.dfs_replica_num = 0
        self.with_soft_pin = False
        self.with_hard_pin = False
        self.soft_pin_action = SoftPinAction.PRESERVE
        self.preferred_segment = ""
        self.preferred_segments: List[str] = []
        self.preferred_nof_segments: List[str] = []
        self.prefer_alloc_in_same_node = False
        self.data_type: Any = None
        self.group_ids: Any = None
        self._soft_pin_ttl_ms: Optional[int] = None

    @property
    def soft_pin_ttl_ms(self) -> Optional[int]:
        """Milliseconds; only with soft_pin_action ENABLE."""
        return self._soft_pin_ttl_ms

    @soft_pin_ttl_ms.setter
    def soft_pin_ttl_ms(self, ms: Optional[int]) -> None:
        if ms is not None and not (isinstance(ms, int) and 0 <= ms < 1 << 64):
            raise TypeError(f"soft_pin_ttl_ms is {ms!r}: milliseconds, or None")
        self._soft_pin_ttl_ms = ms

    def __str__(self) -> str:
        return f"ReplicateConfig(replica_num={self.replica_num}, soft_pin_action={self.soft_pin_action.name})"


def _replicas(config: Optional[ReplicateConfig]) -> int:
    """The copies that are asked for; -1: a config that contradicts itself."""
    if config is None:
        return 0
    if config.with_hard_pin:
        raise NotImplementedError(f"{WHO}: ReplicateConfig.with_hard_pin")
    if config.soft_pin_ttl_ms is not None and config.soft_pin_action != SoftPinAction.ENABLE:
        return -1
    return config.replica_num


def _given() -> Dict[str, Any]:
    """The options of MOONCAKE_KVCL. ValueError: it is no object of JSON."""
    text = os.environ.get("MOONCAKE_KVCL", "{}")
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{WHO}: MOONCAKE_KVCL is {text!r}: {error}: an object is needed, such as "
                         '{"block": "1M"}') from None
    if not isinstance(given, dict):
        raise ValueError(f'{WHO}: MOONCAKE_KVCL is {text!r}: an object is needed, such as {{"block": "1M"}}')
    return given


class BufferHandle(bytearray):
    """A value's bytes, with Mooncake's calls."""

    def size(self) -> int:
        """The number of bytes."""
        return len(self)

    def ptr(self) -> int:
        """Their address, which is good as long as the handle is."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self)) if self else 0


class MooncakeDistributedStore(Tensors):
    """The calls of Mooncake's class for bytes, buffers and tensors."""

    def __init__(self) -> None:
        self._job: Optional[Job] = None
        self._first = False
        self._host = ""
        self._salt = b""
        self._ranges: Dict[int, int] = {}  # registered buffers: address, bytes

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{WHO}: MooncakeDistributedStore.{name} is not offered")

    # ---- the store ----

    def setup(self, local_hostname: Any = "localhost", metadata_server: str = "", global_segment_size: Any = 16 << 20,
              local_buffer_size: Any = 16 << 20, protocol: str = "tcp", rdma_devices: str = "",
              master_server_addr: str = "", engine: Any = None, **more: Any) -> int:
        """Open the store. 0, also if it opens later; negative: a size that is none; ValueError: MOONCAKE_KVCL has a
        wrong option; TypeError: what is asked for is not offered, such as a tenant_id (option salt). The arguments may
        be one dict, whose values may all be strings; then ValueError too: programs take a TypeError for a setup()
        without a dict, and call it without the option."""
        if isinstance(local_hostname, dict):
            try:
                return self.setup(**local_hostname)
            except TypeError as error:
                raise ValueError(str(error)) from None
        for name, value in more.items():
            if name not in SERVERS and str(value).lower() not in OFF:
                raise TypeError(f"{WHO}: setup: {name} is not offered")
        self.close()
        given = _given()
        try:
            pool, _ = bytes_of(global_segment_size), bytes_of(local_buffer_size)
        except ValueError:
            return INVALID
        if "store" not in given:
            given.setdefault("pool", pool)
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

    def upsert(self, key: str, value: Any, config: Optional[ReplicateConfig] = None) -> int:
        """Put a value in place of the one that is there."""
        return self.upsert_batch([key], [value], config)

    def upsert_parts(self, key: str, *parts: Any, config: Optional[ReplicateConfig] = None) -> int:
        """upsert() of one value, whose parts follow each other."""
        return self._put([key], [[memoryview(part).cast("B") for part in parts]], config, True)[0]

    def upsert_batch(self, keys: Sequence[str], values: Sequence[Any],
                     config: Optional[ReplicateConfig] = None) -> int:
        """upsert() of several values: 0, or the worst error."""
        if len(keys) != len(values):
            return INVALID
        return min(self._put(keys, [[memoryview(value).cast("B")] for value in values], config, True), default=OK)

    def get(self, key: str) -> bytes:
        """A value's bytes; b"" if it is absent."""
        return self.get_batch([key])[0]

    def get_batch(self, keys: Sequence[str]) -> List[bytes]:
        """The bytes of each value; b"" where it is absent."""
        return [b"" if one is None else bytes(one) for one in self.batch_get_buffer(keys)]

    def get_buffer(self, key: str) -> Optional[BufferHandle]:
        """A value; None: it is absent."""
        return self.batch_get_buffer([key])[0]

    def batch_get_buffer(self, keys: Sequence[str]) -> List[Optional[BufferHandle]]:
        """The values; None where one is absent."""
        sizes = self._sizes(keys)
        found = [i for i, size in enumerate(sizes) if size >= 0]
        buffers = [BufferHandle(sizes[i]) for i in found]
        out: List[Optional[BufferHandle]] = [None] * len(keys)
        if found and self._job is not None:
            arrived = self._job.get_values(self._keys([keys[i] for i in found]), buffers)
            for i, buffer, ok in zip(found, buffers, arrived):
                out[i] = buffer if ok else None
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

    def upsert_from(self, key: str, buffer_ptr: int, size: int, config: Optional[ReplicateConfig] = None) -> int:
        """upsert() out of a registered buffer."""
        return self.batch_upsert_from([key], [buffer_ptr], [size], config)[0]

    def batch_upsert_from(self, keys: Sequence[str], buffer_ptrs: Sequence[int], sizes: Sequence[int],
                          config: Optional[ReplicateConfig] = None) -> List[int]:
        """upsert_from() of each key."""
        views = self._views(keys, [[one] for one in buffer_ptrs], [[one] for one in sizes])
        return [INVALID] * len(keys) if views is None else self._put(keys, views, config, True)

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
               for room, ok in zip(rooms, self._job.get_values(self._keys(keys), views))]
        left = [i for i, one in enumerate(out) if one < 0]  # absent, or shorter than the memory
        sizes = self._sizes([keys[i] for i in left])
        short = [(i, size) for i, size in zip(left, sizes) if 0 <= size < rooms[i]]
        for i, size in zip(left, sizes):
            out[i] = INVALID if size > rooms[i] else NOT_FOUND
        arrived = self._job.get_values(self._keys([keys[i] for i, _ in short]),
                                       [_cut(views[i], size) for i, size in short]) if short else []
        for (i, size), ok in zip(short, arrived):
            out[i] = size if ok else NOT_FOUND
        return out

    def get_into_ranges(self, buffer_ptrs: Sequence[int], all_keys: Sequence[Sequence[str]],
                        all_dst_offsets: Sequence[Sequence[Sequence[int]]],
                        all_src_offsets: Sequence[Sequence[Sequence[int]]],
                        all_sizes: Sequence[Sequence[Sequence[int]]]) -> List[List[List[int]]]:
        """Copy ranges of values into registered buffers: for each buffer and key, bytes or an error of each range. Each
        value is got whole, once."""
        names = sorted({key for keys in all_keys for key in keys})
        values = dict(zip(names, self.batch_get_buffer(names)))
        return [[self._ranges_of(ptr, values[key], *ranges) for key, *ranges in zip(*of_buffer)]
                for ptr, *of_buffer in zip(buffer_ptrs, all_keys, all_dst_offsets, all_src_offsets, all_sizes)]

    def _ranges_of(self, ptr: int, value: Optional[BufferHandle], to: Sequence[int], at: Sequence[int],
                   sizes: Sequence[int]) -> List[int]:
        if not len(to) == len(at) == len(sizes):
            return [INVALID] * max(len(to), len(at), len(sizes))
        out = []
        for there, here, size in zip(to, at, sizes):
            if value is None:
                out.append(NOT_FOUND)
            elif min(there, here, size) < 0 or here + size > len(value) or not self._known(ptr + there, size):
                out.append(INVALID)
            else:
                ctypes.memmove(ptr + there, bytes(memoryview(value)[here:here + size]), size)
                out.append(size)
        return out

    # ---- keys ----

    def is_exist(self, key: str) -> int:
        """1: it exists; 0: it does not; negative: there is no store."""
        return self.batch_is_exist([key])[0]

    def batch_is_exist(self, keys: Sequence[str]) -> List[int]:
        """is_exist() of each key."""
        if self._job is None:
            return [FAILED] * len(keys)
        return [int(one) for one in self._job.has_values(self._keys(keys))]

    def get_size(self, key: str) -> int:
        """A value's bytes, or an error."""
        return self._sizes([key])[0]

    def remove(self, key: str, force: bool = False) -> int:
        """Remove a value. 0, or an error; force has no meaning here."""
        if self._job is None:
            return FAILED
        if not self._job.has_values(self._keys([key]))[0]:
            return NOT_FOUND
        return OK if self._job.remove_values(self._keys([key])) else FAILED

    def batch_remove(self, keys: Sequence[str], force: bool = False) -> List[int]:
        """remove() of each key."""
        return [self.remove(key, force) for key in keys]

    def remove_all(self, force: bool = False) -> int:
        """Remove all values of the store, those of other programs too; the number of blocks removed."""
        removed = self._job.clear() if self._job is not None else None
        return FAILED if removed is None else removed

    # ---- inside ----

    def _keys(self, keys: Sequence[str]) -> List[bytes]:
        return keys_from_bytes([f"mooncake/{key}" for key in keys], self._salt)

    def _put(self, keys: Sequence[str], values: Sequence[Sequence[memoryview]], config: Optional[ReplicateConfig],
             replace: bool = False) -> List[int]:
        replicas = _replicas(config)
        if self._job is None or replicas < 0:
            return [FAILED if self._job is None else INVALID] * len(keys)
        sizes = [sum(one.nbytes for one in value) for value in values]
        if self._first and sizes:
            self._job.open(block=max(max(sizes), 4096))
        done = self._job.put_values(self._keys(keys), values, sizes, replicas, replace)
        return [OK if one else FAILED for one in done]

    def _sizes(self, keys: Sequence[str]) -> List[int]:
        """The bytes of values, or an error for each."""
        if self._job is None:
            return [FAILED] * len(keys)
        found: Sequence[Optional[int]] = self._job.call(
            [None] * len(keys), lambda o: o.store.value_sizes(self._keys(keys), timeout=o.timeout))
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
    """Make `from mooncake.store import MooncakeDistributedStore` give the class of this module, in this process, and
    `from mooncake.engine import TransferEngine` that of kvcl.compat.mooncake_engine."""
    from . import mooncake_engine
    package: Any = sys.modules.get("mooncake") or types.ModuleType("mooncake")
    package.store, package.engine = sys.modules[__name__], mooncake_engine
    sys.modules["mooncake"], sys.modules["mooncake.store"] = package, sys.modules[__name__]
    sys.modules["mooncake.engine"] = mooncake_engine


def main() -> None:
    """Make the folder."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m kvcl.compat.mooncake FOLDER\n"
                 "Makes FOLDER/mooncake, a package whose store and engine are KVCL's: put FOLDER into PYTHONPATH.")
    package = os.path.join(sys.argv[1], "mooncake")
    os.makedirs(package, exist_ok=True)
    with open(os.path.join(package, "__init__.py"), "w", encoding="ascii") as file:
        file.write(PACKAGE)
    print(f"mooncake.store and mooncake.engine are KVCL's with PYTHONPATH={os.path.abspath(sys.argv[1])}")


if __name__ == "__main__":
    main()
