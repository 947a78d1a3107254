"""Going on after failures: the group that init_process_group("kvcl") returns, and what it has beyond torch's calls."""

import datetime
import enum
import hashlib
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from .. import Comm, Context, InvalidParam, KvclError, NoQuorum, RankState, Stale, TimedOut, Unsupported, wait_all
from ._group import Group
from ._live import Live, entered, isolated, left, survivors, whole
from ._world import grown, renumber
from ._work import Work

_MEETING = 1 << 63  # in the tags of meetings; torch's tags have 32 bits


class Sync(enum.Enum):
    """What sync_after_failure() has done."""

    RECONCILED = "Reconciled"  # the collectives go on with other ranks than before
    NO_PENDING = "NoPending"   # with the same ones


class ChangeStatus(enum.Enum):
    """What a change of the members has come to."""

    APPLIED = "Applied"
    APPLIED_WITH_DROPPED_RANKS = "AppliedWithDroppedRanks"  # not for all that were asked for
    REJECTED = "Rejected"  # not by its deadline, or without a quorum


class Change(NamedTuple):
    """Of deactivate_ranks() and activate_ranks()."""

    status: ChangeStatus
    new_epoch: int  # the number of this rank's view now
    dropped_ranks: List[int]  # of those that were asked for


def _change(epoch: int, dropped: List[int]) -> Change:
    return Change(ChangeStatus.APPLIED_WITH_DROPPED_RANKS if dropped else ChangeStatus.APPLIED, epoch, dropped)


class ReconfigureOptions(NamedTuple):
    """As c10d::ReconfigureOptions of torch 2.14."""

    uuid: int
    handles: Sequence[str]
    timeout: Optional[datetime.timedelta] = None
    hints: Optional[Dict[str, str]] = None


class Elastic(Group):
    """A group whose ranks may die, and which may grow into the free slots of its job. Its numbers never change;
    collectives have holes where ranks are missing, and the parts of these ranks in outputs keep what they have. size()
    is one above the highest rank that has taken part so far, in a process that has joined the size that it was given
    until it takes part. All of it needs KVCL_VIEWS=yes (kvcl_view.h)."""

    def __init__(self, comm: Comm, context: Optional[Context], timeout: datetime.timedelta, incarnation: str,
                 size: Optional[int] = None, joined: bool = False) -> None:
        first = comm.size if size is None else size
        super().__init__(comm, context, timeout, isolated(comm, first) if joined else whole(comm, first))
        self._apart = joined  # until join_group()
        self.incarnation = incarnation  # of this process, in handles
        self._made: Dict[Tuple[int, ...], int] = {}  # communicators made by reconfigure(), of each list of ranks
        self._base = comm  # handles name its ranks
        self._past: List[Comm] = []

    # ---- local: no message is sent ----

    @property
    def participants(self) -> List[int]:
        """The ranks that collectives run over at present: changed by sync_after_failure() alone."""
        return list(self._live.ranks)

    def get_active_ranks(self) -> torch.Tensor:
        """int32, one for each slot: 1: a member of the present view, as this rank knows it."""
        return torch.tensor(self.comm.active(), dtype=torch.int32)

    def get_peer_state(self, ranks: Sequence[int]) -> List[bool]:
        """Of each of these ranks: is it connected, and neither failed nor suspected? True of those that have joined and
        wait until they are activated, too."""
        waits = self._waiting()
        return [rank == self.rank() or self.comm.rank_state(rank) == RankState.ALIVE or waits[rank] for rank in ranks]

    def _waiting(self) -> List[bool]:
        try:
            return self.comm.waiting()
        except Unsupported:
            return [False] * self.comm.size

    def get_num_synced_ranks(self) -> int:
        """How many ranks get_peer_state() is true for."""
        return sum(self.get_peer_state(range(self.comm.size)))

    def get_current_epoch(self) -> int:
        """The number of the present view."""
        return self.comm.view

    @property
    def revoked(self) -> bool:
        """A collective of this group has failed since a rank has, here or at another rank: until sync_after_failure()
        all raise Revoked, here and there, so that nobody waits for a rank that has given up."""
        return self._live.comm.is_revoked()

    # ---- one member ----

    def deactivate_ranks(self, ranks: Sequence[int], timeout: Optional[float] = None) -> Change:
        """Take living ranks out of the job. One member calls it; all that stay call sync_after_failure() then. Calls
        of those that go raise Stale. dropped_ranks: were no members before. Rejected: the view has not come in time, or
        no quorum answers; they go all the same when it can."""
        try:
            return _change(*self.comm.deactivate(ranks, self._seconds(timeout)))
        except (NoQuorum, TimedOut):
            return Change(ChangeStatus.REJECTED, self.comm.view, list(ranks))

    # ---- collective over the living ----

    def activate_ranks(self, ranks: Sequence[int], timeout: Optional[float] = None) -> Change:
        """Collectives go on with ranks that have joined (KVCL_JOIN) too, in the places of others or in free slots: the
        group grows then. All members make the call, and each of these ranks join_group(). dropped_ranks: have not
        joined in time. Rejected: the members did not agree in time, or have no quorum."""
        until = time.monotonic() + self._seconds(timeout)
        try:
            entered(self.comm, ranks, until)
            self.sync_after_failure(left(until))
        except (NoQuorum, TimedOut):
            return Change(ChangeStatus.REJECTED, self.comm.view, list(ranks))
        return _change(self.comm.view, [rank for rank in ranks if rank not in self._live.ranks])

    def join_group(self, timeout: Optional[float] = None) -> None:
        """In a process that has joined: what the members do by activate_ranks(). Before it the collectives of the group
        are those of this rank alone."""
        until = time.monotonic() + self._seconds(timeout)
        self.comm.sync(left(until))  # until a member has activated this process (KVCL_JOIN_WAITS)
        self.sync_after_failure(left(until))

    def agree(self, ok: bool = True, timeout: Optional[float] = None) -> bool:
        """Whether ok was true at all living ranks. The same at all, whichever ranks die meanwhile."""
        flags, _ = self.comm.agree(1 if ok else 0, self._seconds(timeout))
        return flags == 1

    def sync_after_failure(self, timeout: Optional[float] = None) -> Sync:
        """Collectives go on over the living ranks, the same ones at all. Each of these calls it, in the same order as
        agree(); what is still in flight with the dead has ended by then, or ends by its deadline."""
        comm, ranks, size = survivors(self.comm, self._seconds(timeout), 0 if self._apart else self.size())
        before = self._live
        self._live = Live(comm, ranks, size, True)
        self._apart = False
        self._retire(before.comm)
        if size != before.size:
            grown(self)
        return Sync.NO_PENDING if ranks == before.ranks else Sync.RECONCILED

    def shrunk(self, timeout: Optional[float] = None) -> Tuple["Elastic", List[int]]:
        """A group of the living ranks alone, numbered anew, and their numbers here."""
        comm, ranks, _ = survivors(self.comm, self._seconds(timeout), self.size())
        return type(self)(comm, None, self._timeout, self.incarnation), ranks

    def _seconds(self, timeout: Optional[float]) -> float:
        return self._timeout.total_seconds() if timeout is None else timeout

    def _retire(self, comm: Comm) -> None:
        """Close what is not used any more; what has operations in flight later."""
        kept = [c for c in (*self._past, comm) if c is not self.comm and c is not self._base and not c.closed]
        self._past = []
        for old in kept:
            try:
                old.close()
            except KvclError:
                self._past.append(old)

    # ---- torch 2.14's names ----

    @property
    def supports_reconfigure(self) -> bool:
        return True

    def get_reconfigure_handle(self) -> str:
        """The name of this rank for reconfigure(): its number in the job's group, and its incarnation."""
        return f"kvcl:{self._base.rank}:{self.incarnation}"

    def reconfigure(self, uuid: Any, handles: Optional[Sequence[str]] = None,
                    timeout: Optional[datetime.timedelta] = None, hints: Optional[Dict[str, str]] = None) -> Work:
        """Go on with exactly these ranks, numbered by their places in the list. Each of them makes the call, with equal
        arguments; uuid: new for each attempt, as the number of a view. Or one argument: ReconfigureOptions.

        Where it fails, at some ranks or at all, the group is as it was, and another uuid may be tried.
        """
        opts = ReconfigureOptions(uuid, handles, timeout, hints) if handles is not None else uuid
        seconds = opts.timeout.total_seconds() if opts.timeout is not None else -1.0
        until = time.monotonic() + (seconds if seconds > 0 else self._timeout.total_seconds())
        ranks = [self._rank_of(handle) for handle in opts.handles]
        comm, live = self._meet(int(opts.uuid), list(opts.handles), ranks, until)
        before = (self._live.comm, self.comm)
        self.comm, self._live, self._apart = comm, live, False
        for old in before:
            self._retire(old)
        renumber(self, ranks)
        return Work(self, [], [])

    def _rank_of(self, handle: str) -> int:
        parts = handle.split(":")
        if len(parts) != 3 or parts[0] != "kvcl" or not parts[1].isdecimal() or int(parts[1]) >= self._base.size:
            raise InvalidParam(f"reconfigure: {handle!r} is no handle of a rank of this job")
        return int(parts[1])

    def _meet(self, uuid: int, handles: List[str], ranks: List[int], until: float) -> Tuple[Comm, Live]:
        """Communicators of these ranks, once each has told all others that it makes the same call."""
        if handles.count(self.get_reconfigure_handle()) != 1 or len(set(ranks)) != len(ranks):
            raise InvalidParam(f"reconfigure: this rank, {self.get_reconfigure_handle()}, must be in the list once, as "
                               "all others")
        digest = hashlib.sha256("\n".join([str(uuid), *handles]).encode()).digest()
        tag = _MEETING | int.from_bytes(digest[:7], "little")
        made = self._made.get(tuple(ranks), 0)
        mine = f"{self.get_reconfigure_handle()} {made}".encode()
        boxes = [bytearray(256) for _ in ranks]
        gets = [self._base.recv_bytes(rank, tag, box, timeout=left(until)) for rank, box in zip(ranks, boxes)]
        wait_all([self._base.send_bytes(rank, tag, mine, timeout=left(until)) for rank in ranks])
        for handle, get, box in zip(handles, gets, boxes):
            name, _, number = bytes(box[:get.wait().bytes]).decode("ascii", "replace").partition(" ")
            if name != handle or not number.isdecimal():
                raise Stale(f"reconfigure: {handle} is not the rank that has this number now, {name!r}")
            made = max(made, int(number))
        return self._make(ranks, made, until)

    def _make(self, ranks: List[int], number: int, until: float) -> Tuple[Comm, Live]:
        """The communicators of this number: all ranks of the list make as many, whichever attempts have failed."""
        key = tuple(ranks)
        while True:
            comm = self._base.create(ranks)
            live = whole(comm)
            self._made[key] = self._made.get(key, 0) + 1
            if self._made[key] > number:
                break
            self._close(comm, live)
        try:
            comm.barrier(left(until))
        except KvclError:
            self._close(comm, live)
            raise
        return comm, live

    @staticmethod
    def _close(comm: Comm, live: Live) -> None:
        if live.comm is not comm:
            live.comm.close()
        comm.close()
