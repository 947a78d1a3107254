"""What the scheduler's side decides: which blocks of a request to look for, to load and to save. Pure.

Blocks are numbered within their request. A block's name is vLLM's hash of it. The last block of a prompt that one
engine computes for another (prefill and decode apart) may be partial: it has no hash, so its name is made from the
handover's id, which travels with the request, and from the prompt, since users may send an id with another one.
"""

import dataclasses
import json
import secrets
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

import kvcl

from . import _handover
from ._board import Chunk, Rows
from ._handover import Lease, Source


NEVER = 1 << 40  # a block that no request has


@dataclasses.dataclass
class Load:
    """Blocks to load: their names, and where they go. parts: names of partial blocks among them, to be removed. source:
    the engine that has them, from its block first on; None: the store."""

    request: str
    names: List[bytes]
    blocks: List[int]
    parts: List[bytes] = dataclasses.field(default_factory=list)
    waited: bool = False  # the step waits for it, which may be only from an engine that answers (Plan.answers)
    source: Optional[Source] = None
    first: int = 0


@dataclasses.dataclass
class Save:
    """Blocks to save. number: of this save, 0 if nobody asks which blocks were stored."""

    request: str
    names: List[bytes]
    blocks: List[int]
    number: int = 0


@dataclasses.dataclass
class Stored:
    """Blocks of a request that follow each other, which the store has now. parent: the hash of the block before."""

    names: List[bytes]
    parent: Optional[bytes]
    tokens: List[int]
    request: Any


@dataclasses.dataclass
class Work:
    """What the workers are to do in one step."""

    loads: List[Load] = dataclasses.field(default_factory=list)
    saves: List[Save] = dataclasses.field(default_factory=list)
    preempted: List[str] = dataclasses.field(default_factory=list)
    kept: List[str] = dataclasses.field(default_factory=list)  # ended, while their blocks are saved or read by others
    leases: List[Lease] = dataclasses.field(default_factory=list)
    chunks: List[Chunk] = dataclasses.field(default_factory=list)  # of prompts that others read while it computes them
    dropped: List[str] = dataclasses.field(default_factory=list)    # requests whose lease ends
    unread: List[Source] = dataclasses.field(default_factory=list)  # handovers that this engine will not read
    resets: List[bytes] = dataclasses.field(default_factory=list)   # of the cache, before all else (Plan.reset)
    lost: int = 0  # failed loads of the workers that the scheduler knows of (Transfers.lost_loads)
    early: bool = False  # loads that the step waits for may begin before it is prepared: nothing writes their blocks


@dataclasses.dataclass
class Entry:
    """A request."""

    prompt: int                       # its tokens
    hashes: Sequence[bytes]           # vLLM's, of full blocks; vLLM appends to it
    handover: str = ""                # the id of a handover between a prefill and a decode engine
    prefill: bool = False             # this engine computes the prompt, another one decodes
    ahead: bool = False               # and reads it meanwhile
    saved: int = 0                    # blocks before this one were given to the workers
    part_saved: bool = False
    saving: int = 0                   # saves under way, over all workers
    skip: Optional[Tuple[int, int]] = None  # blocks that came from the store
    into: Set[int] = dataclasses.field(default_factory=set)  # blocks that a load fills
    expected: int = 0                 # decode: tokens that the prefill engine has computed
    failed: bool = False              # a load of it has failed: it is computed
    tail: bytes = b""                 # what its last, partial block is of
    source: Optional[Source] = None   # decode: the engine that has its blocks; None: the store, or it was read
    peers: Tuple[str, ...] = ()       # decode: the ranks of which its blocks are being read
    waited: bool = False              # a step waited for its load
    owner: Any = None                 # vLLM's request, if stored blocks are told
    slot: int = -1                    # prefill: of its lease
    blocks: Tuple[int, ...] = ()      # prefill: its blocks


def part_name(handover: str, block: int, hashes: Sequence[bytes], tail: bytes) -> bytes:
    """The name of a prompt's partial last block. hashes: vLLM's, of the full ones. tail: what is in it."""
    before = hashes[block - 1] if 0 < block <= len(hashes) else b""
    return kvcl.key_from_string(json.dumps(["kvcl.vllm part", handover, block, before.hex(), tail.hex()]))


class Plan:
    """All requests of a scheduler. save: which blocks, as the option; none for an engine that only loads. workers: how
    many ranks report the end of each save. base: the root of the model's keys, with which an engine hands blocks over
    without the store; b"": through the store. announces: what this engine computes for another one, layer by layer.
    seal: of the addresses of engines that may be read (_seal.py)."""

    def __init__(self, block_size: int, save: str, workers: int = 1, base: bytes = b"",
                 announces: bool = False, seal: Any = None) -> None:
        self.size, self._save, self._workers, self._base, self._seal = block_size, save, workers, base, seal
        self._announces, self._rows = announces and bool(base), Rows()
        self.peers: Dict[int, str] = {}  # the addresses of the ranks, once they accept readers
        self._slots = list(range(_handover.SLOTS - 1, -1, -1)) if base else []
        self._answer: Set[Tuple[str, ...]] = set()  # other engines' ranks, of which the last read went well
        self._leased: Dict[str, int] = {}
        self.tells = False               # whether stored blocks are told (take_stored)
        self._telling: Dict[int, Tuple[List[Stored], int]] = {}  # saves under way: what they store, workers left
        self._stored: List[Stored] = []
        self._numbers = 0
        self._dropped: List[str] = []
        self._unread: List[Source] = []
        self._kept: List[str] = []
        self._resets: List[bytes] = []
        self.lost = 0                    # the most that a worker has told (Work.lost)
        self._entries: Dict[str, Entry] = {}
        self._loads: List[Load] = []

    scattered = False  # whether names that follow a missing one may be of use

    def __contains__(self, request: str) -> bool:
        return request in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def add(self, request: str, prompt: int, hashes: Sequence[bytes], params: Optional[Dict[str, Any]],
            tail: bytes = b"", owner: Any = None) -> None:
        """A new request. params: its kv_transfer_params. tail: what its partial block is of, besides hashes. owner:
        vLLM's request."""
        entry = Entry(prompt, hashes, tail=tail, owner=owner)
        if params and params.get("do_remote_decode"):
            name = params.get("kvcl_id")
            entry.ahead = self._announces and _handover.named(name)
            entry.prefill, entry.handover = True, str(name) if entry.ahead else secrets.token_hex(16)
        elif self._base and params and params.get("do_remote_prefill") and \
                (source := _handover.read_ahead(params, prompt, self.size, self._seal)) is not None:
            entry.handover, entry.expected = params["kvcl_id"], prompt
            entry.source = dataclasses.replace(source, name=self._ahead_name(entry))
        elif params and params.get("do_remote_prefill") and _handover.named(params.get("kvcl_id")):
            tokens = params.get("kvcl_tokens")
            if isinstance(tokens, int) and 0 < tokens <= prompt:
                entry.handover = params["kvcl_id"]
                entry.expected = tokens if tokens == prompt else tokens // self.size * self.size  # tail is the prompt's
                source = _handover.read(params, -(-tokens // self.size), self._seal) if self._base else None
                if source is not None and tokens == prompt:
                    entry.source = dataclasses.replace(source, name=self._name(entry, source.blocks))
        self._entries[request] = entry

    def _name(self, entry: Entry, blocks: Sequence[int]) -> bytes:
        return _handover.lease_name(self._base, entry.handover, entry.prompt, blocks, entry.hashes, self.size,
                                    entry.tail)

    def _ahead_name(self, entry: Entry) -> bytes:
        return _handover.ahead_name(self._base, entry.handover, entry.prompt, entry.hashes, self.size, entry.tail)

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
                names.append(part_name(entry.handover, end, entry.hashes, entry.tail))
            return first, names
        return first, list(entry.hashes[first:min((tokens - 1) // self.size, len(entry.hashes))])

    def expects(self, request: str) -> bool:
        """Whether another engine computes the prompt for this one, so that its blocks are worth waiting for."""
        return self._entries[request].expected > 0

    def direct(self, request: str) -> bool:
        """Whether the engine that computed the prompt is read itself, so that there is nothing to look for."""
        return self._entries[request].source is not None

    def answers(self, request: str) -> bool:
        """Whether the engine that computed the prompt has been read before, and the last time well. Then its blocks
        come within milliseconds; a first read also connects, and what is being computed comes when it is."""
        source = self._entries[request].source
        return source is not None and source.ahead is None and source.peers in self._answer

    def not_read(self, request: str) -> None:
        """The request needs nothing of what another engine keeps for it."""
        entry = self._entries.get(request)
        if entry is not None and entry.source is not None:
            self._unread.append(entry.source)
            entry.source, entry.expected = None, 0

    def found(self, first: int, answer: Any, parts: int) -> int:
        """How many of the names of wanted(), from its first block on, the store has. answer: Lookups.ask's; parts: of
        each name."""
        return int(answer) // parts

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
            parts = [part_name(entry.handover, end - 1, entry.hashes, entry.tail)]
        into = list(blocks[first:end])
        source, entry.source = entry.source, None
        entry.peers = source.peers if source else ()
        self._loads.append(Load(request, names + parts, into, [] if source else parts, waited, source,
                                first if source else 0))
        entry.skip, entry.into, entry.waited = (first, first + len(names)), set(into), waited

    def loaded(self, requests: Iterable[str]) -> None:
        """All workers have ended the loads of these requests. Call load_failed() first: a load whose blocks it has not
        named went well."""
        for request in requests:
            entry = self._entries.get(request)
            if entry is not None and entry.peers and not entry.failed:
                if len(self._answer) >= _handover.PEERS_MAX:
                    self._answer.clear()
                self._answer.add(entry.peers)

    def load_failed(self, blocks: Iterable[int]) -> List[str]:
        """These blocks were not loaded. Their requests are not looked up again, so that they end; once the blocks are
        computed they are worth saving. Returns those for whose load a step waited."""
        failed, waited = set(blocks), []
        for request, entry in self._entries.items():
            if entry.into & failed:
                waited += [request] if entry.waited else []
                entry.failed, entry.expected = True, 0
                self._answer.discard(entry.peers)
                if entry.skip is not None:
                    entry.saved, entry.skip = min(entry.saved, entry.skip[0]), None
        return waited

    # ---- a step, and the end ----

    def step(self, scheduled: Iterable[Tuple[str, int]], blocks_of: Callable[[str], Sequence[int]],
             preempted: Iterable[str] = ()) -> Work:
        """The work of a step. scheduled: requests and how many of their tokens are computed after the step."""
        preempted = [one for one in preempted if one in self._entries]
        self._end_leases(preempted)
        work = Work(self._loads, [], preempted, self._kept,
                    dropped=self._dropped, unread=self._unread, resets=self._resets, lost=self.lost)
        self._loads, self._kept, self._dropped, self._unread, self._resets = [], [], [], [], []
        for request, computed in scheduled:
            entry = self._entries.get(request)
            if entry is None:
                continue
            if entry.ahead and computed <= entry.prompt:
                self._announce(request, entry, computed, blocks_of, work)
            leases = entry.prefill and entry.slot < 0 and computed >= entry.prompt and self._may_lease()
            if not leases and not self._may_save(entry, computed):
                continue
            blocks = blocks_of(request)
            if leases:
                work.leases += self._lease(request, entry, blocks)
            if self._save == "none":
                continue
            due = self._due(entry, computed, blocks)
            if due:
                indices = [index for _, index, _ in due]
                work.saves.append(Save(request, [name for name, _, _ in due], [block for _, _, block in due],
                                       self._tell(entry, indices)))
                entry.saving += self._workers
                self._saving(request, computed, indices)
        return work

    def _saving(self, request: str, computed: int, indices: List[int]) -> None:
        """A save of these blocks begins in this step."""

    def _may_save(self, entry: Entry, computed: int) -> bool:
        """Whether it is worth asking for the block table, which a step of a decode seldom is."""
        if self._save == "none":
            return False
        return computed // self.size > entry.saved or (entry.prefill and not entry.part_saved)

    def _may_lease(self) -> bool:
        return bool(self._slots) and len(self.peers) == self._workers

    def _announce(self, request: str, entry: Entry, computed: int, blocks_of: Callable[[str], Sequence[int]],
                  work: Work) -> None:
        """What the step computes of a prompt that is read meanwhile. A step that is computed again is told again."""
        blocks, n = blocks_of(request), -(-computed // self.size)
        if request in self._rows and not self._rows.follows(request, blocks):
            self._end_leases([request])
            work.dropped += self._dropped
            self._dropped = []
        if len(blocks) < n or (request not in self._rows and not self._rows.take(request, entry.handover)):
            return
        work.chunks.append(self._rows.chunk(request, entry.handover, self._ahead_name(entry), blocks[:n], computed))

    def _lease(self, request: str, entry: Entry, blocks: Sequence[int]) -> List[Lease]:
        """Before the step that computes the end of the prompt, so that it is there when its reader comes."""
        n = -(-entry.prompt // self.size)
        if len(blocks) < n:
            return []
        entry.slot, entry.blocks = self._slots.pop(), tuple(blocks[:n])
        self._leased[request] = entry.slot
        return [Lease(request, entry.slot, self._name(entry, entry.blocks))]

    def _due(self, entry: Entry, computed: int, blocks: Sequence[int]) -> List[Tuple[bytes, int, int]]:
        """What to save after the step: names, numbers in the request, and vLLM's blocks."""
        computed = min(computed, len(blocks) * self.size)
        end = min(computed // self.size, len(entry.hashes))
        if self._save == "prompt":
            end = min(end, entry.prompt // self.size)
        due = []
        for index in range(entry.saved, end):
            if entry.skip is None or not entry.skip[0] <= index < entry.skip[1]:
                due.append((entry.hashes[index], index, blocks[index]))
        entry.saved = max(entry.saved, end)
        last = entry.prompt // self.size
        if entry.prefill and not entry.part_saved and computed >= entry.prompt and entry.prompt % self.size != 0:
            due.append((part_name(entry.handover, last, entry.hashes, entry.tail), last, blocks[last]))
            entry.part_saved = True
        return due

    # ---- telling which blocks were stored ----

    def _tell(self, entry: Entry, indices: List[int]) -> int:
        """The number of a save of these blocks of a request; the partial one is not told."""
        if not self.tells or entry.owner is None:
            return 0
        runs: List[Stored] = []
        tokens, last = entry.owner.all_token_ids, -2
        for index in indices:
            if index >= len(entry.hashes) or index == last:
                continue  # the partial one, or the same of another group
            if index != last + 1:
                runs.append(Stored([], entry.hashes[index - 1] if index > 0 else None, [], entry.owner))
            runs[-1].names.append(entry.hashes[index])
            runs[-1].tokens += list(tokens[index * self.size:(index + 1) * self.size])
            last = index
        self._numbers += 1
        self._telling[self._numbers] = (runs, self._workers)
        return self._numbers

    def told(self, ended: Dict[int, bool]) -> None:
        """Saves that a worker has ended, and whether all of their blocks are in the store."""
        for number, good in ended.items():
            runs, left = self._telling.pop(number, ([], 0))
            if good and left > 1:
                self._telling[number] = (runs, left - 1)
            elif good:
                self._stored += runs

    def take_stored(self, blocks: int = 1 << 30) -> List[Stored]:
        """What was stored, the oldest first; no more of it after so many blocks, which the next call returns."""
        count = end = 0
        while end < len(self._stored) and count < blocks:
            count += len(self._stored[end].names)
            end += 1
        stored, self._stored = self._stored[:end], self._stored[end:]
        return stored

    # ---- the end ----

    def save_ended(self, ended: Dict[str, int]) -> None:
        """How many saves of which requests the workers have ended, well or not."""
        for request, count in ended.items():
            entry = self._entries.get(request)
            if entry is not None:
                entry.saving -= count

    def finished(self, request: str, aborted: bool = False) -> Tuple[bool, Optional[Dict[str, Any]]]:
        """Whether vLLM must keep the request's blocks until the workers have saved them, or others have read them; and,
        after a prefill for another engine, the parameters that its request takes there."""
        self.not_read(request)
        if aborted:
            self._end_leases([request])
        entry = self._entries.pop(request, None)
        if entry is None:
            return False, None
        params = None
        if entry.prefill and not aborted:
            params = {"do_remote_prefill": True, "do_remote_decode": False, "kvcl_id": entry.handover,
                      "kvcl_tokens": entry.prompt}
            if entry.slot >= 0:
                peers = tuple(self.peers[rank] for rank in sorted(self.peers))
                params.update(_handover.params(Source(peers, entry.blocks, entry.slot)))
                if self._announces:
                    params["kvcl_ahead"] = True  # the next request may be sent ahead of this engine's answer
        keep = entry.saving > 0 or entry.slot >= 0 or request in self._rows
        if keep:
            self._kept.append(request)
        return keep, params

    def reset(self, mark: bytes) -> None:
        """Blocks that were computed before are not those of the model any more: nobody reads them, and requests that
        have some save nothing. mark: of the keys from now on (_fields.root_after)."""
        self._resets.append(mark)
        for request, entry in self._entries.items():
            self.not_read(request)
            entry.saved, entry.part_saved, entry.skip, entry.ahead = NEVER, True, None, False
        self._end_leases(list(self._entries))
        self._dropped += {*self._leased, *self._rows}  # of requests that have ended: the workers name them as read

    def _end_leases(self, requests: Iterable[str]) -> None:
        """Their blocks are given to others: they are computed again, and leased again."""
        for request in requests:
            entry = self._entries.get(request)
            if entry is not None and (entry.slot >= 0 or request in self._rows):
                self._dropped.append(request)
                self.freed([request])
                entry.slot = -1

    def freed(self, requests: Iterable[str]) -> None:
        """The workers no longer keep the blocks of these requests."""
        for request in requests:
            self._rows.free(request)
            slot = self._leased.pop(request, None)
            if slot is not None:
                self._slots.append(slot)
