"""The two ends of a handover without the store (_handover.py), in the workers' processes: Leases of an engine whose
blocks are read, Peers of one that reads. No type of vLLM.

All methods are called by the engine's thread, and none waits. Readers connect without a call on the side that is read
(Context.listen): it may compute, or hold the GIL, for as long as it likes.
"""

import logging
import struct
import time
from typing import Any, Callable, Dict, List, Optional, Set

import kvcl

from ._handover import SLOTS, Lease, Part, Source

TABLE, CACHE = "vllm.leases", "vllm"
NAME = 32
READ = struct.Struct("<32sII")  # a notification: the lease's name, the reader's number, how many readers there are
SCRATCH = 256                   # reads of slots under way
FOREVER = float("inf")


class _Open:
    """A lease: until when, and who has read."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.until: Optional[float] = None  # None: the request has not ended
        self.readers: Set[int] = set()
        self.read = False


class Leases:
    """seconds: how long blocks are kept for a reader after their request has ended."""

    def __init__(self, context: kvcl.Context, seconds: float, log: logging.Logger) -> None:
        self._seconds, self._log = seconds, log
        self._table = context.cache(TABLE, kvcl.Layout.bytes(SLOTS, NAME))
        for slot in range(SLOTS):
            self._table.write(slot, bytes(NAME))
        self._open: Dict[str, _Open] = {}
        self.late = 0  # leases that nobody has read in time
        self._door = context.listen()
        self.address = self._door.address

    def set(self, lease: Lease) -> None:
        """Readers may read the lease's blocks from now on."""
        self.drop([lease.request])
        self._table.write(lease.slot, lease.name)
        self._open[lease.request] = _Open(lease)

    def ended(self, request: str) -> None:
        """The request has ended: its blocks are kept for the reader, for a while."""
        one = self._open.get(request)
        if one is not None:
            one.until = time.monotonic() + self._seconds

    def drop(self, requests: List[str]) -> None:
        """Nobody may read these blocks any more."""
        for request in requests:
            one = self._open.pop(request, None)
            if one is not None:
                self._table.write(one.lease.slot, bytes(NAME))

    def __contains__(self, request: str) -> bool:
        return request in self._open

    def poll(self) -> None:
        """End the leases that all readers have read, or whose time is up."""
        if not self._open:
            return
        while (got := self._door.notify_recv()) is not None:
            self._told(got[1])
        now = time.monotonic()
        for request, one in list(self._open.items()):
            if one.until is not None and (one.read or now > one.until):
                if not one.read:
                    self.late += 1
                    self._log.warning("KVCL: no engine has read the blocks of request %s in %g s: they are freed",
                                      request, self._seconds)
                self.drop([request])

    def _told(self, data: bytes) -> None:
        if len(data) != READ.size:
            return
        name, reader, readers = READ.unpack(data)
        for one in self._open.values():
            if one.lease.name == name and 0 < readers <= 4096 and reader < readers:
                one.readers.add(reader)
                one.read = len(one.readers) >= readers

    def close(self) -> None:
        """Nobody may read any more, nor connect; readers are disconnected."""
        self.drop(list(self._open))
        self._door.close()


class Read(kvcl.Call):
    """A read of blocks. there: all bytes have arrived; whether they are the prompt's, the result says."""

    there = False


class Peers:
    """options: timeout, handover_timeout. Reads wait until it is open."""

    def __init__(self, options: Any) -> None:
        self._options = options
        self._free = list(range(SCRATCH))
        self._open = False
        self._peers: Dict[str, kvcl.Request[kvcl.Comm]] = {}
        self._calls: List[kvcl.Call] = []

    def open(self, context: kvcl.Context, cache: kvcl.Cache) -> None:
        """cache: of this rank's blocks. By any thread. Connections of an earlier context are forgotten."""
        self._open, self._peers, self._free = False, {}, list(range(SCRATCH))
        self._context, self._cache = context, cache
        self._scratch = context.cache("vllm.slots", kvcl.Layout.bytes(SCRATCH, NAME))
        self._open = True

    def progress(self) -> None:
        """Move all reads as far as they go. Never waits."""
        if self._calls:
            self._calls = [call for call in self._calls if not call._advance()]

    def read(self, source: Source, parts: List[Part], blocks: List[int], first: int,
             patience: float = FOREVER) -> Read:
        """Read the source's blocks from its block first on into these; none: say only that they will not be read.
        patience: seconds to wait for a connection, at most handover_timeout. The result is a Status for each part of
        each block."""
        def arrived() -> None:
            call.there = True

        call = Read(self._read(source, parts, blocks, first, patience, arrived))
        if not call._advance():
            self._calls.append(call)
        return call

    # ---- connections ----

    def _peer(self, address: str) -> Optional[kvcl.Comm]:
        """The connection, if there is one; otherwise it is begun. Raises what it failed with, once, but that its time
        was up: that was an earlier read's time, and this read's own has not ended."""
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = self._context.connect_post(address, self._options["handover_timeout"])
        if not peer.done():
            return None
        try:
            comm = peer.result()
        except kvcl.KvclError as error:
            del self._peers[address]
            if not isinstance(error, kvcl.TimedOut):
                raise
            return None
        if comm.rank_state(0) == kvcl.RankState.FAILED:
            del self._peers[address]  # the next call connects again
            return None
        return comm

    # ---- a read ----

    def _read(self, source: Source, parts: List[Part], blocks: List[int], first: int, patience: float,
              arrived: Callable[[], None]) -> Any:
        until = time.monotonic() + min(patience, self._options["handover_timeout"])
        comms: Dict[int, kvcl.Comm] = {}
        while len(comms) < len(parts):  # all connect at once
            for part in parts if self._open else ():
                comm = comms.get(part.peer) or self._peer(source.peers[part.peer])
                if comm is not None:
                    comms[part.peer] = comm
            if len(comms) < len(parts):
                if time.monotonic() > until:
                    raise kvcl.TimedOut("the prefill engine did not answer")
                yield None
        each = sum(len(part.ours) for part in parts)
        if blocks:
            theirs, read = source.blocks[first:first + len(blocks)], [part for part in parts if part.ours]
            yield from self._all([lambda part=part: self._get(comms[part.peer], part, theirs, blocks, each)
                                  for part in read])
            arrived()
            yield from self._check(source, [comms[part.peer] for part in read])
        for part in parts:
            comms[part.peer].notify(0, READ.pack(source.name, part.reader, part.readers))
        return [kvcl.Status.OK] * (len(blocks) * each)

    def _get(self, comm: kvcl.Comm, part: Part, theirs: Any, blocks: List[int], each: int) -> kvcl.Request[None]:
        remote = [block * part.their_parts + one for block in theirs for one in part.theirs]
        local = [block * each + one for block in blocks for one in part.ours]
        return comm.get(0, self._cache, remote, local, remote_cache=CACHE, timeout=self._options["timeout"])

    def _check(self, source: Source, comms: List[kvcl.Comm]) -> Any:
        while len(self._free) < len(comms):
            yield None  # other reads have them
        slots = [self._free.pop() for _ in comms]
        try:
            for slot in slots:
                self._scratch.write(slot, bytes(NAME))
            yield from self._all([lambda comm=comm, slot=slot: comm.get(
                0, self._scratch, [source.slot], [slot], remote_cache=TABLE, timeout=self._options["timeout"])
                for comm, slot in zip(comms, slots)])
            if any(self._scratch.read(slot) != source.name for slot in slots):
                raise kvcl.Stale("the prefill engine has given these blocks to others, or they are of another prompt")
        finally:
            self._free += slots

    @staticmethod
    def _all(posts: List[Any]) -> Any:
        """Post and wait for all of them, so that none still moves bytes when the first one's error is raised."""
        failed: Optional[kvcl.KvclError] = None
        posted = []
        for post in posts:
            try:
                posted.append(post())
            except kvcl.KvclError as error:
                failed = error
                break
        for request in posted:
            try:
                yield request
            except kvcl.KvclError as error:
                failed = failed or error
        if failed is not None:
            raise failed
