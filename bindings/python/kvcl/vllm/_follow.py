"""How a decode engine reads a prompt that a prefill engine computes meanwhile: what one rank of that engine announces
(_board.py), looked at and read in turns. No type of vLLM.

Each look follows the blocks that the look before it allowed, and shows that those were the prompt's. After the last
blocks there is one more.
"""

from typing import Any, Callable, List, Optional, Tuple

import kvcl

from . import _board
from ._board import CELL, PER_CELL, WINDOW, Header
from ._handover import Ahead

SHORTEST, LONGEST = 0.0001, 0.001  # seconds between two looks that find nothing new; the longer for each such read
GONE = "the prefill engine has given these blocks to others, or they are of another prompt"
CELLS = (1 << 32) // _board.ROWS  # that a row may have: more than ids of blocks can name are a lie

Post = Callable[[], Any]


class Side:
    """One rank that is read. scratch: has WINDOW cells for what is read of the board, from `at` on. name: that the
    prompt's header must have. blocks: where the prompt's blocks from block `first` on go. get(theirs, ours, layers):
    posts a read of the rank's blocks into these. limit: the rank has no block of this number or above."""

    def __init__(self, comm: kvcl.Comm, scratch: kvcl.Cache, at: int, ahead: Ahead, name: bytes, layers: int,
                 blocks: List[int], first: int, get: Callable[..., Any], limit: int, timeout: float) -> None:
        self._comm, self._scratch, self._at, self._ahead, self._name = comm, scratch, at, ahead, name
        self._into, self._first, self._end = blocks, first, first + len(blocks)
        self._get, self._limit, self._timeout = get, limit, timeout
        self._rows, self._mark = _board.rows_of(ahead.handover), _board.mark_of(ahead.handover)
        self._said: Optional[Header] = None
        self._got = [first] * layers
        self._from = first // PER_CELL * PER_CELL  # the first of
        self._theirs: List[int] = []               # the rank's blocks
        self._cells: Tuple[int, int, int] = (0, 0, 0)  # of them, being read, and before which block they are needed

    @property
    def complete(self) -> bool:
        """Whether all blocks were read."""
        return min(self._got) >= self._end

    def look(self) -> Post:
        """Read the header, or those that the request may have."""
        return lambda: self._cell_get(_board.BOARD, self._rows)

    def _cell_get(self, cache: str, cells: List[int]) -> Any:
        return self._comm.get(0, self._scratch, cells, list(range(self._at, self._at + len(cells))), remote_cache=cache,
                              timeout=self._timeout)

    def saw(self) -> bool:
        """After look(): whether there is more to read. Raises if what was read so far may be others' bytes."""
        for i, row in enumerate(self._rows):
            data = self._scratch.read(self._at + i)
            if self._said is not None and not _board.same(data, self._said):
                raise kvcl.Stale(GONE)
            said = _board.header(data)
            if said is None or said.mark != self._mark:
                continue
            if said.name != self._name:
                raise kvcl.Stale(GONE)
            self._said, self._rows = said, [row]
            return bool(self._due())
        return False

    def _due(self) -> List[Tuple[int, int, int, int]]:
        assert self._said is not None
        return _board.due(self._got, self._said, self._ahead.size, self._ahead.tokens, self._end)

    def blocks(self) -> Optional[Post]:
        """Read which blocks the rank has, as far as they are needed now; None: they are known."""
        if self._said is None:
            return None
        need = max((end for _, _, _, end in self._due()), default=0)
        known = self._from + len(self._theirs)
        if need <= known:
            return None
        first, end = known // PER_CELL, -(-need // PER_CELL)
        if end > self._said.cells or self._said.cells > CELLS:
            raise kvcl.Stale(GONE)
        end = min(end, first + WINDOW)
        self._cells, row = (first, end, need), self._rows[0] * self._said.cells
        return lambda: self._cell_get(_board.BLOCKS, [row + cell for cell in range(first, end)])

    def took(self) -> None:
        """After blocks()."""
        first, end, need = self._cells
        del self._theirs[first * PER_CELL - self._from:]
        for i in range(end - first):
            self._theirs += _board.unpack_blocks(self._scratch.read(self._at + i))
        del self._theirs[need - self._from:]

    def read(self) -> Tuple[List[Any], int]:
        """Read what is due. Returns also how many blocks' layers of it the rank announced before its last."""
        posts: List[Any] = []
        ahead = 0
        if self._said is None:
            return posts, ahead
        due = self._due()
        tokens = self._ahead.tokens
        last = self._said.before >= tokens or (self._said.after >= tokens and self._said.layers >= len(self._got))
        for layer, end_layer, first, end in due:
            theirs = self._theirs[first - self._from:end - self._from]
            if max(theirs) >= self._limit:
                raise kvcl.Stale(GONE)
            ours = self._into[first - self._first:end - self._first]
            posts.append(lambda theirs=theirs, ours=ours, layers=(layer, end_layer): self._get(theirs, ours, layers))
            self._got[layer:end_layer] = [end] * (end_layer - layer)
            ahead += 0 if last else (end - first) * (end_layer - layer)
        return posts, ahead
