"""What the functions about experts share: counts, moves, and arrays for the C half (ext/query/ep.c)."""

import array
from enum import IntEnum
from typing import Any, NamedTuple, Optional, Sequence, Tuple

NONE = -1  # no expert in a slot, no further copy, no slot that a move comes from
SPREAD, HOLES = 1, 2


class Model(NamedTuple):
    """The counts of a model on its ranks: experts and slots are those of a layer, slots are on all ranks.

    active: a true or false value for each rank; None: all take part. The other fields are the options of place().
    """

    experts: int
    slots: int
    ranks: int
    hosts: int = 1
    groups: int = 1
    min_ranks: int = 1
    min_hosts: int = 1
    spread: bool = False
    active: Optional[Sequence[Any]] = None


class Kind(IntEnum):
    """Where the weights of a move come from, nearest first."""

    RANK = 0
    MOVE = 1
    HOST = 2
    OTHER = 3
    STORE = 4


class Move(NamedTuple):
    """The weights of an expert for one slot. source: a slot, or NONE with Kind.STORE."""

    layer: int
    expert: int
    source: int
    destination: int
    kind: Kind
    round: int


def flat(name: str, rows: Any, code: str, width: int) -> Tuple[Any, int]:
    """[layers][width] as an array of one C type, and the number of layers."""
    try:
        view = memoryview(rows)
    except TypeError:
        view = None
    if view is not None and view.ndim == 2 and view.c_contiguous and view.format in {"i": "i", "Q": "QL"}[code]:
        layers, entries = view.shape or (0, 0)
        if entries != width:
            raise ValueError(f"{name}: {entries} entries in a layer, {width} are needed")
        return view, layers
    lists = [list(row) for row in (rows.tolist() if hasattr(rows, "tolist") else rows)]
    for row in lists:
        if len(row) != width:
            raise ValueError(f"{name}: {len(row)} entries in a layer, {width} are needed")
    return array.array(code, [entry for row in lists for entry in row]), len(lists)


def params(model: Model, layers: int, flags: int = 0) -> Tuple[Any, ...]:
    active = None if model.active is None else bytes(bool(rank) for rank in model.active)
    if layers < 1:
        raise ValueError("at least one layer is needed")
    return (flags | (SPREAD if model.spread else 0), layers, model.experts, model.slots, model.ranks, model.hosts,
            model.groups, model.min_ranks, model.min_hosts, active)


def made(*shape: int, code: Any = "i") -> memoryview:
    entries = 1
    for n in shape:
        entries *= n
    return memoryview(bytearray(4 * max(entries, 1)))[:4 * entries].cast("B").cast(code, shape)
