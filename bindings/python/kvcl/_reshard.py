"""Plans between tensor-parallel groups of different sizes."""

from typing import List, NamedTuple, Optional, Sequence, Tuple

from . import _kvcl

_Range = Tuple[int, int]


class ReshardGroup(NamedTuple):
    """Ranks that hold a model's KV cache together: tp tensor-parallel ranks in each of pp pipeline stages.

    stage_layers: the layers of each stage; None: as many in each, one more in the first ones.
    """

    tp: int
    pp: int = 1
    stage_layers: Optional[Sequence[int]] = None

    def share(self, layers: int, heads: int, index: int) -> Tuple[_Range, _Range]:
        """Which layers and KV heads of the model the rank `index` of the group has in its cache."""
        return _kvcl.reshard_share(layers, heads, _raw(self), index)


class ReshardStep(NamedTuple):
    """These layers and heads of the source's cache become those of the destination's; ranks are indices in groups."""

    source: int
    destination: int
    source_layers: _Range
    source_heads: _Range
    destination_layers: _Range
    destination_heads: _Range


def _raw(group: ReshardGroup) -> Tuple[int, int, Optional[Tuple[int, ...]]]:
    return (group.tp, group.pp, None if group.stage_layers is None else tuple(group.stage_layers))


def _plan(of_source: bool, index: int, layers: int, heads: int, source: ReshardGroup, destination: ReshardGroup,
          distances: Optional[Sequence[Sequence[int]]]) -> List[ReshardStep]:
    flat = None if distances is None else tuple(int(d) for row in distances for d in row)
    steps = _kvcl.reshard_plan(of_source, index, layers, heads, _raw(source), _raw(destination), flat)
    return [ReshardStep(*step) for step in steps]


def reshard_plan(index: int, *, layers: int, heads: int, source: ReshardGroup, destination: ReshardGroup,
                 distances: Optional[Sequence[Sequence[int]]] = None) -> List[ReshardStep]:
    """The steps that fetch the whole share of the destination rank `index` of a model of so many layers and KV heads.

    For each step: comm.get(rank of step.source, cache, remote, local, layers=step.destination_layers,
    heads=step.destination_heads, remote_layers=step.source_layers, remote_heads=step.source_heads). heads is 1 for MLA.
    distances[destination][source]: less is nearer; used where several ranks hold a head. See
    include/kvcl/kvcl_reshard.h.

    >>> import kvcl
    >>> two, one = kvcl.ReshardGroup(tp=2), kvcl.ReshardGroup(tp=1)
    >>> for step in kvcl.reshard_plan(0, layers=4, heads=8, source=two, destination=one):
    ...     print(step.source, step.source_heads, step.destination_heads)
    0 (0, 4) (0, 4)
    1 (0, 4) (4, 8)
    """
    return _plan(False, index, layers, heads, source, destination, distances)


def reshard_plan_source(index: int, *, layers: int, heads: int, source: ReshardGroup, destination: ReshardGroup,
                        distances: Optional[Sequence[Sequence[int]]] = None) -> List[ReshardStep]:
    """The same plan from the other side: the steps of all destinations that take from the source rank `index`."""
    return _plan(True, index, layers, heads, source, destination, distances)
