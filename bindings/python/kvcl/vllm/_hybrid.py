"""The plan of a model whose layers are in several groups, some of which attend to a sliding window only. Pure.

vLLM has one table of blocks for each group, all of the same length: a block of the prompt is a block of each group.
Blocks that have left a window are given to others, and are block 0 in that group's table from then on. A name is
vLLM's hash and the group's number. After a hit the request needs all blocks of the groups with full attention, and the
last ones of each window, so fewer may be there than vLLM has hashes of.

A block that leaves its window is given to others while its save may be under way. Before the step in which that happens
the workers wait for the save, as they do for a preempted request.
"""

import struct
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from ._plan import Entry, Load, Plan, Work

Table = Sequence[Sequence[int]]  # of each group: the blocks of a request

NONE = 0  # in a table: vLLM's block that is nobody's


def name_of(name: bytes, group: int) -> bytes:
    """A group's block; name: of the prompt's."""
    return name + struct.pack("<I", group)


class Hybrid(Plan):
    """windows: of each group, in tokens; 0: full attention."""

    scattered = True

    def __init__(self, block_size: int, save: str, workers: int, windows: Sequence[int]) -> None:
        super().__init__(block_size, save, workers)
        self._windows = tuple(windows)
        self._ends: Dict[str, int] = {}    # of requests with saves under way: tokens computed after the last step
        self._lowest: Dict[str, int] = {}  # and the first block that may be under way

    def add(self, request: str, prompt: int, hashes: Sequence[bytes], params: Optional[Dict[str, Any]],
            tail: bytes = b"", owner: Any = None) -> None:
        super().add(request, prompt, hashes, None, tail, owner)  # prompts are not handed over

    def _held(self, group: int, tokens: int) -> int:
        """The first block of a group that the token after so many needs."""
        window = self._windows[group]
        return max(0, tokens - window + 1) // self.size if window else 0

    # ---- looking and loading ----

    def wanted(self, request: str, tokens: int, computed: int) -> Tuple[int, List[bytes]]:
        first, names = super().wanted(request, tokens, computed)
        return first, [name_of(name, group) for name in names for group in range(len(self._windows))]

    def found(self, first: int, answer: Any, parts: int) -> int:
        """Those that make a hit as long as possible. answer: for each part of each name, whether it is there."""
        groups = len(self._windows)
        has = [all(answer[at:at + parts]) for at in range(0, len(answer), parts)]
        full = [group for group, window in enumerate(self._windows) if window == 0]
        runs = [0] * groups  # of each group: blocks there, up to the one looked at
        best = 0
        for block in range(len(has) // groups):
            runs = [run + 1 if has[block * groups + group] else 0 for group, run in enumerate(runs)]
            if any(runs[group] != block + 1 for group in full):
                break
            end = first + block + 1
            if all(runs[group] >= end - max(first, self._held(group, end * self.size)) for group in range(groups)):
                best = block + 1
        return best * groups

    def tokens(self, request: str, computed: int, first: int, found: int) -> int:
        return super().tokens(request, computed, first, found // len(self._windows)) if found else 0

    def load(self, request: str, computed: int, tokens: int, blocks: Any, waited: bool = False) -> None:
        entry = self._entries[request]
        first, end = computed // self.size, (computed + tokens) // self.size
        load = Load(request, [], [])
        for group, table in enumerate(blocks):
            for index in range(first, end):
                if table[index] != NONE:
                    load.names.append(name_of(entry.hashes[index], group))
                    load.blocks.append(table[index])
        self._loads.append(load)
        entry.skip, entry.into = (first, end), set(load.blocks)

    def loads_failed(self, requests: Iterable[str]) -> None:
        """They are computed from the beginning."""
        for request in requests:
            entry = self._entries.get(request)
            if entry is not None:
                self.load_failed(entry.into)

    # ---- a step, and the end ----

    def step(self, scheduled: Iterable[Tuple[str, int]], blocks_of: Callable[[str], Any],
             preempted: Iterable[str] = ()) -> Work:
        leaving = [request for request, lowest in self._lowest.items()
                   if lowest < max(self._held(group, self._ends[request]) for group in range(len(self._windows)))]
        scheduled = list(scheduled)
        self._ends.update((request, computed) for request, computed in scheduled if request in self._lowest)
        for request in leaving:
            del self._lowest[request], self._ends[request]
        work = super().step(scheduled, blocks_of, preempted)
        work.preempted += leaving
        return work

    def _due(self, entry: Entry, computed: int, blocks: Any) -> List[Tuple[bytes, int, int]]:
        table: Table = blocks
        due = []
        for _, index, _ in super()._due(entry, computed, table[0] if table else []):
            due += [(name_of(entry.hashes[index], group), index, each[index]) for group, each in enumerate(table)
                    if each[index] != NONE]
        return due

    def _saving(self, request: str, computed: int, indices: List[int]) -> None:
        self._lowest[request] = min(self._lowest.get(request, indices[0]), min(indices))
        self._ends[request] = computed

    def save_ended(self, ended: Dict[str, int]) -> None:
        super().save_ended(ended)
        for request in ended:
            entry = self._entries.get(request)
            if entry is None or entry.saving == 0:
                self._lowest.pop(request, None)
                self._ends.pop(request, None)

    def finished(self, request: str, aborted: bool = False) -> Tuple[bool, Optional[Dict[str, Any]]]:
        self._lowest.pop(request, None)  # vLLM keeps the blocks that are in the table
        self._ends.pop(request, None)
        return super().finished(request, aborted)
