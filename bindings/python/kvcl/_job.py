"""A store that a serving engine keeps open: how it joins a job, and what failures cost the engine.

kvcl.lmcache, kvcl.sglang and kvcl.compat share it, and its options (_job_options.py). The engine never sees an
exception of the store: a call on a store that is absent, or that fails, answers as if nothing were stored. Each kind of
failure is logged once, and the store is opened again when that is possible.
"""

import logging
import threading
import time
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple, TypeVar, Union

from ._cache import Cache, Layout
from ._context import Context
from ._errors import Busy, DeadHandle, KvclError, Shutdown, Status
from ._comm import RankState
from ._introduce import SAYS, TEXTS, Board, Fields, explain, introduction, salt_mark
from ._job_client import Answer, ClientStore, Later
from ._job_options import is_alone
from ._keys import value_keys
from ._request import Request
from ._store import Store

log = logging.getLogger("kvcl")

# Seconds between the beginnings of attempts to open the store, and between looks whether it is lost. An attempt to
# reach a dead server lasts up to 1.3 s over TCP, and the next one begins at once then.
AGAIN = 0.75
LOT_BYTES = 64 << 20  # of one put: a put is all or nothing, and a batch need not be
T = TypeVar("T")
Query = Union[Request[List[bool]], Later]


class Opened(NamedTuple):
    """A store, and the caches over the engine's memory, of one membership in a job."""

    context: Context
    store: Union[Store, ClientStore]
    caches: Dict[str, Cache]
    timeout: float
    introduce: Callable[[str, float], List[str]]  # (text, timeout): leaves this engine's text, returns those of others


class Memory(NamedTuple):
    """Memory of the engine that blocks are copied from and into: a cache in each job that is joined."""

    name: str
    layout: Layout
    buffers: Any


def _lost(opened: Opened) -> bool:
    """Whether the membership is of no more use: it was closed, or all the other ranks have failed."""
    if opened.context.closed or opened.store.closed:
        return True
    world = opened.context.world
    return world.size > 1 and all(world.rank_state(rank) == RankState.FAILED
                                  for rank in range(world.size) if rank != world.rank)


class Job:
    """The membership in a job, kept by a thread of its own: opened, and opened again when it is lost.

    All methods may be called from any thread and raise nothing. Where there is no store they answer as if nothing
    were stored; nothing waits for the store, except open(), for at most the option connect.
    """

    def __init__(self, who: str, found: SimpleNamespace) -> None:
        self.who = who
        self.options = found
        self._memory: List[Memory] = []
        self._block = found.block
        self._opened: Optional[Opened] = None
        self._kept: Optional[Tuple[ClientStore, Opened]] = None  # of a client of kvcl_serve, between its connections
        self._state = threading.Condition()
        self._thread: Optional[threading.Thread] = None
        self._tried = 0
        self._closing = False
        self._told: Set[Any] = set()
        self._texts: List[str] = []       # by which the engine introduces itself
        self._introduced = 0              # of them, in the present membership
        self._differs: Set[str] = set()   # lines that were logged

    # ---- opening ----

    def open(self, block: int = 0, memory: Sequence[Memory] = ()) -> bool:
        """Begin, and wait as long as the option connect says; whether the store is open. block: the bytes of a pool
        block where the option gives none. A second call only waits."""
        with self._state:
            if self._thread is None and not self._closing:
                self._block = self._block or block
                self._memory = list(memory)
                self._thread = threading.Thread(target=self._keep, name="kvcl-job", daemon=True)
                self._thread.start()
            self._state.wait_for(lambda: self._opened or self._tried or self._closing, self.options.connect)
            if self._opened is None and not self._tried and not self._closing:
                log.warning("%s: no store yet: the engine goes on without, and uses it once the ranks have met",
                            self.who)
            return self._opened is not None

    def introduce(self, fields: Fields, group: Any = "") -> None:
        """Tell the other engines of the store what decides the bytes of this one's blocks, and log in which fields it
        differs from all of them. group: only engines of equal groups could share blocks. Does not wait: the job's
        thread does it once the store is open, and again after each loss."""
        said = introduction(f"{self.who}/1", fields, [salt_mark(self.options.salt), group])
        with self._state:
            if said not in self._texts and len(self._texts) < TEXTS:
                self._texts.append(said)
                self._state.notify_all()

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    def _keep(self) -> None:
        before = False  # whether it was open
        while True:
            begun = time.monotonic()
            opened = self._try()
            with self._state:
                self._opened = opened
                self._tried += 1
                self._state.notify_all()
                if opened is None:
                    self._state.wait_for(lambda: self._closing, max(0.0, begun + AGAIN - time.monotonic()))
                else:
                    if self._tried > 1 or before:
                        log.warning("%s: the store is open", self.who)
                    self._told.clear()
                    self._tried, before = 0, True
            if opened is not None:
                self._stay(opened)
                if self._kept is None:
                    self._shut(opened.context)
            if self._closing:
                if self._kept is not None:
                    self._shut(self._kept[1].context)
                return

    def _stay(self, opened: Opened) -> None:
        """Introduce the engine, and look whether the store is lost, until the membership is given up."""
        self._introduced = 0
        while True:
            with self._state:
                self._state.wait_for(lambda: self._closing or self._opened is None or
                                     self._introduced < len(self._texts), AGAIN)
                if self._opened is not None and opened.store.closed and not self._closing:
                    self._give_up("its server has ended")  # no call has noticed: the engine is idle
                if self._closing or self._opened is None:
                    self._opened = None
                    return
                if self._introduced == len(self._texts):
                    continue
                text = self._texts[self._introduced]
            self._introduce(opened, text)
            self._introduced += 1

    def _introduce(self, opened: Opened, text: str) -> None:
        try:
            differs = explain(text, opened.introduce(text, opened.timeout))
        except Exception as error:  # calls notice a store that is lost
            return log.info("%s: what other engines of the store say is not known: %s", self.who, error)
        if differs is not None and differs not in self._differs:
            self._differs.add(differs)
            log.warning("%s: %s: %s", self.who, SAYS, differs)

    def _client(self) -> Opened:
        """A new connection to kvcl_serve. All of them use one context (ClientStore says why)."""
        o = self.options
        if self._kept is None:
            context = Context(boot="self", secret_file=o.secret_file)
            try:
                store = ClientStore(context, o.store, self._block, o.timeout)
                caches = {m.name: context.cache(m.name, m.layout, m.buffers) for m in self._memory}
            except BaseException:
                self._shut(context)
                raise
            self._kept = store, Opened(context, store, caches, o.timeout, store.introduce)
        store, opened = self._kept
        store.connect()
        return opened._replace()  # another object: calls know by it which connection they used

    def _try(self) -> Optional[Opened]:
        o = self.options
        context = None
        try:
            if o.store:
                return self._client()
            context = Context(boot="self" if is_alone(o) else None, rendezvous=o.rendezvous, rank=o.rank, size=o.size,
                              secret_file=o.secret_file)
            introduce: Callable[[str, float], List[str]] = lambda text, timeout: []
            if context.world.size > 1:
                introduce = Board(context).introduce
            store = Store(context.world, dram_bytes=o.pool, block_bytes=self._block if o.pool else 0,
                          replicas=o.replicas, nvme=o.nvme)
            caches = {m.name: context.cache(m.name, m.layout, m.buffers) for m in self._memory}
            return Opened(context, store, caches, o.timeout, introduce)
        except Exception as error:  # also a TypeError of an argument: it must not end the thread in silence
            status = getattr(error, "status", Status.ERR_INTERNAL)
            self.say(status, f"no store, so nothing is found and nothing is kept: {error}; it is tried again")
            if status == Status.ERR_AUTH and self._kept is not None:  # read the secret's file again
                context, self._kept = self._kept[1].context, None
            if context is not None:
                self._shut(context)
            return None

    def _shut(self, context: Context) -> None:
        """Close a context, and with it the store. Calls of other threads that still use it end by their timeout."""
        until = time.monotonic() + 2 * self.options.timeout
        while True:
            try:
                return context.close()
            except (KvclError, BufferError) as error:
                if not isinstance(error, Busy) or time.monotonic() > until:
                    return log.warning("%s: the context stays open: %s", self.who, error)
            time.sleep(0.05)

    def close(self) -> None:
        """Leave the job. Later calls answer as if nothing were stored."""
        with self._state:
            self._closing = True
            self._state.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(30.0)

    def say(self, kind: Any, text: str) -> None:
        """Log a failure, once of each kind until the store is opened again."""
        if kind not in self._told:
            self._told.add(kind)
            log.warning("%s: %s", self.who, text)

    # ---- calls ----

    def call(self, otherwise: T, body: Callable[[Opened], T], opened: Optional[Opened] = None) -> T:
        """body(opened), or `otherwise` without a store, or if body fails. opened: that of an earlier call."""
        opened = opened or self._opened
        if opened is None:
            return otherwise
        try:
            return body(opened)
        except KvclError as error:
            self.failed(opened, error)
        except Exception as error:  # an argument that is no buffer, for example
            self.say(type(error), f"a call failed: {error!r} (later failures of this kind are not logged)")
        return otherwise

    def failed(self, opened: Opened, error: KvclError) -> None:
        """Log a failure, once of each kind, and give up a membership that is of no more use."""
        with self._state:
            if opened is not self._opened:
                return
            if isinstance(error, (Shutdown, DeadHandle)) or _lost(opened):
                self._give_up(error)
            else:
                self.say(error.status, f"{error} (later failures of this kind are not logged)")

    def _give_up(self, why: Any) -> None:
        log.warning("%s: the store is lost: %s; it is opened again as soon as that is possible", self.who, why)
        self._opened = None
        self._state.notify_all()

    def arrived(self, opened: Opened, request: Union[Request[Any], Answer], n: int) -> List[bool]:
        """Wait for a get: which of n blocks or values have arrived. An absent one is no failure."""
        try:
            request.wait()
        except KvclError as error:
            each = request.block_status
            if each is None:
                raise
            if any(one not in (Status.OK, Status.ERR_NOT_FOUND) for one in each):
                self.failed(opened, error)
            return [one == Status.OK for one in each]
        return [True] * n

    # ---- values of any length ----

    def get_values(self, keys: Sequence[bytes], buffers: Sequence[Any]) -> List[bool]:
        """Which values have arrived in their buffers."""
        return self.call([False] * len(keys), lambda o: self.arrived(
            o, o.store.get_values(keys, buffers, timeout=o.timeout), len(keys)))

    def put_values(self, keys: Sequence[bytes], values: Sequence[Any], sizes: Sequence[int],
                   replicas: int = 0, replace: bool = False) -> List[bool]:
        """Which values are stored. sizes: their bytes. replicas: copies; 0: as many as the store makes. replace: those
        that are there are replaced."""
        done: List[bool] = []
        while len(done) < len(keys):
            first, end, total = len(done), len(done), 0
            while end < len(keys) and (end == first or total + sizes[end] <= LOT_BYTES):
                total += sizes[end]
                end += 1
            lot = slice(first, end)
            stored = self.call(False, lambda o: self._put(o, keys[lot], values[lot], replicas, replace))
            done += [stored] * (end - first)
        return done

    def _put(self, opened: Opened, keys: Sequence[bytes], values: Sequence[Any], replicas: int,
             replace: bool = False) -> bool:
        put = opened.store.upsert_values if replace else opened.store.put_values
        put(keys, values, replicas=replicas, timeout=opened.timeout).wait()
        return True

    def ask_values(self, keys: Sequence[bytes]) -> Tuple[bool, Callable[[], List[bool]]]:
        """Ask which keys name a value: whether the answer is there, and what waits for it and returns it. A value of a
        block's length is a block under its key; only where one is not there, or not at once, heads are asked for."""
        opened = self._opened
        blocks = self._ask(opened, keys)
        found = self._answer(opened, blocks, keys) if blocks is not None and blocks.done() else []
        if blocks is None or (found and all(found)):
            return True, lambda: found or [False] * len(keys)
        heads = self._ask(opened, value_keys(keys))

        def answer() -> List[bool]:
            return [a or b for a, b in zip(self._answer(opened, blocks, keys), self._answer(opened, heads, keys))]

        return blocks.done() and (heads is None or heads.done()), answer

    def _ask(self, opened: Optional[Opened], keys: Sequence[bytes]) -> Optional[Query]:
        return self.call(None, lambda o: o.store.exists_post(keys, timeout=o.timeout), opened)

    def _answer(self, opened: Optional[Opened], asked: Optional[Query],
                keys: Sequence[bytes]) -> List[bool]:
        absent = [False] * len(keys)
        if asked is None:
            return absent
        wait = asked.wait
        return self.call(absent, lambda o: wait(), opened)

    def has_values(self, keys: Sequence[bytes]) -> List[bool]:
        """Which keys name a value."""
        return self.ask_values(keys)[1]()

    def remove_values(self, keys: Sequence[bytes]) -> bool:
        """Remove values; whether they are gone."""
        def body(opened: Opened) -> bool:
            opened.store.remove_values(keys, timeout=opened.timeout)
            return True

        return self.call(False, body)

    def clear(self) -> Optional[int]:
        """Remove all blocks of the store, those of other programs too: how many copies; None: it has failed."""
        return self.call(None, lambda o: o.store.clear(timeout=o.timeout))

    # ---- blocks of the engine's memory ----

    def get_blocks(self, keys: Sequence[bytes], name: str, blocks: Sequence[int]) -> List[bool]:
        """Which blocks have arrived at their places in a memory of open()."""
        return self.call([False] * len(keys), lambda o: self.arrived(
            o, o.store.get(keys, o.caches[name], blocks, timeout=o.timeout), len(keys)))

    def put_blocks(self, keys: Sequence[bytes], name: str, blocks: Sequence[int], block_bytes: int) -> List[bool]:
        """Which blocks of a memory of open() are stored."""
        def body(opened: Opened) -> bool:
            opened.store.put(keys[at:at + lot], opened.caches[name], blocks[at:at + lot],
                             timeout=opened.timeout).wait()
            return True

        done: List[bool] = []
        lot = max(1, LOT_BYTES // block_bytes)
        for at in range(0, len(keys), lot):
            done += [self.call(False, body)] * len(keys[at:at + lot])
        return done

    def match(self, keys: Sequence[bytes]) -> int:
        """The number of leading keys that the store has."""
        return self.call(0, lambda o: o.store.match_post(keys, timeout=o.timeout).wait())

    def has_blocks(self, keys: Sequence[bytes]) -> List[bool]:
        """Which keys name a block."""
        return self.call([False] * len(keys), lambda o: o.store.exists_post(keys, timeout=o.timeout).wait())
