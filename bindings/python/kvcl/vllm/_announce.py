"""What a prefill engine writes on its board (_board.py) while it computes, in the workers' processes. No type of vLLM.

Of each prompt: its blocks first, then, layer by layer, that their bytes are there. On a device they are when the stream
that computes has got so far: a thread waits for that, in the order of the calls, since the engine's own may be inside
the driver meanwhile. Its row is cleared before its blocks are given to others.
"""

import dataclasses
import queue
import threading
from typing import Any, Dict, List, Optional, Set, Tuple

import kvcl

from . import _board
from ._board import CELL, PER_CELL, ROWS, Chunk, Header

ALL = -1     # layers
CLOSE = 5.0  # seconds that close() waits for the thread


class _Row:
    """A prompt. Its header changes in the order of its events."""

    def __init__(self, chunk: Chunk, cells: int) -> None:
        self.number, self.turn = chunk.row, chunk.turn
        self.header = Header(chunk.name, chunk.mark, chunk.turn, cells)
        self.blocks: List[int] = []
        self.done: Set[int] = set()  # layers of the step that computes up to `after` tokens
        self.after = 0
        self.ended = False


_Event = Tuple[_Row, int, int]  # up to how many tokens, and which layer


class Board:
    """layers: of the cache. blocks: of the longest prompt. The engine's thread calls all methods; none waits."""

    def __init__(self, context: kvcl.Context, layers: int, blocks: int) -> None:
        self._context, self._layers = context, layers
        self._cells = -(-max(1, blocks) // PER_CELL)
        self._headers = context.cache(_board.BOARD, kvcl.Layout.bytes(ROWS, CELL))
        self._blocks = context.cache(_board.BLOCKS, kvcl.Layout.bytes(ROWS * self._cells, CELL))
        for row in range(ROWS):
            self._headers.write(row, bytes(CELL))
        self._rows: Dict[str, _Row] = {}
        self._step: List[Tuple[_Row, int]] = []  # what the step computes
        self._lock = threading.Lock()  # of the headers
        self._events: "queue.SimpleQueue[Optional[Tuple[Any, List[_Event]]]]" = queue.SimpleQueue()
        self._thread: Optional[threading.Thread] = None

    # ---- a step ----

    def add(self, chunk: Chunk, good: bool) -> bool:
        """A step begins that computes more of a prompt. good: what it computes will be right. Returns whether the
        prompt is announced: not if a chunk before this one was lost."""
        row = self._rows.get(chunk.request)
        if row is not None and row.turn != chunk.turn:
            self.drop(chunk.request)
            row = None
        if chunk.first != (len(row.blocks) if row else 0) or \
                chunk.first + len(chunk.blocks) > self._cells * PER_CELL:
            self.drop(chunk.request)
            return False
        begins = row is None
        if row is None:
            row = self._rows[chunk.request] = _Row(chunk, self._cells)
        row.blocks += chunk.blocks
        if chunk.blocks:
            for cell in range(chunk.first // PER_CELL, -(-len(row.blocks) // PER_CELL)):
                self._blocks.write(row.number * self._cells + cell,
                                   _board.pack_blocks(row.blocks[cell * PER_CELL:(cell + 1) * PER_CELL]))
        if begins:
            self._headers.write(row.number, row.header.pack())
        if good:
            self._step.append((row, chunk.after))
        return True

    def layer_ready(self, layer: int, stream: Any = None) -> None:
        """The step has computed a layer; with a stream: when that has done what it was given before."""
        self._post([(row, after, layer) for row, after in self._step], stream)

    def step_computed(self, stream: Any = None) -> None:
        """The step has computed all layers."""
        step, self._step = self._step, []
        self._post([(row, after, ALL) for row, after in step], stream)

    def step_lost(self) -> None:
        """What the step computes is not announced any further."""
        self._step = []

    def drop(self, request: str) -> None:
        """Nobody may read the prompt's blocks any more."""
        row = self._rows.pop(request, None)
        if row is not None:
            with self._lock:
                row.ended = True
                self._headers.write(row.number, bytes(CELL))

    def close(self) -> None:
        """Drop all prompts, and end the thread."""
        for request in list(self._rows):
            self.drop(request)
        if self._thread is not None:
            self._events.put(None)
            self._thread.join(CLOSE)
            self._thread = None

    # ---- events ----

    def _post(self, events: List[_Event], stream: Any) -> None:
        if not events:
            return
        if stream is None:
            self._apply(events)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kvcl.vllm.board", daemon=True)
            self._thread.start()
        self._events.put((self._context.stream_done(stream), events))

    def _run(self) -> None:
        while (item := self._events.get()) is not None:
            request, events = item
            try:
                request.wait()
            except kvcl.KvclError:
                continue  # a later event of the stream announces these layers as well
            self._apply(events)

    def _apply(self, events: List[_Event]) -> None:
        with self._lock:
            for row, after, layer in events:
                if not row.ended and self._moves(row, after, layer):
                    self._headers.write(row.number, row.header.pack())

    def _moves(self, row: _Row, after: int, layer: int) -> bool:
        """Whether there is more to announce than before."""
        said = row.header
        if after <= said.before:
            return False
        if after != row.after:
            row.after, row.done = after, set()
        if layer == ALL:
            row.header = dataclasses.replace(said, before=after, after=after, layers=0)
            return True
        row.done.add(layer)
        layers = next(one for one in range(self._layers + 1) if one not in row.done)
        if layers == 0 or (after, layers) == (said.after, said.layers):
            return False
        row.header = dataclasses.replace(said, after=after, layers=layers)
        return True
