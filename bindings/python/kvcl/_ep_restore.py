"""Restoring experts: the moves of kvcl.ep.moves() carried out (kvcl_ep_restore.h)."""

import array
import struct
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from . import _kvcl
from ._cache import Cache
from ._comm import Comm
from ._ep_arrays import Model, Move, flat, params
from ._store import Store

_MISSING = 0xfffffffe


class Weights(NamedTuple):
    """Where weights are. cache: block layer * (slots / ranks) + s is slot s of this rank; the blocks behind are spare.

    sums[layers][experts]: weights_sum() of the right weights. keys[layers][experts]: in the store. Times: seconds, of a
    call, and of one source.
    """

    comm: Comm
    cache: Cache
    sums: Sequence[Sequence[int]]
    store: Optional[Store] = None
    keys: Optional[Sequence[Any]] = None  # of all layers, one behind another
    timeout: Optional[float] = None
    try_timeout: Optional[float] = None


class Restored(NamedTuple):
    """What restore() fetched. missing: the moves that no source had the right weights for."""

    blocks: Any
    missing: List[Move]


def _packed(moves: Sequence[Move]) -> bytearray:
    """kvcl_ep_move_t of each."""
    return bytearray(b"".join(struct.pack("=IIiIII", *(int(field) for field in move)) for move in moves))


def _weights(model: Model, weights: Weights) -> Tuple[Any, ...]:
    sums, _ = flat("sums", weights.sums, "Q", model.experts)
    keys = None if weights.keys is None else list(weights.keys)
    return (weights.comm, weights.cache, weights.store, keys, sums, weights.timeout, weights.try_timeout)


def weights_sum(cache: Cache, block: int) -> int:
    """The checksum of a block of weights: equal for equal bytes."""
    return _kvcl.ep_weights_sum(cache, block)


def restore(model: Model, weights: Weights, old: Any, moves: Sequence[Move]) -> Restored:
    """Fetch the weights that this rank's slots get, verified, into spare blocks of its cache. A source that fails, is
    silent or has other bytes is replaced by the expert's next copy, then by the store. The rest is done all the same.

    >>> import kvcl
    >>> from kvcl import ep
    >>> with kvcl.Context(boot="self") as ctx:
    ...     with ctx.cache("experts", kvcl.Layout.bytes(blocks=4, block_bytes=8)) as cache:  # 2 slots, 2 spare
    ...         cache.write(0, b"expert 0")
    ...         cache.write(1, b"expert 1")
    ...         model = ep.Model(experts=2, slots=2, ranks=1)
    ...         where = ep.Weights(ctx.world, cache, [[ep.weights_sum(cache, 0), ep.weights_sum(cache, 1)]])
    ...         moves = ep.moves(model, [[0, 1]], [[1, 0]])
    ...         done = ep.restore(model, where, [[0, 1]], moves)
    ...         ep.settle(model, where, moves, done)  # when no rank fetches any more
    ...         done.missing, cache.read(0), cache.read(1)
    ([], b'expert 1', b'expert 0')
    """
    array_of, layers = flat("old", old, "i", model.slots)
    blocks = array.array("I", bytes(4 * len(moves)))
    _kvcl.ep_restore(params(model, layers), _weights(model, weights), array_of, _packed(moves), len(moves), blocks)
    return Restored(blocks, [move for move, block in zip(moves, blocks) if block == _MISSING])


def settle(model: Model, weights: Weights, moves: Sequence[Move], restored: Restored) -> None:
    """Copy what restore() fetched into the slots, when no rank fetches any more."""
    layers = len(weights.sums)
    _kvcl.ep_settle(params(model, layers), _weights(model, weights), _packed(moves), len(moves), restored.blocks)
