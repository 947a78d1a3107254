"""The store: a block directory spread over the ranks of a communicator, and the blocks it points at."""

import os
import time
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from . import _kvcl
from ._cache import Cache, Layout
from ._comm import Range
from ._errors import NoSpace
from ._request import Request
from ._store_events import EventKind, StoreEvent, StoreItem, StorePlace, event, item, places

PAGE = 1024   # events, or items, of one query
PARTS_MAX = 1 << 22  # parts of one value
SLICE = 0.25  # seconds that a follower sleeps in the library before it checks for Ctrl-C


def _extents(values: Iterable[Any]) -> Tuple[Tuple[Any, ...], ...]:
    return tuple(tuple(value) if isinstance(value, (list, tuple)) else (value,) for value in values)


class Store(_kvcl.Store):
    """Find a block by its key on any rank, and fetch it, verified. Opening is collective over comm.

    Keys are 32 bytes each: a list of them, or one buffer with all of them. Two ways to use it, which mix: the engine
    manages its own cache's blocks (publish, withdraw), or the store manages those of `cache` (alloc, free; it evicts
    what was not used for longest). dram_bytes gives this rank a pool for put(), in blocks of block_bytes.

    block_bytes may be a sequence of up to 8 different sizes, for the groups of a hybrid model: their blocks share the
    pool, which must have room for 4 of the largest for each size, and copies of a block are made on ranks that have its
    size. Values are stored in blocks of the first size. stats()["sizes"] has the numbers of each size.

    replicas: copies that a put makes of each block by default (at most 4; the ranks use the largest that any of them
    gives). nvme: "/path/of/a/file:size", a second tier for the pool; %r in it is the rank; None: KVCL_STORE_NVME.
    events: how many events of its blocks this rank keeps for followers; None: 65,536, 0: none. join: this rank alone
    opens it, comes to the store that the other ranks have open, and drops what the file of nvme holds (KVCL_STORE_JOIN
    in kvcl_store.h). With KVCL_STORE_HOT=N, a rank copies a block into its pool after fetching it N times from unmapped
    memory of others.

    >>> import kvcl
    >>> with kvcl.Context(boot="self") as ctx, kvcl.Store(ctx.world, dram_bytes=1 << 20, block_bytes=4096) as store:
    ...     key = kvcl.key_from_string("a prompt")
    ...     store.put_value(key, b"any bytes").wait()
    ...     bytes(store.get_value(key))
    ...     store.remove_values([key])
    ...     store.value_sizes([key])
    b'any bytes'
    [None]
    """

    _ranks: int

    def __new__(cls, comm: _kvcl.Comm, *, cache: Optional[Cache] = None, dram_bytes: int = 0,
                block_bytes: Union[int, Sequence[int]] = 0, dir_entries: int = 0, checksum: bool = True,
                replicas: int = 0, nvme: Optional[Union[str, "os.PathLike[str]"]] = None,
                events: Optional[int] = None, join: bool = False) -> "Store":
        self = cls._open(comm, cache, dir_entries, dram_bytes, block_bytes, checksum, replicas, events,
                         None if nvme is None else os.fspath(nvme), join)
        self._ranks = comm.size
        return self

    def tenant(self, tenant: int, secret: Optional[bytes] = None) -> "Store":
        """A handle of this store for one tenant, with all calls of a Store: through it the tenant finds, lists, counts
        and removes its own blocks only, and no other tenant, whatever keys it chooses, finds or times them.

        tenant: its number, not 0. secret: at least 16 random bytes that only the tenant's ranks know, the same on all
        of them; None: the file that KVCL_STORE_TENANT_KEY names. Calls that concern all tenants (drain, exclude,
        tenant), or name another tenant, raise. Close it before the store.
        """
        view = self._tenant(tenant) if secret is None else self._tenant(tenant, secret)
        view._ranks = self._ranks
        return view

    # ---- blocks ----

    def get(self, keys: Any, cache: Cache, blocks: Any, *, timeout: Optional[float] = None) -> Request[None]:
        """Fetch blocks into local ones. If some do not arrive the request fails with the first one's error.

        request.block_status has a status for each; blocks that are not OK have undefined bytes.
        """
        return self._get(Request(), keys, cache, blocks, timeout)

    def get_part(self, keys: Any, cache: Cache, blocks: Any, *, stored: Optional[Layout] = None,
                 layers: Range = None, heads: Range = None, tokens: Range = None, stored_layers: Range = None,
                 stored_heads: Range = None, stored_tokens: Range = None, layerwise: bool = False,
                 timeout: Optional[float] = None) -> Request[None]:
        """Fetch parts of stored blocks into local ones: layers=(first, end) and heads=(first, end) of both;
        tokens=(first, end) of the local ones, stored_tokens=(first, end) of the stored ones. None: all. Give
        stored_layers and stored_heads where those of the stored blocks differ. Tokens count along the lists. The other
        bytes of the local blocks stay. stored: the layout that the blocks had when they were put, if it is not the
        cache's (other numbers of tokens, heads or layers).

        Blocks are fetched whole and verified before any byte of them is written, so a part saves no transfer.
        layerwise: the layers are written one after the other; request.layer_wait(layer) waits for one.
        request.block_status has a status for each key.
        """
        part = ((), layers if stored_layers is None else stored_layers,
                heads if stored_heads is None else stored_heads, stored_tokens)
        return self._get_part(Request(), keys, None if stored is None else stored._tuple, part, cache,
                              (blocks, layers, heads, tokens), layerwise, timeout)

    def put(self, keys: Any, cache: Cache, blocks: Any, *, replicas: int = 0, tenant: int = 0, wait: bool = False,
            to: Optional[int] = None, stays: bool = False, timeout: Optional[float] = None) -> Request[None]:
        """Copy local blocks into this rank's pool and publish the copies; other ranks make replicas - 1 more. Do not
        change the blocks until the request has completed.

        to: the rank whose pool takes the first copy instead of this rank's. A put of a rank without a pool goes into
        the nearest pools. stays: other ranks may fetch the blocks from the cache, while this rank still copies them, in
        a large put of two replicas or more. The blocks must be unpublished, each once.
        request.copies: the number of copies of each. tenant: the owner of the blocks (quota()); 0: none. Without room
        the call raises NoSpace; with wait it blocks until there is room, or the deadline has passed.
        """
        return self._put(Request(), keys, cache, blocks, replicas, tenant, wait, to, stays, timeout)

    def upsert(self, keys: Any, cache: Cache, blocks: Any, *, replicas: int = 0, tenant: int = 0, wait: bool = False,
               to: Optional[int] = None, timeout: Optional[float] = None) -> Request[None]:
        """Replace the blocks of the keys, everywhere. In between they are absent. Blocks for the first
        parts; without room it raises NoSpace and has changed nothing."""
        return self._upsert(Request(), keys, cache, blocks, replicas, tenant, wait, to, False, timeout)

    def publish(self, keys: Any, cache: Cache, blocks: Any, *, timeout: Optional[float] = None) -> Request[None]:
        """Publish blocks in place: their bytes must not change until they are withdrawn or evicted."""
        return self._publish(Request(), keys, cache, blocks, timeout)

    def remove(self, keys: Any, *, timeout: Optional[float] = None) -> Request[None]:
        """Remove keys everywhere."""
        return self._remove(Request(), keys, timeout)

    def bcast(self, keys: Any, cache: Cache, blocks: Any, *, timeout: Optional[float] = None) -> Request[None]:
        """Collective: broadcast a prefix to every rank, from any rank that has it, and publish it everywhere."""
        return self._bcast(Request(), keys, cache, blocks, timeout)

    def match_all(self, keys: Any, comm: Optional[_kvcl.Comm] = None) -> int:
        """Collective over comm (None: the store's): each rank gives keys of its own, for example of its tensor-parallel
        slice, and all get the leading run that all ranks have. Blocks."""
        return self._match_all(keys, comm)

    # ---- values: bytes of any length, from and to plain memory ----

    def put_values(self, keys: Any, values: Iterable[Any], *, replicas: int = 0, tenant: int = 0, wait: bool = False,
                   timeout: Optional[float] = None) -> Request[None]:
        """Put values, one a key: each a buffer, or a list of buffers, one behind the other. As put(); their memory may
        change when the call returns. Larger ones occupy several blocks; a get returns the whole value or nothing."""
        return self._put_values(Request(), keys, _extents(values), replicas, tenant, wait, timeout)

    def upsert_values(self, keys: Any, values: Iterable[Any], *, replicas: int = 0, tenant: int = 0,
                      wait: bool = False, timeout: Optional[float] = None) -> Request[None]:
        """Replace the values of the keys."""
        return self._upsert_values(Request(), keys, _extents(values), replicas, tenant, wait, timeout)

    def get_values(self, keys: Any, buffers: Iterable[Any], *, timeout: Optional[float] = None) -> Request[None]:
        """Get values into writable buffers (or lists of them) of the right lengths: a value of another length
        is NotFound. request.block_status has a status for each."""
        return self._get_values(Request(), keys, _extents(buffers), timeout)

    def put_value(self, key: bytes, value: Any, *, replicas: int = 0, tenant: int = 0, wait: bool = False,
                  timeout: Optional[float] = None) -> Request[None]:
        """One value: a buffer, or a list of them."""
        return self.put_values([key], [value], replicas=replicas, tenant=tenant, wait=wait, timeout=timeout)

    def get_value(self, key: bytes, *, limit: int = 1 << 30, timeout: Optional[float] = None) -> bytearray:
        """One value of any length up to limit; waits for it. NotFound if it is absent; ValueError, with nothing
        allocated, if its holder reports a larger length."""
        size = self.value_sizes([key], timeout=timeout)[0]
        if (size or 0) > limit:
            raise ValueError(f"the value has {size:,} bytes, more than the limit of {limit:,}")
        value = bytearray(size or 0)  # of one that is absent: the get says so
        self.get_values([key], [value], timeout=timeout).wait()
        return value

    def value_sizes(self, keys: Any, *, timeout: Optional[float] = None) -> List[Optional[int]]:
        """The bytes of each value; None: absent. Blocks."""
        return self.value_sizes_post(keys, timeout=timeout).wait()

    def value_keys(self, key: bytes, *, timeout: Optional[float] = None) -> List[bytes]:
        """The keys of all blocks of a value: pass them to pin(), unpin(), copy() and exists() for the whole value.
        Blocks."""
        try:
            return self.value_keys_post(key, timeout=timeout).wait()
        except NoSpace:
            return self.value_keys_post(key, PARTS_MAX + 1, timeout=timeout).wait()

    def remove_values(self, keys: Any, *, timeout: Optional[float] = None) -> None:
        """Remove values everywhere, all of their blocks. An absent value is not an error. Blocks."""
        self.remove_values_post(keys, timeout=timeout).wait()

    # ---- places ----

    def where(self, keys: Any, *, timeout: Optional[float] = None) -> List[List[StorePlace]]:
        """For each key its copies, this rank's own first: on which rank and tier. Use it to choose a rank. It promises
        nothing: a copy may be evicted before the call returns; a get fetches from wherever the block is. Blocks."""
        return self.where_post(keys, timeout=timeout).wait()

    def where_post(self, keys: Any, *, timeout: Optional[float] = None) -> Request[List[List[StorePlace]]]:
        """where() as a Request."""
        return self._query("where", keys, (), timeout, places)

    # ---- pins and quotas ----

    def pin(self, keys: Any, holder: int, ttl: float, *, soft: bool = False,
            timeout: Optional[float] = None) -> List[int]:
        """Keep blocks from eviction in all pools that hold them, for ttl seconds or until unpin(). Returns the number
        of pinned copies of each key (0: no pool holds it, or too much is pinned). holder: a number that you choose;
        pinning again renews. soft: the pin is broken when no other block can be evicted. Blocks."""
        return self.pin_post(keys, holder, ttl, soft=soft, timeout=timeout).wait()

    def unpin(self, keys: Any, holder: int, *, timeout: Optional[float] = None) -> None:
        """Remove this holder's pins of these keys. Blocks."""
        self.unpin_post(keys, holder, timeout=timeout).wait()

    def quota(self, tenant: int, nbytes: int, rank: Optional[int] = None, *,
              timeout: Optional[float] = None) -> None:
        """Limit the bytes of a tenant's blocks in the pool of a rank (None: of each rank); 0: no limit.
        Blocks."""
        self.quota_post(tenant, nbytes, rank, timeout=timeout).wait()

    def clear(self, tenant: int = 0, *, timeout: Optional[float] = None) -> int:
        """Remove a tenant's blocks, or, with 0, all blocks, from all ranks. Returns the number of copies. Blocks."""
        return self.clear_post(tenant, timeout=timeout).wait()

    # ---- copies and moves ----

    def copy(self, keys: Any, rank: int) -> List[bool]:
        """Make a rank take copies into its pool, evicting as needed. Returns which of the keys it now has. Blocks."""
        return self._copy(keys, rank, False)

    def move(self, keys: Any, rank: int) -> List[bool]:
        """copy(), then all other ranks drop their copies of the block: no get fails in between. Blocks."""
        return self._copy(keys, rank, True)

    def drain(self, timeout: Optional[float] = None) -> int:
        """Before this rank closes: move the blocks of its pool and its second tier that no other rank has to ranks with
        free room, and accept no more copies. Returns the number moved; NoSpace if not all found room. Blocks."""
        return self._drain(timeout)

    def exclude(self, rank: int, on: bool = True) -> None:
        """Exclude a rank, or include it again. This is a local choice: this rank sends it no queries and no copies."""
        self._exclude(rank, on)

    # ---- queries as requests: await them, or wait() ----

    def _query(self, what: str, keys: Any, arguments: Tuple[Any, ...], timeout: Optional[float],
               shape: Any = None) -> Request[Any]:
        request: Request[Any] = Request()
        request._shape = shape
        return self._post(request, what, keys, arguments, timeout)

    def match_post(self, keys: Any, *, timeout: Optional[float] = None) -> Request[int]:
        """match() as a Request, whose result is the number of leading keys."""
        return self._query("match", keys, (), timeout)

    def exists_post(self, keys: Any, *, timeout: Optional[float] = None) -> Request[List[bool]]:
        """exists() as a Request."""
        return self._query("exists", keys, (), timeout)

    def pin_post(self, keys: Any, holder: int, ttl: float, *, soft: bool = False,
                 timeout: Optional[float] = None) -> Request[List[int]]:
        """pin() as a Request."""
        return self._query("pin", keys, (holder, ttl, int(soft)), timeout)

    def unpin_post(self, keys: Any, holder: int, *, timeout: Optional[float] = None) -> Request[None]:
        """unpin() as a Request."""
        return self._query("unpin", keys, (holder,), timeout)

    def quota_post(self, tenant: int, nbytes: int, rank: Optional[int] = None, *,
                   timeout: Optional[float] = None) -> Request[None]:
        """quota() as a Request."""
        return self._query("quota", None, (-1 if rank is None else rank, tenant, nbytes), timeout)

    def clear_post(self, tenant: int = 0, *, timeout: Optional[float] = None) -> Request[int]:
        """clear() as a Request."""
        return self._query("clear", None, (tenant,), timeout)

    def rank_stats_post(self, rank: int, *, timeout: Optional[float] = None) -> Request[Dict[str, Any]]:
        """rank_stats() as a Request."""
        return self._query("rank_stats", None, (rank,), timeout)

    def all_stats_post(self, *, timeout: Optional[float] = None) -> Request[List[Optional[Dict[str, Any]]]]:
        """all_stats() as a Request."""
        return self._query("all_stats", None, (self._ranks,), timeout)

    def events_post(self, rank: int, since: int, wait: float = 0.0, *,
                    timeout: Optional[float] = None) -> Request[List[StoreEvent]]:
        """events() as a Request. The deadline begins after wait."""
        return self._query("events", None, (rank, since, wait, PAGE), timeout, lambda raw: [event(one) for one in raw])

    def items_post(self, rank: int, cursor: int = 0, *,
                   timeout: Optional[float] = None) -> Request[Tuple[List[StoreItem], int, int]]:
        """A page of items() as a Request, whose result is (items, cursor of the next page or 0, number of the newest
        event). Begin with cursor 0."""
        return self._query("list", None, (rank, cursor, PAGE), timeout,
                           lambda raw: ([item(one) for one in raw[0]], raw[1], raw[2]))

    def value_sizes_post(self, keys: Any, *, timeout: Optional[float] = None) -> Request[List[Optional[int]]]:
        """value_sizes() as a Request."""
        return self._query("value_sizes", keys, (), timeout)

    def value_keys_post(self, key: bytes, most: int = PAGE, *, timeout: Optional[float] = None) -> Request[List[bytes]]:
        """value_keys() as a Request. NoSpace if the value has more than most blocks; most is at most 65,536."""
        return self._query("value_keys", [key], (most,), timeout)

    def remove_values_post(self, keys: Any, *, timeout: Optional[float] = None) -> Request[None]:
        """remove_values() as a Request."""
        return self._query("remove_values", keys, (), timeout)

    # ---- statistics, listings and events ----

    def rank_stats(self, rank: int, *, timeout: Optional[float] = None) -> Dict[str, Any]:
        """stats() of any rank. Blocks. RankFailed: it has failed."""
        return self.rank_stats_post(rank, timeout=timeout).wait()

    def all_stats(self, *, timeout: Optional[float] = None) -> List[Optional[Dict[str, Any]]]:
        """stats() of every rank, queried at once; None for a rank that has failed or does not answer. Blocks."""
        return self.all_stats_post(timeout=timeout).wait()

    def items(self, rank: int) -> Iterator[StoreItem]:
        """The blocks that a rank holds, a page at a time; nothing is locked in between. Blocks."""
        cursor = 0
        while True:
            page, cursor, _ = self.items_post(rank, cursor).wait()
            yield from page
            if cursor == 0:
                return

    def snapshot(self, rank: int) -> Tuple[List[StoreItem], int]:
        """The start of a follower: the blocks that a rank holds, and the number of the event to follow() from.
        It may include later events already; applying them again changes nothing. Blocks."""
        held, cursor, first = self.items_post(rank).wait()
        while cursor != 0:
            page, cursor, _ = self.items_post(rank, cursor).wait()
            held += page
        return held, first

    def events(self, rank: int, since: int, wait: float = 0.0) -> List[StoreEvent]:
        """Events of a rank after number since, the oldest first, some of them. If there are none yet, waits up to wait
        seconds for one. Stale: they are no longer kept; take a new snapshot(). Blocks."""
        return self.events_post(rank, since, wait).wait()

    def follow(self, rank: int, since: Optional[int] = None, *,
               timeout: Optional[float] = None) -> Iterator[StoreEvent]:
        """Every event of a rank after number since (None: from now on), as they arrive, without end:

            held, since = store.snapshot(rank)
            for event in store.follow(rank, since): ...

        Ends after timeout seconds without one. Stale: events were missed, take a new snapshot; RankFailed: the rank has
        failed, and all its blocks with it.
        """
        if since is None:
            since = self.rank_stats(rank)["events"]
        idle = time.monotonic()
        while timeout is None or time.monotonic() - idle < timeout:
            for one in self.events(rank, since, SLICE if timeout is None else min(SLICE, timeout)):
                since = one.seq
                if one.kind != EventKind.SKIPPED:
                    yield one
                    idle = time.monotonic()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<kvcl.Store, closed>" if self.closed else "<kvcl.Store>"
