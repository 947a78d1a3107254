"""KVCL, the KV-cache Communication Library: move KV blocks between ranks, find them anywhere, share prefixes.

    import kvcl

    with kvcl.Context() as ctx:                              # mpirun, srun, a rendezvous address, or alone
        world = ctx.world
        cache = ctx.cache("main", kvcl.Layout(layers=4, blocks=64, tokens=16, heads=8, head_dim=128, elem_bytes=2))
        store = kvcl.Store(world)

        tokens = list(range(48 * 16))                        # a prompt, 16 tokens a block
        ids = list(range(48))                                # the blocks of the cache that it gets
        keys = kvcl.key_chain(kvcl.key_root(b"a tenant's secret", "llama-3-8b"), tokens, 16)
        hit = store.match(keys)                              # the longest leading run of blocks that any rank has
        store.get(keys[:hit], cache, ids[:hit]).wait()       # verified, a status per block
        for block in ids[hit:]:
            cache.write(block, bytes(cache.layout.block_bytes))  # here a model computes the other blocks
        store.publish(keys[hit:], cache, ids[hit:]).wait()
        world.barrier()                                      # other ranks may still read this rank's blocks
        store.close()
        cache.close()

Operations return a Request: wait() for it, or await it; a Queue collects many. The rules of the C library hold here as
well (include/kvcl/kvcl.h); in short:

- Times are seconds. timeout=None is the context's default (KVCL_TIMEOUT) for an operation, and no limit for a wait:
  the operation's own deadline ends it.
- A buffer is anything with the buffer protocol (bytearray, memoryview, mmap, array, a NumPy array) or DLPack (a torch
  CPU tensor). Caches and registered memory may be a CUDA device's too (a torch tensor, __cuda_array_interface__).
  Buffers and caches of an operation must stay untouched until its request is done; the package keeps them alive until
  then, even if you drop the Request.
- The GIL is released in every call that may block or copy. Everything may be used from many threads.
- Errors are exceptions, all of them KvclError: .status says which.
"""

from . import _load, ep, sched
from ._cache import Cache, Layout
from ._client import Call, Layers, StoreClient
from ._comm import Comm, MemoryInfo, RankState, RecvInfo
from ._context import ANY_SOURCE, ANY_TAG, Context
from ._errors import (AccessDenied, AuthFailed, BadLayout, Busy, Canceled, DeadHandle, Exists, IOFailed, InProgress,
                      Internal, InvalidParam, KvclError, NoMemory, NoQuorum, NoSpace, NotFound, NotRegistered,
                      OutOfRange, ProtocolError, RankFailed, Revoked, Shutdown, Stale, Status, TimedOut, Truncated,
                      UnknownRank, Unreachable, Unsupported, VersionMismatch, WaitTimeout)
from ._keys import key_chain, key_from_bytes, key_from_string, key_root, keys_from_bytes, value_key, value_keys
from ._mem import Mem, RemoteMem
from ._query import Setting, build, colls, settings, topology, version
from ._queue import Done, Queue
from ._request import Request, wait_all, wait_any, wait_some
from ._reshard import ReshardGroup, ReshardStep, reshard_plan, reshard_plan_source
from ._store import Store
from ._store_events import EventKind, StoreEvent, StoreItem, StorePlace, Tier
from ._transfer import Transfer
from ._views import ViewEvent, ViewEventKind

__version__ = version()

__all__ = [
    "ANY_SOURCE", "ANY_TAG", "AccessDenied", "AuthFailed", "BadLayout", "Busy", "Cache", "Call", "Canceled", "Comm",
    "Context", "DeadHandle", "Done", "EventKind", "Exists", "IOFailed", "InProgress", "Internal", "InvalidParam",
    "KvclError", "Layers", "Layout", "Mem", "MemoryInfo", "NoMemory", "NoQuorum", "NoSpace", "NotFound",
    "NotRegistered", "OutOfRange", "ProtocolError", "Queue", "RankFailed", "RankState", "RecvInfo", "RemoteMem",
    "Request", "ReshardGroup", "ReshardStep", "Revoked", "Setting", "Shutdown", "Stale", "Status", "Store",
    "StoreClient", "StoreEvent", "StoreItem", "StorePlace", "Tier", "TimedOut", "Transfer", "Truncated",
    "UnknownRank", "Unreachable", "Unsupported", "VersionMismatch", "ViewEvent", "ViewEventKind", "WaitTimeout",
    "build", "colls", "ep", "key_chain", "key_from_bytes", "key_from_string", "key_root", "keys_from_bytes",
    "reshard_plan", "reshard_plan_source", "settings", "topology", "value_key", "value_keys", "version", "wait_all",
    "wait_any", "wait_some",
]
