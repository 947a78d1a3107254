"""The ranks that take part in the collectives of a group: their communicator, and their numbers in the group."""

import time
from typing import Any, Callable, List, Optional, Sequence, Tuple, TypeVar

import torch

from .. import Comm, InvalidParam, KvclError, NoQuorum, RankFailed, Request, TimedOut, UnknownRank, Unsupported
from ._tensors import handed

_T = TypeVar("_T")


class Live:
    """The communicator of a group's collectives. A group's numbers never change: they have holes where ranks have
    failed, or do not take part.

    ranks[i]: the number in the group of rank i of comm. size: of the group, one above the highest number that has taken
    part. alone: only these collectives use comm, so that revoking it ends nothing else.
    """

    def __init__(self, comm: Comm, ranks: Sequence[int], size: int, alone: bool) -> None:
        self.comm = comm
        self.alone = alone
        self.ranks = list(ranks)
        self.size = size
        self.whole = self.ranks == list(range(size))

    def post(self, call: Callable[..., Request[_T]], *args: Any, **kwargs: Any) -> Request[_T]:
        """Begin a collective, a method of Comm. Tensors are handed over as their bytes."""
        try:
            return call(self.comm, *map(handed, args), **{name: handed(value) for name, value in kwargs.items()})
        except RankFailed:
            self.revoke()
            raise

    def revoke(self) -> None:
        """End the collective on all ranks after one has failed, so that none waits for this rank."""
        if self.alone and not self.comm.closed:
            try:
                self.comm.revoke()
            except KvclError:  # the other ranks then notice the failure, or their deadlines pass
                pass

    def root(self, rank: int) -> int:
        """The rank of comm that has this number."""
        if self.whole:
            return rank
        if rank not in self.ranks:
            raise RankFailed(f"rank {rank} does not take part in the collectives of this group")
        return self.ranks.index(rank)

    def pick(self, parts: Sequence[_T], what: str) -> List[_T]:
        """The entries of the ranks that take part, out of a list with one entry for each rank of the group."""
        if len(parts) != self.size:
            raise ValueError(f"{what}: {len(parts)} entries, one for each of the {self.size} ranks of the group is "
                             "needed")
        return list(parts) if self.whole else [parts[rank] for rank in self.ranks]

    def rows(self, raw: torch.Tensor, what: str) -> List[torch.Tensor]:
        """The rows, of equal length, of the ranks that take part."""
        if raw.numel() % self.size != 0:
            raise ValueError(f"{what}: {raw.numel()} bytes are no equal parts for {self.size} ranks")
        return self.pick(raw.view(self.size, -1).unbind(), what)


def whole(base: Comm, size: Optional[int] = None) -> Live:
    """The collectives of the first ranks of base (None: all), those that have processes. With views they have a
    communicator of their own: every member calls this, and no message is sent."""
    first = range(base.size if size is None else size)
    try:
        base.failed()
    except Unsupported:
        return Live(base, first, len(first), False)
    return Live(base.create(first), first, len(first), True)


def isolated(base: Comm, size: int) -> Live:
    """Those of a process that has joined, until join_group(): this rank alone takes part. size: as it was told."""
    if size > base.size:
        raise InvalidParam(f"world_size is {size}, and the job has {base.size} slots: name the world size that the "
                           "members have with this rank, or start the job with a higher KVCL_SLOTS")
    return Live(base.create([base.rank]), [base.rank], size, True)


def left(until: float) -> float:
    """The seconds until a time, more than 0; TimedOut if it has passed."""
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise TimedOut("the living ranks did not agree in time: each of them has to make this call")
    return seconds


def entered(comm: Comm, ranks: Sequence[int], until: float) -> None:
    """Wait until the view has these ranks, or the time has passed. Those that wait (KVCL_JOIN_WAITS) are activated.
    Raises RankFailed in a process that waits itself, and Stale in one that was excluded."""
    for rank in ranks:
        if not 0 <= rank < comm.size:
            raise UnknownRank(f"activate_ranks: rank {rank} is not in a group of {comm.size} slots (KVCL_SLOTS)")
    while not all(comm.active()[rank] for rank in ranks):
        try:
            comm.activate(ranks, left(until))
        except (NoQuorum, TimedOut):  # the time has passed: they become members all the same when they can
            return
        time.sleep(0.001)


def survivors(comm: Comm, seconds: float, size: int) -> Tuple[Comm, List[int], int]:
    """A communicator of the living ranks of comm, their numbers in comm, and the size of a group that has all of them:
    the highest that one has given, or more. Collective over the living ranks, which all get the same; each of them was
    alive after all of them had met in it."""
    until = time.monotonic() + seconds
    mine = comm.rank.to_bytes(4, "little") + max(size, comm.rank + 1).to_bytes(4, "little")
    while True:
        shrunk = comm.shrink(left(until))
        ranks: List[int] = []
        try:
            given = shrunk.allgather(mine, left(until))
            ranks = [int.from_bytes(each[:4], "little") for each in given]
            size = max(int.from_bytes(each[4:], "little") for each in given)
        except KvclError:  # another rank has died: agree() tells all ranks
            pass
        met, _ = comm.agree(1 if ranks else 0, left(until))
        if met:
            comm.ack_failed(len(comm.failed()))
            return shrunk, ranks, size
        shrunk.close()
