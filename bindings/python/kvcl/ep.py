"""Experts on ranks: where the experts of a mixture-of-experts model are placed, what changes when ranks fail, and which
rank sends which weights to which. Functions of arrays alone; no Context is needed. include/kvcl/kvcl_ep.h defines the
terms and the rules.

    >>> from kvcl import ep
    >>> model = ep.Model(experts=6, slots=8, ranks=4)
    >>> placement = ep.place(model, [[60, 30, 20, 10, 10, 10]])
    >>> placement.tolist()
    [[1, 5, 0, 0, 2, 3, 0, 4]]
    >>> left = model._replace(active=[1, 1, 0, 1])          # rank 2 has failed
    >>> repaired, restored, missing = ep.repair(left, placement)
    >>> repaired.tolist(), restored, missing
    ([[1, 5, 0, 2, -1, -1, 3, 4]], 2, 0)
    >>> for move in ep.moves(left, placement, repaired):
    ...     print(move.expert, "comes from", move.kind.name, "into slot", move.destination)
    2 comes from STORE into slot 3
    3 comes from STORE into slot 6

Arrays that are returned are memoryviews of 32-bit integers with a shape: numpy.asarray(placement) is a NumPy array of
the same memory. Arrays that are given are such views, NumPy or torch arrays of integers, or nested lists.
"""

import array
from enum import IntEnum
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from . import _kvcl

__all__ = ["Kind", "Model", "Move", "NONE", "index", "moves", "place", "repair"]

NONE = -1  # no expert in a slot, no further copy, no slot that a move comes from
_SPREAD, _HOLES = 1, 2


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


def _flat(name: str, rows: Any, code: str, width: int) -> Tuple[Any, int]:
    """[layers][width] as an array of one C type, and the number of layers."""
    try:
        view = memoryview(rows)
    except TypeError:
        view = None
    if view is not None and view.ndim == 2 and view.c_contiguous and view.format in {"i": "i", "Q": "QL"}[code]:
        if view.shape[1] != width:
            raise ValueError(f"{name}: {view.shape[1]} entries in a layer, {width} are needed")
        return view, view.shape[0]
    layers = [list(row) for row in (rows.tolist() if hasattr(rows, "tolist") else rows)]
    for row in layers:
        if len(row) != width:
            raise ValueError(f"{name}: {len(row)} entries in a layer, {width} are needed")
    return array.array(code, [entry for row in layers for entry in row]), len(layers)


def _params(model: Model, layers: int, flags: int = 0) -> Tuple[Any, ...]:
    active = None if model.active is None else bytes(bool(rank) for rank in model.active)
    if layers < 1:
        raise ValueError("at least one layer is needed")
    return (flags | (_SPREAD if model.spread else 0), layers, model.experts, model.slots, model.ranks, model.hosts,
            model.groups, model.min_ranks, model.min_hosts, active)


def _made(*shape: int, code: str = "i") -> memoryview:
    entries = 1
    for n in shape:
        entries *= n
    return memoryview(bytearray(4 * max(entries, 1)))[:4 * entries].cast("B").cast(code, shape)


def place(model: Model, loads: Any) -> memoryview:
    """Place the experts so that the ranks are loaded evenly, by EPLB's algorithm: the placement, [layers][slots].

    loads[layers][experts]: the tokens, or any measure, of each expert, as integers that are not negative. Hierarchical
    if groups is a multiple of hosts. Options of the model: spread (no expert twice on a rank), min_ranks and min_hosts
    (each expert on at least that many), active. NoSpace: the active ranks have too few slots.

    >>> list(place(Model(experts=2, slots=4, ranks=2, spread=True), [[90, 10]])[0, i] for i in range(4))
    [0, 1, 0, 1]
    """
    flat, layers = _flat("loads", loads, "Q", model.experts)
    params = _params(model, layers)
    placement = _made(layers, model.slots)
    _kvcl.ep_place(params, flat, placement)
    return placement


def index(model: Model, placement: Any, copies_max: Optional[int] = None) -> Tuple[memoryview, memoryview]:
    """The placement by expert: copies[layers][experts][copies_max], the slots of each expert, then NONE, and
    counts[layers][experts]. copies_max: None: the most copies of any expert. Ranks that are not active do not count.

    >>> copies, counts = index(Model(experts=2, slots=3, ranks=3), [[0, 1, 0]])
    >>> copies.tolist(), counts.tolist()
    ([[[0, 2], [1, -1]]], [[2, 1]])
    """
    flat, layers = _flat("placement", placement, "i", model.slots)
    params = _params(model, layers)
    counts = _made(layers, model.experts, code="I")
    if copies_max is None:
        _kvcl.ep_index(params, flat, None, 0, counts)
        copies_max = max((n for row in counts.tolist() for n in row), default=0)
    copies = _made(layers, model.experts, max(copies_max, 1))
    _kvcl.ep_index(params, flat, copies, max(copies_max, 1), counts)
    return copies, counts


def repair(model: Model, placement: Any, holes: bool = False) -> Tuple[memoryview, int, int]:
    """Repair a placement after ranks have failed, with the least change: the new placement, the number of slots that
    get a lost expert, and the number of experts that no slot is left for. These are an error (NoSpace) unless holes.

    See the example of the module.
    """
    flat, layers = _flat("placement", placement, "i", model.slots)
    params = _params(model, layers, _HOLES if holes else 0)
    repaired = _made(layers, model.slots)
    restored, missing = _kvcl.ep_repair(params, flat, repaired)
    return repaired, restored, missing


def moves(model: Model, old: Any, placement: Any) -> List[Move]:
    """The moves that turn the old placement into the new one, from the nearest sources, in rounds in which each rank
    has at most one peer.

    >>> model = Model(experts=2, slots=2, ranks=2)
    >>> [(m.source, m.destination, m.kind.name, m.round) for m in moves(model, [[0, 1]], [[1, 0]])]
    [(1, 0, 'HOST', 0), (0, 1, 'HOST', 0)]
    """
    before, layers = _flat("old", old, "i", model.slots)
    after, again = _flat("placement", placement, "i", model.slots)
    if layers != again:
        raise ValueError(f"{layers} layers before, {again} after")
    return [Move(layer, expert, source, destination, Kind(kind), number)
            for layer, expert, source, destination, kind, number in
            _kvcl.ep_moves(_params(model, layers), before, after)]
