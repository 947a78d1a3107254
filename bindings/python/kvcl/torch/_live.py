"""Who takes part in the collectives of a group: a communicator, and the place of each of its ranks in the group."""

import time
from typing import Any, Callable, List, Sequence, Tuple, TypeVar

import torch

from .. import Comm, KvclError, RankFailed, Request, TimedOut, Unsupported

_T = TypeVar("_T")


class Live:
    """ranks[i]: the number in the group of rank i of comm. A group's numbers never change; holes are ranks that have
    failed, or do not take part. alone: comm is for these collectives alone, so that revoking it ends nothing else."""

    def __init__(self, comm: Comm, ranks: Sequence[int], size: int, alone: bool) -> None:
        self.comm = comm
        self.alone = alone
        self.ranks = list(ranks)
        self.size = size
        self.whole = self.ranks == list(range(size))

    def post(self, call: Callable[..., Request[_T]], *args: Any, **kwargs: Any) -> Request[_T]:
        """Begin a collective, a method of Comm."""
        try:
            return call(self.comm, *args, **kwargs)
        except RankFailed:
            self.revoke()
            raise

    def revoke(self) -> None:
        """A rank has failed: the others shall not wait in a collective for this one, which gives it up."""
        if self.alone and not self.comm.closed:
            try:
                self.comm.revoke()
            except KvclError:  # this rank cannot: the others end by themselves, or by their deadline
                pass

    def root(self, rank: int) -> int:
        """The rank of comm that has this number."""
        if self.whole:
            return rank
        if rank not in self.ranks:
            raise RankFailed(f"rank {rank} does not take part in the collectives of this group")
        return self.ranks.index(rank)

    def pick(self, parts: Sequence[_T], what: str) -> List[_T]:
        """Of a list with one entry for each rank of the group: those of the ranks that take part."""
        if len(parts) != self.size:
            raise ValueError(f"{what}: {len(parts)} entries, one for each of the {self.size} ranks of the group is "
                             "needed")
        return list(parts) if self.whole else [parts[rank] for rank in self.ranks]

    def rows(self, raw: torch.Tensor, what: str) -> List[torch.Tensor]:
        """The rows, of equal length, of the ranks that take part."""
        if raw.numel() % self.size != 0:
            raise ValueError(f"{what}: {raw.numel()} bytes are no equal parts for {self.size} ranks")
        return self.pick(raw.view(self.size, -1).unbind(), what)


def whole(base: Comm) -> Live:
    """All ranks of base, in collectives. Where ranks may die these have a communicator of their own, which all
    members make; no message is sent."""
    try:
        base.failed()
    except Unsupported:
        return Live(base, range(base.size), base.size, False)
    return Live(base.create(range(base.size)), range(base.size), base.size, True)


def left(until: float) -> float:
    """Seconds until a time, more than none; TimedOut if it is over."""
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise TimedOut("the ranks that are left did not agree in time: does each of them make this call?")
    return seconds


def entered(comm: Comm, ranks: Sequence[int], until: float) -> None:
    """Wait until the view has these ranks, or the time is over."""
    while time.monotonic() < until and not all(comm.active()[rank] for rank in ranks):
        time.sleep(0.001)


def survivors(comm: Comm, seconds: float) -> Tuple[Comm, List[int]]:
    """A communicator of the living ranks of comm, and their numbers there. Collective over them: all get the same, and
    each of them was alive after all of them had met in it."""
    until = time.monotonic() + seconds
    while True:
        shrunk = comm.shrink(left(until))
        ranks: List[int] = []
        try:
            ranks = [int.from_bytes(rank, "little")
                     for rank in shrunk.allgather(comm.rank.to_bytes(4, "little"), left(until))]
        except KvclError:  # one more has died: all shall know
            pass
        met, _ = comm.agree(1 if ranks else 0, left(until))
        if met:
            comm.ack_failed(len(comm.failed()))
            return shrunk, ranks
        shrunk.close()
