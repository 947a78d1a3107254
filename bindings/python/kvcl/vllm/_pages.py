"""The tensors of a KV cache as caches of the library: what a block of one KV head is in memory. Pure.

vLLM gives a tensor a layer, all of one shape [blocks, heads, tokens, content]. Where the heads of a block follow each
other in memory, a block of the store is one head of a vLLM block, over all layers. Engines of any tensor-parallel size
then share blocks. Where they do not, a block of the store is all that a rank has of a vLLM block, and only engines of
the same tensor-parallel size share.
"""

import dataclasses
from typing import List, Sequence, Tuple

import kvcl


@dataclasses.dataclass(frozen=True)
class Pages:
    """A layout over the tensors: block b, part p of the parts that this rank has, is block b * parts + p of it."""

    layout: kvcl.Layout
    parts: int
    whole: bool  # parts are not heads: the rank's share is one part


def pages(shapes: Sequence[Tuple[Tuple[int, ...], Tuple[int, ...], int]], blocks: int) -> Pages:
    """shapes: (shape, strides in elements, bytes of an element) of each layer's tensor. blocks: of vLLM's block table.
    ValueError: the memory has a form that this version cannot share."""
    if not shapes:
        raise ValueError("no layer has a KV cache")
    if len(set(shapes)) != 1:
        raise ValueError("the layers' KV caches have different shapes")
    shape, strides, elem = shapes[0]
    if len(shape) != 4:
        raise ValueError(f"a KV cache has shape {list(shape)}: [blocks, heads, tokens, content] is known")
    n, heads, tokens, content = shape
    if n == 0 or blocks == 0 or n % blocks != 0:
        raise ValueError(f"a KV cache has {n} blocks for the {blocks} of the block table")
    per_block = n // blocks
    head_bytes = tokens * content * elem
    inner = strides[3] == 1 and (tokens == 1 or strides[2] == content)
    nested = inner and (heads == 1 or strides[1] == tokens * content)
    if nested and per_block == 1 and strides[0] == heads * tokens * content:
        layout = kvcl.Layout(layers=len(shapes), kv=1, blocks=blocks * heads, head_dim=head_bytes, elem_bytes=1,
                             base="layer", block_stride=head_bytes)
        return Pages(layout, heads, False)
    dense = _dense(shape[1:], strides[1:])
    if dense and (per_block == 1 or strides[0] == heads * tokens * content):
        layout = kvcl.Layout(layers=len(shapes), kv=1, blocks=blocks, head_dim=per_block * heads * head_bytes,
                             elem_bytes=1, base="layer", block_stride=per_block * strides[0] * elem)
        return Pages(layout, 1, True)
    raise ValueError(f"a KV cache of shape {list(shape)} has strides {list(strides)}: its blocks are not contiguous")


def _dense(shape: Tuple[int, ...], strides: Tuple[int, ...]) -> bool:
    """Whether the dimensions, in any order, fill one run of memory."""
    span = 1
    for stride, count in sorted(zip(strides, shape)):
        if count != 1:
            if stride != span:
                return False
            span *= count
    return True


def share(total_heads: int, tp: int, rank: int, parts: int, whole: bool) -> Tuple[List[int], bool]:
    """The slices that a tensor-parallel rank holds, numbered over all ranks, and whether it saves them (one of the
    ranks that hold the same does)."""
    if whole:
        return [rank], True
    if total_heads >= tp:
        return list(range(rank * parts, (rank + 1) * parts)), True
    copies = tp // total_heads
    return [rank // copies], rank % copies == 0
