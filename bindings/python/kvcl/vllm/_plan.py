"""What the scheduler's side decides: which blocks of a request to look for, to load and to save. Pure.

Blocks are numbered within their request. A block's name is vLLM's hash of it. The last block of a prompt that one
engine computes for another (prefill and decode apart) may be partial: it has no hash, so its name is made from the
handover's id, which travels with the request.
"""

import dataclasses
import secrets
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple

import kvcl


@dataclasses.dataclass
class Load:
    """Blocks to load: their names, and where they go. parts: names of partial blocks among them, to be removed."""

    request: str
    names: List[bytes]
    blocks: List[int]
    parts: List[bytes] = dataclasses.field(default_factory=list)
    waited: bool = False  # the step waits for it


@dataclasses.dataclass
class Save:
    """Blocks to save."""

    request: str
    names: List[bytes]
    blocks: List[int]


@dataclasses.dataclass
class Work:
    """What the workers are to do in one step."""

    loads: List[Load] = dataclasses.field(default_factory=list)
    saves: List[Save] = dataclasses.field(default_factory=list)
    preempted: List[str] = dataclasses.field(default_factory=list)
    kept: List[str] = dataclasses.field(default_factory=list)  # requests that have ended while saves were under way


@dataclasses.dataclass
class Entry:
    """A request."""

    prompt: int                       # its tokens
    hashes: Sequence[bytes]           # vLLM's, of full blocks; vLLM appends to it
    handover: str = ""                # the id of a handover between a prefill and a decode engine
    prefill: bool = False             # this engine computes the prompt, another one decodes
    saved: int = 0                    # blocks before this one were given to the workers
    part_saved: bool = False
    saving: int = 0                   # saves under way, over all workers
    skip: Optional[Tuple[int, int]] = None  # blocks that came from the store
    into: Set[int] = dataclasses.field(default_factory=set)  # blocks that a load fills
    expected: int = 0                 # decode: tokens that the prefill engine has computed
    failed: bool = False              # a load of it has failed: it is computed


def part_name(handover: str, block: int) -> bytes:
    """The name of a prompt's partial last block."""
    return kvcl.key_from_string(f"kvcl.vllm part {handover} {block}")


class Plan:
    """All requests of a scheduler. save: which blocks, as the option; none for an engine that only loads. workers: how
    many ranks report the end of each save."""

    def __init__(self, block_size: int, save: str, workers: int = 1) -> None:
        self.size, self._save, self._workers = block_size, save, workers
        self._kept: List[str] = []
        self._entries: Dict[str, Entry] = {}
        self._loads: List[Load] = []

    def __contains__(self, request: str) -> bool:
        return request in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, request: str, prompt: int, hashes: Sequence[bytes], params: Optional[Dict[str, Any]]) -> None:
        """A new request. params: its kv_transfer_params."""
        entry = Entry(prompt, hashes)
        if params and params.get("do_remote_decode"):
            entry.prefill, entry.handover = True, secrets.token_hex(16)
        elif params and params.get("do_remote_prefill") and isinstance(params.get("kvcl_id"), str):
            tokens = params.get("kvcl_tokens")
            if isinstance(tokens, int) and 0 < tokens <= prompt:
                entry.handover, entry.expected = params["kvcl_id"], tokens
        self._entries[request] = entry

    def forget(self, request: str) -> None:
        """The request has ended."""
        self._entries.pop(request, None)

    # ---- looking and loading ----

    def wanted(self, request: str, tokens: int, computed: int) -> Tuple[int, List[bytes]]:
        """The first block to look for, and the names of those from it on: full blocks, without the last token, which
        must be computed. Of a handover: all blocks of the prompt."""
        entry = self._entries[request]
        first = computed // self.size
        if entry.failed:
            return first, []
        if entry.expected > computed:
            end = min(entry.expected // self.size, len(entry.hashes))
            names = list(entry.hashes[first:end])
            if entry.expected % self.size != 0 and end == entry.expected // self.size:
                names.append(part_name(entry.handover, end))
            return first, names
        return first, list(entry.hashes[first:min((tokens - 1) // self.size, len(entry.hashes))])

    def expects(self, request: str) -> bool:
        """Whether another engine computes the prompt for this one, so that its blocks are worth waiting for."""
        return self._entries[request].expected > 0

    def give_up(self, request: str) -> None:
        """The handover has failed: the request is one as any other."""
        self._entries[request].expected = 0

    def tokens(self, request: str, computed: int, first: int, found: int) -> int:
        """The tokens beyond computed that found blocks from first on give."""
        entry = self._entries[request]
        have = (first + found) * self.size
        if entry.expected > 0:
            have = min(have, entry.expected)
        return max(0, have - computed)

    def load(self, request: str, computed: int, tokens: int, blocks: Sequence[int], waited: bool = False) -> None:
        """vLLM has allocated blocks (all of the request's) for tokens after the first computed ones. waited: the step
        that needs them waits."""
        entry = self._entries[request]
        first, end = computed // self.size, -(-(computed + tokens) // self.size)
        names = list(entry.hashes[first:min(end, (computed + tokens) // self.size)])
        parts: List[bytes] = []
        if len(names) < end - first:
            parts = [part_name(entry.handover, end - 1)]
        into = list(blocks[first:end])
        self._loads.append(Load(request, names + parts, into, parts, waited))
        entry.skip, entry.into = (first, first + len(names)), set(into)

    def load_failed(self, blocks: Iterable[int]) -> None:
        """These blocks were not loaded. Their requests are not looked up again, so that they end; once the blocks are
        computed they are worth saving."""
        failed = set(blocks)
        for entry in self._entries.values():
            if entry.into & failed:
                entry.failed, entry.expected = True, 0
                if entry.skip is not None:
                    entry.saved, entry.skip = min(entry.saved, entry.skip[0]), None

    # ---- a step, and the end ----

    def step(self, scheduled: Iterable[Tuple[str, int]], blocks_of: Callable[[str], Sequence[int]],
             preempted: Iterable[str] = ()) -> Work:
        """The work of a step. scheduled: requests and how many of their tokens are computed after the step."""
        work = Work(self._loads, [], [one for one in preempted if one in self._entries], self._kept)
        self._loads, self._kept = [], []
        for request, computed in scheduled:
            entry = self._entries.get(request)
            if entry is None or self._save == "none":
                continue
            if not self._may_save(entry, computed):
                continue
            blocks = blocks_of(request)
            due = self._due(entry, min(computed, len(blocks) * self.size))
            if due:
                work.saves.append(Save(request, [name for name, _ in due], [blocks[index] for _, index in due]))
                entry.saving += self._workers
        return work

    def _may_save(self, entry: Entry, computed: int) -> bool:
        """Whether it is worth asking for the block table, which a step of a decode seldom is."""
        return computed // self.size > entry.saved or (entry.prefill and not entry.part_saved)

    def _due(self, entry: Entry, computed: int) -> List[Tuple[bytes, int]]:
        end = min(computed // self.size, len(entry.hashes))
        if self._save == "prompt":
            end = min(end, entry.prompt // self.size)
        due = []
        for index in range(entry.saved, end):
            if entry.skip is None or not entry.skip[0] <= index < entry.skip[1]:
                due.append((entry.hashes[index], index))
        entry.saved = max(entry.saved, end)
        last = entry.prompt // self.size
        if entry.prefill and not entry.part_saved and computed >= entry.prompt and entry.prompt % self.size != 0:
            due.append((part_name(entry.handover, last), last))
            entry.part_saved = True
        return due

    def save_ended(self, ended: Dict[str, int]) -> None:
        """How many saves of which requests the workers have ended, well or not."""
        for request, count in ended.items():
            entry = self._entries.get(request)
            if entry is not None:
                entry.saving -= count

    def finished(self, request: str) -> Tuple[bool, Optional[Dict[str, Any]]]:
        """Whether vLLM must keep the request's blocks until the workers have saved them; and, after a prefill for
        another engine, the parameters that its request takes there."""
        entry = self._entries.pop(request, None)
        if entry is None:
            return False, None
        params = None
        if entry.prefill:
            params = {"do_remote_prefill": True, "do_remote_decode": False, "kvcl_id": entry.handover,
                      "kvcl_tokens": entry.prompt}
        if entry.saving > 0:
            self._kept.append(request)
        return entry.saving > 0, params
