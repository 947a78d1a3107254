"""The two ends of a handover without the store (_handover.py), in the workers' processes: Leases of an engine whose
blocks are read, Peers of one that reads. Prompts that are read while they are computed: _announce.py, _follow.py. No
type of vLLM.

All methods are called by the engine's thread, and none waits. Readers connect without a call on the side that is read
(Context.listen): it may compute, or hold the GIL, for as long as it likes.
"""

import collections
import contextlib
import dataclasses
import logging
import struct
import time
from typing import Any, Dict, List, Optional, Set

import kvcl

from . import _board, _follow
from ._announce import Board
from ._board import Chunk
from ._handover import SLOTS, Lease, Part, Source, rank_name

TABLE, CACHE = "vllm.leases", "vllm"
NAME = 32
READ = struct.Struct("<32sII")  # a notification: the lease's name, the reader's number, how many readers there are
SCRATCH = 256                   # reads of slots under way, and as many of boards
READERS = 4096                  # of a lease, at most
TOLD = 256                      # notifications that a poll takes; the rest waits for the next one
EARLY = 16384                   # of them that are kept, of prompts that have not begun
FOREVER = float("inf")


class _Open:
    """A lease: until when, and who has read. names: readers tell by one of these that they have read; the board's is
    one of them."""

    def __init__(self) -> None:
        self.lease: Optional[Lease] = None
        self.names: Set[bytes] = set()
        self.until: Optional[float] = None  # None: the request has not ended
        self.readers: Set[int] = set()
        self.read = False


class Leases:
    """seconds: how long blocks are kept for a reader after their request has ended. board: of an engine that announces
    what it computes. rank, ranks: of the engine."""

    def __init__(self, context: kvcl.Context, seconds: float, log: logging.Logger, board: Optional[Board] = None,
                 rank: int = 0, ranks: int = 1) -> None:
        self._seconds, self._log, self.board, self._rank, self._ranks = seconds, log, board, rank, ranks
        self._table = context.cache(TABLE, kvcl.Layout.bytes(SLOTS, NAME))
        for slot in range(SLOTS):
            self._table.write(slot, bytes(NAME))
        self._open: Dict[str, _Open] = {}
        self._named: Dict[bytes, List[_Open]] = {}
        self._early: "collections.OrderedDict[bytes, Set[bytes]]" = collections.OrderedDict()  # told of no lease yet
        self._n_early = 0
        self.late = 0  # leases that nobody has read in time
        self._door = context.listen()
        self.address = self._door.address

    def set(self, lease: Lease) -> None:
        """Readers may read the lease's blocks from now on."""
        one = self._open.get(lease.request)
        if one is None or one.lease is not None:
            self.drop([lease.request])
            one = self._open[lease.request] = _Open()
        name = rank_name(lease.name, self._rank, self._ranks)
        self._table.write(lease.slot, name)
        one.lease = lease
        self._name(one, name)

    def announce(self, chunks: List[Chunk], good: bool) -> None:
        """A step begins that computes these. good: what it computes will be right."""
        board = self.board
        for chunk in chunks:
            name = rank_name(chunk.name, self._rank, self._ranks)
            if board is not None and board.add(dataclasses.replace(chunk, name=name), good):
                self._name(self._open.setdefault(chunk.request, _Open()), name)
                early = self._early.pop(name, set())
                self._n_early -= len(early)
                for data in early:
                    self._told(data)

    def _name(self, one: _Open, name: bytes) -> None:
        if name not in one.names:
            one.names.add(name)
            self._named.setdefault(name, []).append(one)

    def ended(self, request: str) -> None:
        """The request has ended: its blocks are kept for the reader, for a while."""
        one = self._open.get(request)
        if one is not None:
            one.until = time.monotonic() + self._seconds

    def drop(self, requests: List[str]) -> None:
        """Nobody may read these blocks any more."""
        for request in requests:
            one = self._open.pop(request, None)
            if one is not None and one.lease is not None:
                self._table.write(one.lease.slot, bytes(NAME))
            for name in one.names if one is not None else ():
                self._named[name] = [other for other in self._named[name] if other is not one]
                if not self._named[name]:
                    del self._named[name]
            if self.board is not None:
                self.board.drop(request)

    def __contains__(self, request: str) -> bool:
        return request in self._open

    def poll(self) -> None:
        """End the leases that all readers have read, or whose time is up."""
        if not self._open and self.board is None:
            return
        for _ in range(TOLD):
            if (got := self._door.notify_recv()) is None:
                break
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
        if not reader < readers <= READERS:
            return
        leased = self._named.get(name, [])
        for one in leased:
            one.readers.add(reader)
            one.read = len(one.readers) >= readers
        if not leased and self.board is not None:  # of a request that has not begun here, and will not be read
            told = self._early.setdefault(name, set())
            self._n_early += data not in told
            told.add(data)
            while self._n_early > EARLY:
                self._n_early -= len(self._early.popitem(last=False)[1])

    def close(self) -> None:
        """Nobody may read any more, nor connect; readers are disconnected. poll() finds nothing from then on."""
        self.drop(list(self._open))
        if self.board is not None:
            self.board.close()
            self.board = None
        self._door.close()


class Read(kvcl.Call):
    """A read of blocks. there: all bytes have arrived; whether they are the prompt's, the result says. ahead: the bytes
    that were read while they were being computed there."""

    there = False
    ahead = 0


class Peers:
    """options: timeout, handover_timeout. Reads wait until it is open."""

    def __init__(self, options: Any) -> None:
        self._options = options
        self._open = False
        self._following = 0  # reads of prompts that are being computed
        self._peers: Dict[str, kvcl.Request[kvcl.Comm]] = {}
        self._calls: List[kvcl.Call] = []

    def open(self, context: kvcl.Context, cache: kvcl.Cache) -> None:
        """cache: of this rank's blocks. By any thread. Connections of an earlier context are forgotten."""
        self._open, self._peers = False, {}
        self._free, self._free_rows = list(range(SCRATCH)), list(range(SCRATCH))
        self._context, self._cache = context, cache
        self._scratch = context.cache("vllm.slots", kvcl.Layout.bytes(SCRATCH, NAME))
        self._rows = context.cache("vllm.rows", kvcl.Layout.bytes(SCRATCH * _board.WINDOW, _board.CELL))
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
        def started() -> Any:
            return (yield from self._read(call, source, parts, blocks, first, patience))

        call = Read(started())
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

    def _read(self, call: Read, source: Source, parts: List[Part], blocks: List[int], first: int,
              patience: float) -> Any:
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
        read = [part for part in parts if part.ours]
        if blocks and source.ahead is not None:
            try:
                yield from self._follow(call, source, [(comms[part.peer], part) for part in read], blocks, first, each)
            except Exception:  # noqa: B902: also of numbers that cannot be
                self._tell(source, comms, parts)  # the prompt may be computed there later on
                raise
        elif blocks:
            theirs = source.blocks[first:first + len(blocks)]
            yield from self._all([lambda part=part: self._get(comms[part.peer], part, theirs, blocks, each)
                                  for part in read])
            call.there = True
            yield from self._check(source, {part.peer: comms[part.peer] for part in read})
        self._tell(source, comms, parts)
        return [kvcl.Status.OK] * (len(blocks) * each)

    @staticmethod
    def _tell(source: Source, comms: Dict[int, kvcl.Comm], parts: List[Part]) -> None:
        """This rank needs the blocks no longer."""
        for part in parts:
            with contextlib.suppress(kvcl.RankFailed, kvcl.Unreachable):
                comms[part.peer].notify(0, READ.pack(source.name_at(part.peer), part.reader, part.readers))

    def _get(self, comm: kvcl.Comm, part: Part, theirs: Any, blocks: List[int], each: int,
             layers: Any = None) -> kvcl.Request[None]:
        remote = [block * part.their_parts + one for block in theirs for one in part.theirs]
        local = [block * each + one for block in blocks for one in part.ours]
        return comm.get(0, self._cache, remote, local, layers=layers, remote_cache=CACHE,
                        timeout=self._options["timeout"])

    def _follow(self, call: Read, source: Source, ranks: List[Any], blocks: List[int], first: int, each: int) -> Any:
        """Read what is being computed. No news for handover_timeout: it fails."""
        assert source.ahead is not None
        layers, ahead = self._cache.layout.layers, source.ahead
        part_bytes = self._cache.block_bytes // layers
        until = time.monotonic() + self._options["handover_timeout"]
        while len(self._free_rows) < len(ranks):
            if time.monotonic() > until:
                raise kvcl.TimedOut(f"{SCRATCH} other prompts are read while they are computed: no more at once")
            yield None
        slots = [self._free_rows.pop() for _ in ranks]
        sides = [_follow.Side(
            comm, self._rows, slot * _board.WINDOW, ahead, source.name_at(part.peer), layers, blocks, first,
            lambda theirs, ours, some, comm=comm, part=part: self._get(comm, part, theirs, ours, each, some),
            (1 << 32) // part.their_parts, self._options["timeout"]) for (comm, part), slot in zip(ranks, slots)]
        self._following += 1
        try:
            heard, pause = time.monotonic(), _follow.SHORTEST
            while True:
                yield from self._all([side.look() for side in sides])
                news = [side.saw() for side in sides]
                if all(side.complete for side in sides):
                    return
                if any(news):
                    while asking := [(side, post) for side in sides if (post := side.blocks()) is not None]:
                        yield from self._all([post for _, post in asking])
                        for side, _ in asking:
                            side.took()
                    posts: List[Any] = []
                    for side, (_, part) in zip(sides, ranks):
                        some, early = side.read()
                        posts += some
                        call.ahead += early * len(part.ours) * part_bytes
                    yield from self._all(posts)
                    heard, pause = time.monotonic(), _follow.SHORTEST
                    continue
                now = time.monotonic()
                if now - heard > self._options["handover_timeout"]:
                    raise kvcl.TimedOut("the prefill engine computes nothing of the prompt")
                while time.monotonic() < now + pause:
                    yield None
                pause = min(2 * pause, _follow.LONGEST * self._following)
        finally:
            self._following -= 1
            self._free_rows += slots

    def _check(self, source: Source, comms: Dict[int, kvcl.Comm]) -> Any:
        while len(self._free) < len(comms):
            yield None  # other reads have them
        slots = [self._free.pop() for _ in comms]
        try:
            for slot in slots:
                self._scratch.write(slot, bytes(NAME))
            yield from self._all([lambda comm=comm, slot=slot: comm.get(
                0, self._scratch, [source.slot], [slot], remote_cache=TABLE, timeout=self._options["timeout"])
                for comm, slot in zip(comms.values(), slots)])
            if any(self._scratch.read(slot) != source.name_at(peer) for peer, slot in zip(comms, slots)):
                raise kvcl.Stale(_follow.GONE)
        finally:
            self._free += slots

    @staticmethod
    def _all(posts: List[Any]) -> Any:
        """Post and wait for all of them, so that none still moves bytes when the first one's error is raised."""
        failed: Optional[Exception] = None
        posted = []
        for post in posts:
            try:
                posted.append(post())
            except Exception as error:  # noqa: B902: also of numbers that cannot be
                failed = error
                break
        for request in posted:
            try:
                yield request
            except kvcl.KvclError as error:
                failed = failed or error
        if failed is not None:
            raise failed
