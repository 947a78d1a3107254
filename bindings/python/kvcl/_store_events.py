"""The events of a store for a router: which rank holds which blocks, and every change, in order."""

import enum
from typing import Any, List, NamedTuple, Optional, Union


SUSPECT = 2  # kvcl_rank_state_t


class EventKind(enum.IntEnum):
    STORED = 1    # the rank holds the block now
    EVICTED = 2   # dropped for room
    REMOVED = 3   # withdrawn by its owner, or removed by any rank
    MOVED = 4     # dropped, because to_rank has it now
    DEMOTED = 5   # now on a slower tier of this rank: the event's
    PROMOTED = 6  # back on a faster tier of this rank: the event's
    SKIPPED = 7   # of a tenant's handle: the events up to this number are those of others; no block


class Tier(enum.IntEnum):
    CACHE = 0  # an engine's own cache
    DRAM = 1   # the store's pool
    NVME = 2


class StoreEvent(NamedTuple):
    """One change of a rank's blocks. seq counts 1, 2, 3, ... without gaps, except by a tenant's handle."""

    seq: int
    kind: Union[EventKind, int]  # ignore numbers that you do not know
    tier: Union[Tier, int]       # of the copy, or its former tier. A rank may hold a key on several
    key: bytes
    tenant: int                  # the owner, from the put; 0: none
    nbytes: int                  # of the block
    to_rank: Optional[int]       # of MOVED; otherwise None


class StorePlace(NamedTuple):
    """A copy of a block."""

    rank: int
    tier: Union[Tier, int]
    nbytes: int
    suspect: bool  # the rank does not answer: a get takes this copy last


class StoreItem(NamedTuple):
    """A block that a rank holds."""

    key: bytes
    tenant: int
    nbytes: int
    tier: Union[Tier, int]
    cache: int  # the cache's number at that rank, and
    slot: int   # the block's number there: both are informative only


def known(kind: Any, number: int) -> Any:
    """A member of the enumeration, or the number of one of a newer library."""
    try:
        return kind(number)
    except ValueError:
        return number


def places(raw: Any) -> List[List[StorePlace]]:
    return [[StorePlace(rank, known(Tier, tier), nbytes, state == SUSPECT) for rank, tier, nbytes, state in copies]
            for copies in raw]


def event(raw: Any) -> StoreEvent:
    seq, kind, tier, key, tenant, nbytes, to_rank = raw
    return StoreEvent(seq, known(EventKind, kind), known(Tier, tier), key, tenant, nbytes,
                      None if to_rank < 0 else to_rank)


def item(raw: Any) -> StoreItem:
    key, tenant, nbytes, tier, cache, slot = raw
    return StoreItem(key, tenant, nbytes, known(Tier, tier), cache, slot)
