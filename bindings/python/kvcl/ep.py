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

open() begins steps of dispatch and combine over the ranks of a communicator (kvcl_ep_step.h), restore() carries out
moves (kvcl_ep_restore.h).

Arrays that are returned are memoryviews of 32-bit integers with a shape: numpy.asarray(placement) is a NumPy array of
the same memory. Arrays that are given are such views, NumPy or torch arrays of integers, or nested lists.
"""

from typing import Any, List, Optional, Tuple

from . import _kvcl
from ._ep_arrays import HOLES, NONE, Kind, Model, Move, flat, made, params
from ._ep_restore import Restored, Weights, restore, settle, weights_sum
from ._ep_step import ID_LOST, ID_NONE, Batch, Experts, Result, open, renormalise

__all__ = ["Batch", "Experts", "ID_LOST", "ID_NONE", "Kind", "Model", "Move", "NONE", "Restored", "Result", "Weights",
           "index", "moves", "open", "place", "renormalise", "repair", "restore", "settle", "weights_sum"]


def place(model: Model, loads: Any) -> memoryview:
    """Place the experts so that the ranks are loaded evenly, by EPLB's algorithm: the placement, [layers][slots].

    loads[layers][experts]: the tokens, or any measure, of each expert, as integers that are not negative. Hierarchical
    if groups is a multiple of hosts. Options of the model: spread (no expert twice on a rank), min_ranks and min_hosts
    (each expert on at least that many), active. NoSpace: the active ranks have too few slots.

    >>> list(place(Model(experts=2, slots=4, ranks=2, spread=True), [[90, 10]])[0, i] for i in range(4))
    [0, 1, 0, 1]
    """
    array, layers = flat("loads", loads, "Q", model.experts)
    counted = params(model, layers)
    placement = made(layers, model.slots)
    _kvcl.ep_place(counted, array, placement)
    return placement


def index(model: Model, placement: Any, copies_max: Optional[int] = None) -> Tuple[memoryview, memoryview]:
    """The placement by expert: copies[layers][experts][copies_max], the slots of each expert, then NONE, and
    counts[layers][experts]. copies_max: None: the most copies of any expert. Ranks that are not active do not count.

    >>> copies, counts = index(Model(experts=2, slots=3, ranks=3), [[0, 1, 0]])
    >>> copies.tolist(), counts.tolist()
    ([[[0, 2], [1, -1]]], [[2, 1]])
    """
    array, layers = flat("placement", placement, "i", model.slots)
    counted = params(model, layers)
    counts = made(layers, model.experts, code="I")
    if copies_max is None:
        _kvcl.ep_index(counted, array, None, 0, counts)
        copies_max = max(counts.cast("B").cast("I"), default=0)
    width = max(copies_max, 1)
    copies = made(layers, model.experts, width)
    _kvcl.ep_index(counted, array, copies, width, counts)
    return copies, counts


def repair(model: Model, placement: Any, holes: bool = False) -> Tuple[memoryview, int, int]:
    """Repair a placement after ranks have failed, with the least change: the new placement, the number of slots that
    get a lost expert, and the number of experts that no slot is left for. These are an error (NoSpace) unless holes.

    See the example of the module.
    """
    array, layers = flat("placement", placement, "i", model.slots)
    counted = params(model, layers, HOLES if holes else 0)
    repaired = made(layers, model.slots)
    restored, missing = _kvcl.ep_repair(counted, array, repaired)
    return repaired, restored, missing


def moves(model: Model, old: Any, placement: Any) -> List[Move]:
    """The moves that turn the old placement into the new one, from the nearest sources, in rounds in which each rank
    has at most one peer.

    >>> model = Model(experts=2, slots=2, ranks=2)
    >>> [(m.source, m.destination, m.kind.name, m.round) for m in moves(model, [[0, 1]], [[1, 0]])]
    [(1, 0, 'HOST', 0), (0, 1, 'HOST', 0)]
    """
    before, layers = flat("old", old, "i", model.slots)
    after, again = flat("placement", placement, "i", model.slots)
    if layers != again:
        raise ValueError(f"{layers} layers before, {again} after")
    return [Move(layer, expert, source, destination, Kind(kind), number)
            for layer, expert, source, destination, kind, number in
            _kvcl.ep_moves(params(model, layers), before, after)]
