"""What a store tells a router: which rank holds which blocks, and every change of that, in order."""

import enum
from typing import Any, NamedTuple, Optional, Union


class EventKind(enum.IntEnum):
    STORED = 1    # the rank holds the block now
    EVICTED = 2   # given up, for room
    REMOVED = 3   # withdrawn by its owner, or removed by somebody
    MOVED = 4     # given up, because to_rank has it now
    DEMOTED = 5   # now on a slower tier of this rank: the event's
    PROMOTED = 6  # back on a faster tier of this rank: the event's


class Tier(enum.IntEnum):
    CACHE = 0  # an engine's own cache
    DRAM = 1   # the store's pool
    NVME = 2


class StoreEvent(NamedTuple):
    """One change of a rank's blocks. seq counts 1, 2, 3, ... without gaps."""

    seq: int
    kind: Union[EventKind, int]  # take a number that you do not know as nothing
    tier: Union[Tier, int]       # where the copy is, or was. A rank may hold a key on several
    key: bytes
    tenant: int                  # whose it is, as the put said; 0: nobody's
    nbytes: int                  # of the block
    to_rank: Optional[int]       # of MOVED; else None


class StoreItem(NamedTuple):
    """A block that a rank holds."""

    key: bytes
    tenant: int
    nbytes: int
    tier: Union[Tier, int]
    cache: int  # the cache's number at that rank, and
    slot: int   # the block's there: both for reading, not for use


def known(kind: Any, number: int) -> Any:
    """A member of the enumeration, or the number of one of a newer library."""
    try:
        return kind(number)
    except ValueError:
        return number


def event(raw: Any) -> StoreEvent:
    seq, kind, tier, key, tenant, nbytes, to_rank = raw
    return StoreEvent(seq, known(EventKind, kind), known(Tier, tier), key, tenant, nbytes,
                      None if to_rank < 0 else to_rank)


def item(raw: Any) -> StoreItem:
    key, tenant, nbytes, tier, cache, slot = raw
    return StoreItem(key, tenant, nbytes, known(Tier, tier), cache, slot)
