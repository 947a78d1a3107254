"""The store: a block directory spread over the ranks of a communicator, and the blocks it points at."""

from typing import Any, Optional

from . import _kvcl
from ._cache import Cache
from ._request import Request


class Store(_kvcl.Store):
    """Find a block by its key on any rank, and fetch it, verified. Opening is collective over comm.

    Keys are 32 bytes each: a list of them, or one buffer with all of them. Two ways to use it, which mix: the engine
    manages its own cache's blocks (publish, withdraw), or the store manages those of `cache` (alloc, free; it evicts
    what was not used for longest). dram_bytes gives this rank a pool for put(), in blocks of block_bytes.
    """

    def __new__(cls, comm: _kvcl.Comm, *, cache: Optional[Cache] = None, dram_bytes: int = 0, block_bytes: int = 0,
                dir_entries: int = 0, checksum: bool = True) -> "Store":
        return cls._open(comm, cache, dir_entries, dram_bytes, block_bytes, checksum)

    def get(self, keys: Any, cache: Cache, blocks: Any, *, timeout: Optional[float] = None) -> Request:
        """Fetch blocks into my cache's. If some did not come the request fails with the first one's error.

        request.block_status tells which; those not OK have undefined bytes.
        """
        return self._get(Request(), keys, cache, blocks, timeout)

    def put(self, keys: Any, cache: Cache, blocks: Any, *, timeout: Optional[float] = None) -> Request:
        """Copy blocks of my cache into this rank's pool and publish the copies."""
        return self._put(Request(), keys, cache, blocks, timeout)

    def publish(self, keys: Any, cache: Cache, blocks: Any, *, timeout: Optional[float] = None) -> Request:
        """Publish blocks where they lie: their bytes must not change until withdrawn or evicted."""
        return self._publish(Request(), keys, cache, blocks, timeout)

    def remove(self, keys: Any, *, timeout: Optional[float] = None) -> Request:
        """Remove keys everywhere."""
        return self._remove(Request(), keys, timeout)

    def bcast(self, keys: Any, cache: Cache, blocks: Any, *, timeout: Optional[float] = None) -> Request:
        """Collective: give a prefix to every rank, from whoever has it, and publish it everywhere."""
        return self._bcast(Request(), keys, cache, blocks, timeout)

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<kvcl.Store, closed>" if self.closed else "<kvcl.Store>"
