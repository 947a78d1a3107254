"""Who takes part in the collectives of a group: a communicator, and the place of each of its ranks in the group."""

import time
from typing import List, Sequence, Tuple, TypeVar

import torch

from .. import Comm, KvclError, RankFailed, TimedOut

_T = TypeVar("_T")


class Live:
    """ranks[i]: the number in the group of rank i of comm. A group's numbers never change; holes are ranks that have
    failed, or do not take part."""

    def __init__(self, comm: Comm, ranks: Sequence[int], size: int) -> None:
        self.comm = comm
        self.ranks = list(ranks)
        self.size = size
        self.whole = self.ranks == list(range(size))

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


def left(until: float) -> float:
    """Seconds until a time, more than none; TimedOut if it is over."""
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise TimedOut("the ranks that are left did not agree in time: does each of them make this call?")
    return seconds


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
