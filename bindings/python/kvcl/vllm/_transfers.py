"""What a worker's side does: loads and saves in flight, what has failed, and what has been counted. Uses a Link and a
cache, no type of vLLM. All methods are called by one thread; only those that say so wait.
"""

import dataclasses
import logging
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Tuple

import kvcl

from . import _fields, _peers
from ._board import Chunk
from ._handover import Source
from ._plan import Load, Save


@dataclasses.dataclass
class _Move:
    request: str
    blocks: List[int]    # of vLLM, for the parts of each in turn
    parts: int
    began: float
    call: Optional[kvcl.Call] = None  # None: there was no store
    waited: bool = False              # a load that its step waits for
    layers: Optional[kvcl.Layers] = None  # by which it moves
    number: int = 0                   # of a save (Save)
    remove: List[bytes] = dataclasses.field(default_factory=list)


PATIENCE = 1.0  # seconds that a step waits for a connection to an engine that was read before

COUNTS = ("loaded_blocks", "loaded_bytes", "ahead_bytes", "load_seconds", "failed_blocks", "saved_blocks",
          "saved_bytes", "save_seconds", "unsaved_blocks")


class Transfers:
    """link: to the store. cache: where vLLM's block b, part p, is block b * parts + p. slices: their numbers in keys.
    saves: whether this rank saves them. base: the root of all keys. by_layer: saves, and loads that a step waits for,
    move layer by layer."""

    def __init__(self, link: Any, base: bytes, slices: List[int], saves: bool, log: logging.Logger,
                 by_layer: bool = False) -> None:
        self._link, self._base, self._slices, self._log = link, base, slices, log
        self._by_layer = by_layer
        self.leases: Any = None  # _peers.Leases and Peers, once there is a context
        self.peers: Any = None
        self.parts: Any = None   # of a source's number of ranks: what this rank reads from them (_handover.parts)
        self._computing: List[kvcl.Layers] = []  # of saves whose blocks are being computed
        self._saves = saves
        self.cache: Optional[kvcl.Cache] = None
        self._loading: List[_Move] = []
        self._telling: List[kvcl.Call] = []
        self._saving: List[_Move] = []
        self._kept: Set[str] = set()     # requests that have ended, whose blocks vLLM keeps for their saves
        self._done: Dict[str, int] = {}  # saves that have ended
        self._told: Dict[int, bool] = {}  # their numbers, and whether the store has all of their blocks
        self._received: Set[str] = set()
        self._lost: Set[str] = set()     # of these, those of which a block has failed
        self._failed: Set[int] = set()
        self.lost_loads = 0              # that a step waited for, and that have failed
        self._full_told = False
        self.counts: Dict[str, float] = dict.fromkeys(COUNTS, 0)

    def reset(self, base: bytes) -> None:
        """From now on keys have another root."""
        self._base = base

    def _ids(self, blocks: List[int]) -> List[int]:
        parts = len(self._slices)
        return [block * parts + part for block in blocks for part in range(parts)]

    def load(self, work: Load) -> None:
        """Begin a load. finished() does not name one that its step waits for (wait_loads)."""
        move = _Move(work.request, work.blocks, len(self._slices), time.monotonic(), waited=work.waited)
        self._loading.append(move)
        client = self._link.ready()
        if work.source is not None:
            move.call = self._read(work.source, work.blocks, work.first, PATIENCE if work.waited else _peers.FOREVER)
        elif client is not None and self.cache is not None:
            try:
                keys = _fields.keys(self._base, work.names, self._slices)
                move.layers = kvcl.Layers() if self._by_layer and work.waited else None
                move.call = client.get(keys, self.cache, self._ids(work.blocks), layers=move.layers)
                move.remove = _fields.keys(self._base, work.parts, self._slices)
            except Exception as error:  # noqa: B902: of this load alone
                self._log.warning("KVCL: a load of request %s failed: %s", work.request, error)

    def _read(self, source: Source, blocks: List[int], first: int,
              patience: float = _peers.FOREVER) -> Optional[kvcl.Call]:
        if self.peers is None:
            return None
        try:
            call: kvcl.Call = self.peers.read(source, self.parts(len(source.peers)), blocks, first, patience)
            return call
        except Exception as error:  # noqa: B902: of this handover alone
            self._log.warning("KVCL: a handover failed: %s", error)
            return None

    def unread(self, source: Source) -> None:
        """Tell another engine that its blocks will not be read."""
        call = self._read(source, [], 0)
        if call is not None:
            self._telling.append(call)

    def save(self, work: Save, stream: Any = None, computing: bool = False) -> None:
        """Begin a save. Blocks that the store has are not sent. computing: the step that computes the blocks begins:
        they move layer by layer, as layer_ready() names the layers."""
        client = self._link.ready()
        if client is None or self.cache is None or not self._saves:
            self._count_done(work.request, work.number, not self._saves)
            return
        try:
            keys = _fields.keys(self._base, work.names, self._slices)
            layers = kvcl.Layers() if computing else None
            call = client.save(keys, self.cache, self._ids(work.blocks), stream=stream, layers=layers)
            self._saving.append(_Move(work.request, work.blocks, len(self._slices), time.monotonic(), call,
                                      number=work.number))
            if layers is not None:
                self._computing.append(layers)
        except Exception as error:  # noqa: B902: of this save alone
            self._log.warning("KVCL: a save of request %s failed: %s", work.request, error)
            self._count_done(work.request, work.number, False)

    def spoiled(self, known: int) -> bool:
        """Whether a step computes out of blocks that were not loaded, or is one of those that vLLM has begun before its
        scheduler knew it. known: Work.lost of the step."""
        return known < self.lost_loads

    def unsaved(self, work: Save) -> None:
        """A save of a spoiled step ends without a byte."""
        self.counts["unsaved_blocks"] += len(work.blocks) if self._saves else 0
        self._count_done(work.request, work.number, not self._saves)

    def announce(self, chunks: List[Chunk], known: int) -> None:
        """A step begins that computes these for other engines. known: as of spoiled()."""
        if self.leases is not None:
            self.leases.announce(chunks, not self.spoiled(known))

    def _board(self) -> Any:
        return self.leases.board if self.leases is not None else None

    def layer_ready(self, layer: int, stream: Any = None) -> None:
        """This step has computed a layer. It may be wrong while a load that the step waits for may yet fail."""
        for layers in self._computing:
            layers.ready(layer, stream)
        board = self._board()
        if board is not None and not any(move.waited for move in self._loading):
            board.layer_ready(layer, stream)
        self.poll()

    def step_computed(self, stream: Any = None) -> None:
        """This step has computed all layers, and the loads that it waited for have ended."""
        board = self._board()
        if board is not None:
            board.step_computed(stream)
        computing, self._computing = self._computing, []
        if computing and self.cache is not None:
            for layers in computing:
                for layer in range(self.cache.layout.layers):
                    layers.ready(layer, stream)
            self.poll()

    def step_lost(self) -> None:
        """If the last step has not ended, what it was to compute is not saved, nor announced."""
        computing, self._computing = self._computing, []
        for layers in computing:
            layers.drop()
        board = self._board()
        if board is not None:
            board.step_lost()

    def _count_done(self, request: str, number: int, good: bool) -> None:
        self._done[request] = self._done.get(request, 0) + 1
        if number != 0:
            self._told[number] = good

    # ---- progress ----

    def poll(self) -> None:
        """Move everything that can move."""
        if self.peers is not None and (self._loading or self._telling):
            self.peers.progress()
            self._telling = [call for call in self._telling if not call.done]
        if self.leases is not None:
            self.leases.poll()
        if self._loading or self._saving:
            self._link.progress()
            self._loading = [move for move in self._loading if not self._load_ended(move)]
            self._saving = [move for move in self._saving if not self._save_ended(move)]

    def _outcome(self, move: _Move) -> Optional[Tuple[List[kvcl.Status], str]]:
        """A status for each part of each block, and an error's sentence, once the move has ended."""
        n = len(move.blocks) * move.parts
        if move.call is None:
            return [kvcl.Status.ERR_UNREACHABLE] * n, "no store"
        if not move.call.done:
            return None
        if move.call.error is not None:
            return [getattr(move.call.error, "status", kvcl.Status.ERR_INTERNAL)] * n, str(move.call.error)
        return move.call.result, ""

    def _load_ended(self, move: _Move) -> bool:
        outcome = self._outcome(move)
        if outcome is None:
            return False
        status, why = outcome
        bad = {move.blocks[i // move.parts] for i, one in enumerate(status) if one != kvcl.Status.OK}
        self._failed |= bad
        if not move.waited:
            self._received.add(move.request)
            self._lost |= {move.request} if bad else set()
        elif bad:
            self.lost_loads += 1
            self.step_lost()
        self.counts["failed_blocks"] += len(bad)
        self.counts["loaded_blocks"] += len(move.blocks) - len(bad)
        if self.cache is not None:
            self.counts["loaded_bytes"] += (len(move.blocks) - len(bad)) * move.parts * self.cache.block_bytes
        self.counts["ahead_bytes"] += 0 if bad else getattr(move.call, "ahead", 0)
        self.counts["load_seconds"] += time.monotonic() - move.began
        if bad:
            self._log.warning("KVCL: %d of %d blocks of request %s were not loaded%s", len(bad), len(move.blocks),
                              move.request, f": {why}" if why else "")
        elif move.remove:
            client = self._link.ready()
            if client is not None:
                client.remove(move.remove)
        return True

    def _save_ended(self, move: _Move) -> bool:
        outcome = self._outcome(move)
        if outcome is None:
            return False
        status, why = outcome
        bad = sum(one != kvcl.Status.OK for one in status)
        self._count_done(move.request, move.number, bad == 0)
        good = len(status) - bad
        self.counts["saved_blocks"] += good // move.parts
        self.counts["unsaved_blocks"] += -(-bad // move.parts)
        if self.cache is not None:
            self.counts["saved_bytes"] += good * self.cache.block_bytes
        self.counts["save_seconds"] += time.monotonic() - move.began
        if bad and not self._full_told:
            self._full_told = True
            first = next(one for one in status if one != kvcl.Status.OK)
            self._log.warning("KVCL: blocks are not saved (%s%s): said once, unsaved_blocks counts them",
                              kvcl.Status(first).name, f": {why}" if why else "")
        elif not bad:
            self._full_told = False
        return True

    # ---- what vLLM asks ----

    def keep(self, requests: Iterable[str]) -> None:
        """Requests that have ended: finished() names them when their saves have ended, and others have read their
        blocks."""
        self._kept |= set(requests)
        if self.leases is not None:
            for request in requests:
                self.leases.ended(request)

    def finished(self) -> Tuple[Set[str], Set[str]]:
        """The kept requests whose saves have ended, and the requests whose loads have ended. Loads that the step waited
        for have ended as well."""
        self.wait_loads()
        self.poll()
        busy = {move.request for move in self._saving}
        if self.leases is not None:
            busy |= {request for request in self._kept if request in self.leases}
        sent = self._kept - busy
        self._kept &= busy
        received, self._received = self._received, set()
        return sent, received

    def take_done(self) -> Dict[str, int]:
        """How many saves of which requests have ended since the last call."""
        done, self._done = self._done, {}
        return done

    def take_told(self) -> Dict[int, bool]:
        """The numbers of saves that have ended since the last call, and whether the store has all of their blocks."""
        told, self._told = self._told, {}
        return told

    def take_counts(self) -> Dict[str, float]:
        """What was counted since the last call."""
        counts, self.counts = self.counts, dict.fromkeys(COUNTS, 0)
        return counts

    def close(self) -> None:
        """Give saves under way a moment to end. Blocks, at most a few seconds."""
        if self.leases is not None:
            self.leases.close()
        until = time.monotonic() + 1.0
        self._wait(lambda: self._saving if time.monotonic() < until else [])

    def failed(self) -> Set[int]:
        """Blocks whose load has failed, since the last call."""
        failed, self._failed = self._failed, set()
        return failed

    def lost(self, received: Set[str]) -> Set[str]:
        """Of requests that finished() has named, those of which a block was not loaded."""
        lost = self._lost & received
        self._lost -= lost
        return lost

    def wait_saves(self, requests: Optional[Set[str]] = None) -> None:
        """Between steps: wait until the saves of these requests (None: all) have ended. Blocks, by their deadlines."""
        self.step_lost()
        self._wait(lambda: [move for move in self._saving if requests is None or move.request in requests])

    def wait_bytes(self) -> None:
        """Wait until the bytes of all loads that their step waits for have arrived, or their loads have ended. Whether
        they are the right ones is known after wait_loads() alone. Blocks, by their deadlines."""
        if self._loading:
            self._wait(lambda: [move for move in self._loading
                                if move.waited and not getattr(move.call, "there", False)])

    def wait_loads(self) -> None:
        """Wait until all loads that their step waits for have ended. Blocks, by their deadlines."""
        if self._loading:
            self._wait(lambda: [move for move in self._loading if move.waited])

    def wait_layer(self, layer: int) -> None:
        """Wait until a layer of all loads that their step waits for has arrived, or they have ended. Blocks, by their
        deadlines."""
        if self._loading:
            self._wait(lambda: [move for move in self._loading
                                if move.waited and (move.layers is None or layer not in move.layers.there)])

    def between_layers(self) -> None:
        """A step computes: move loads that it does not wait for, which otherwise move once a step."""
        if self._loading:
            self.poll()

    def _wait(self, left: Callable[[], List[_Move]]) -> None:
        """Until left() has no moves."""
        self.poll()
        while moves := left():
            call = moves[0].call
            if call is not None:
                call.wait_step(0.001)  # the others move as well
            self.poll()
