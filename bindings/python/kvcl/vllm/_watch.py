"""Which of the blocks that were told as stored the store has no more: evicted, removed, or lost with a killed rank. No
server tells its clients, so the engine's steps ask, a few keys at a time. Uses a link, no type of vLLM.
"""

import itertools
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

import kvcl

PERIOD = 0.1    # seconds from an answer to the next question
KEYS = 1024     # of a question
MOST = 1 << 20  # blocks


class Watch:
    """link: to the store. keys(names): of blocks, parts for each, without any of which a block is of no use."""

    def __init__(self, link: Any, keys: Callable[[List[bytes]], List[bytes]], parts: int) -> None:
        self._link, self._keys, self._parts = link, keys, parts
        self._blocks: Dict[bytes, int] = {}  # names, those that were asked for longest ago first; when each was stored
        self._dropped: List[bytes] = []
        self._asked: List[Tuple[bytes, int]] = []
        self._call: Optional[kvcl.Call] = None
        self._next = 0.0
        self._stored = 0  # calls of stored(), which are its clock

    def stored(self, names: List[bytes]) -> None:
        """The store has these blocks now."""
        self._stored += 1
        for name in names:
            self._blocks[name] = self._stored
        while len(self._blocks) > MOST:
            self._drop(next(iter(self._blocks)))

    def clear(self) -> None:
        """None of them is found any more."""
        self._dropped += self._blocks
        self._blocks.clear()

    def dropped(self) -> List[bytes]:
        """The blocks that the store has dropped since the last call, as far as is known. Never waits."""
        if self._blocks:
            self._step()
        dropped, self._dropped = self._dropped, []
        return dropped

    def _step(self) -> None:
        client = self._link.ready()
        if client is None:
            self.clear()
        elif self._call is not None:
            self._link.progress()
            if self._call.done:
                self._answered(self._call)
        elif time.monotonic() >= self._next:
            self._asked = list(itertools.islice(self._blocks.items(), max(1, KEYS // self._parts)))
            self._call = client.exists(self._keys([name for name, _ in self._asked]))

    def _answered(self, call: kvcl.Call) -> None:
        self._call, self._next = None, time.monotonic() + PERIOD
        if call.error is not None:
            return
        for i, (name, stored) in enumerate(self._asked):
            if self._blocks.get(name) != stored:
                continue  # stored again since it was asked for, or dropped
            if all(call.result[i * self._parts:(i + 1) * self._parts]):
                self._blocks[name] = self._blocks.pop(name)
            else:
                self._drop(name)

    def _drop(self, name: bytes) -> None:
        del self._blocks[name]
        self._dropped.append(name)
