"""The board on which a prefill engine announces what it computes, so that a decode engine reads a prompt's layers while
the later ones are computed: its form, and which rows requests have. Pure. _announce.py writes it, _follow.py reads it.

A row has a header, and the prompt's blocks in cells of their own. A router names a request to both engines at once; its
row is one of WINDOW rows that the name gives, so that a decode engine finds it without a call on the other side. The
header's name is made as a lease's (_handover.py), but for the blocks, which are not known before. It is cleared before
the blocks are given to others; turn differs for each lease. So what was read before a header with the same name and
turn are the prompt's bytes, in the layers and up to the tokens that an earlier header announced.
"""

import dataclasses
import hashlib
import struct
import zlib
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

BOARD, BLOCKS = "vllm.board", "vllm.board.blocks"
ROWS, WINDOW = 512, 16
CELL = 64
PER_CELL = CELL // 4  # blocks

_HEADER = struct.Struct("<32s8sIIIII")
_CHECK = struct.Struct("<I")  # of the bytes before: a header that is read while it is written tells nothing
_BLOCKS = struct.Struct(f"<{PER_CELL}I")


@dataclasses.dataclass(frozen=True)
class Header:
    """The layers before `layers` have the prompt's first `after` tokens, the others its first `before`."""

    name: bytes
    mark: bytes  # of the request, whatever its prompt is
    turn: int
    cells: int   # of blocks, in each row of this board
    before: int = 0
    after: int = 0
    layers: int = 0

    def pack(self) -> bytes:
        data = _HEADER.pack(self.name, self.mark, self.turn, self.cells, self.before, self.after, self.layers)
        return data + _CHECK.pack(zlib.crc32(data))


def header(data: bytes) -> Optional[Header]:
    """None: there is none, or it is being written."""
    said, = _CHECK.unpack_from(data, _HEADER.size)
    if said != zlib.crc32(data[:_HEADER.size]):
        return None
    return Header(*_HEADER.unpack_from(data))


def same(data: bytes, first: Header) -> bool:
    """Whether it is of the same lease: these fields do not change while it lasts, so they are never half written."""
    name, _, turn, _, _, _, _ = _HEADER.unpack_from(data)
    return bool(name == first.name and turn == first.turn)


def pack_blocks(blocks: Sequence[int]) -> bytes:
    """A cell of at most PER_CELL blocks."""
    return _BLOCKS.pack(*blocks, *[0] * (PER_CELL - len(blocks)))


def unpack_blocks(data: bytes) -> Tuple[int, ...]:
    return _BLOCKS.unpack(data)


def mark_of(handover: str) -> bytes:
    return hashlib.sha256(handover.encode()).digest()[:8]


def rows_of(handover: str) -> List[int]:
    """The rows that a request may have, in the order in which they are taken."""
    first = int.from_bytes(hashlib.sha256(handover.encode()).digest()[8:12], "little")
    return [(first + i) % ROWS for i in range(WINDOW)]


def due(got: Sequence[int], said: Header, size: int, tokens: int, end: int) -> List[Tuple[int, int, int, int]]:
    """What may be read now: (first layer, end of layers, first block, end of blocks)... got: of each layer, the blocks
    before which all were read. Blocks of size tokens are read when they are full, or when the prompt, of so many
    tokens and `end` blocks, ends in them."""
    out: List[Tuple[int, int, int, int]] = []
    for layer, have in enumerate(got):
        there = said.after if layer < said.layers else said.before
        full = end if there >= tokens else min(there // size, end)
        if full <= have:
            continue
        if out and out[-1][1:] == (layer, have, full):
            out[-1] = (out[-1][0], layer + 1, have, full)
        else:
            out.append((layer, layer + 1, have, full))
    return out


@dataclasses.dataclass(frozen=True)
class Chunk:
    """What a step adds to a prompt that is announced: blocks, of which `first` were told before, and the number of the
    prompt's tokens that are there after the step."""

    request: str
    row: int
    turn: int
    name: bytes
    mark: bytes
    first: int
    blocks: Tuple[int, ...]
    after: int


@dataclasses.dataclass
class _Told:
    row: int
    turn: int
    blocks: Tuple[int, ...] = ()


class Rows:
    """The scheduler's side: the rows of the prompts that are announced, and how many of their blocks were told."""

    def __init__(self) -> None:
        self._told: Dict[str, _Told] = {}
        self._taken: Dict[int, str] = {}
        self._turns = 0

    def __contains__(self, request: str) -> bool:
        return request in self._told

    def __iter__(self) -> Iterator[str]:
        return iter(self._told)

    def take(self, request: str, handover: str) -> bool:
        """A row for a request that has none; False: its rows are all taken."""
        row = next((one for one in rows_of(handover) if one not in self._taken), -1)
        if row < 0:
            return False
        self._turns = (self._turns + 1) & 0xffffffff
        self._taken[row], self._told[request] = request, _Told(row, self._turns)
        return True

    def follows(self, request: str, blocks: Sequence[int]) -> bool:
        """Whether a request's blocks are those that were told, and more."""
        told = self._told[request].blocks
        return tuple(blocks[:len(told)]) == told

    def chunk(self, request: str, handover: str, name: bytes, blocks: Sequence[int], after: int) -> Chunk:
        """blocks: all of the request's, as far as its first `after` tokens need them."""
        told = self._told[request]
        first = len(told.blocks)
        told.blocks += tuple(blocks[first:])
        return Chunk(request, told.row, told.turn, name, mark_of(handover), first, told.blocks[first:], after)

    def free(self, request: str) -> None:
        told = self._told.pop(request, None)
        if told is not None:
            del self._taken[told.row]
