"""Placement of requests on instances: a prefix index, fed by the events of engines and stores, and a scheduler. They
need no Context, so any gateway can use them. include/kvcl/kvcl_sched_index.h and kvcl_sched.h define terms and rules.

    >>> import kvcl
    >>> from kvcl import sched
    >>> index = sched.Index()
    >>> engines = [index.source(f"engine {i}", instance=i, model="m") for i in range(2)]
    >>> keys = kvcl.key_chain(sched.root(model="m"), range(64), 16)
    >>> index.add(engines[1], keys[:3], tier=kvcl.Tier.CACHE)
    >>> index.match(keys)
    [Hold(instance=1, first=0, blocks=3, tier=<Tier.CACHE: 0>, pending=False)]
    >>> scheduler = sched.Scheduler("prefill=global", models=[MODEL])
    >>> request = sched.Request(tokens=64, block_tokens=16)
    >>> insts = [sched.Instance(id=0, queue=0.5), sched.Instance(id=1)]
    >>> decision = scheduler.decide(request, keys, insts, index.match(keys), now=0.0)
    >>> decision.verdict.name, decision.prefill, decision.there_tokens, decision.compute_tokens
    ('GO', 1, 48, 16)

Times are seconds, on any clock of the caller that does not run backwards. Many threads may use an Index, whose match()
takes no lock. One thread at a time may use a Scheduler.
"""

import enum
import itertools
from typing import Any, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _kvcl
from ._store_events import StoreEvent, StoreItem, Tier, known

__all__ = ["Decision", "Feed", "Hold", "Index", "IndexStats", "Instance", "Measured", "ModelInfo", "Plan", "Policy",
           "Reason", "Request", "Role", "Run", "Scheduler", "SourceInfo", "State", "Times", "Verdict", "Waiting",
           "model", "policies", "root", "times"]

NONE = 0xffffffff  # no instance
Model = Union[str, Tuple[str, str]]  # a file, a shipped model's name, or (name, text)

#: A model for examples: numbers without a source.
MODEL: Model = ("example", "kvcl-model 1\nname example\nsource made up\nprefill 0.01 1e-4 1e-9 1e-7\n"
                           "decode 0.02 1e-4 1e-8\nkv_bytes 1e5\nnic 1e10\nload 1e11\n")


class Feed(enum.IntEnum):
    """The kind of a source's events."""

    KEYS = 0      # add() and remove()
    STORE = 1     # store_events() and store_list()
    VLLM = 2      # feed()
    SGLANG = 3
    MOONCAKE = 4


class State(enum.IntEnum):
    """The state of a source."""

    EXACT = 1
    DEGRADED = 2  # events are missing


class Role(enum.IntFlag):
    """The work of an instance; 0: it only holds blocks."""

    PREFILL = 1
    DECODE = 2
    BOTH = 3


class Verdict(enum.IntEnum):
    """The decision about a request."""

    GO = 1
    WAIT = 2    # decide again after decision.retry
    REFUSE = 3  # answer the client with decision.retry


class Reason(enum.IntEnum):
    """The reason of a decision (kvcl_sched_reason_t)."""

    BEST = 0
    ONLY = 1
    FALLBACK = 2      # least load, because predicted times are missing
    NO_CANDIDATE = 3  # no instance takes requests
    TTFT = 4          # the first token would miss its deadline
    TBT = 5
    PREFILL_LOAD = 6
    DECODE_LOAD = 7
    NO_ROOM = 8       # its KV fits into no decode instance
    WORTH = 9         # it is worth less than what it takes from others
    LATE = 10
    STALE = 11        # least load, because the reports of most instances are old (the key stale of a prefill policy)


class Plan(enum.IntEnum):
    """How an instance gets a run of blocks."""

    THERE = 1      # it has them
    FETCH = 2      # from another instance
    COMPUTE = 3
    REPLICATE = 4  # a copy for other instances, beside the request


class Hold(NamedTuple):
    """A run of a prompt's blocks that an instance holds."""

    instance: int
    first: int
    blocks: int
    tier: Union[Tier, int]
    pending: bool  # predicted: not there yet


class SourceInfo(NamedTuple):
    """A source and its counters (kvcl_sched_source_info_t)."""

    instance: int
    state: State
    next: int  # number of the next message, or of the first missing one
    blocks: int
    messages: int
    stored: int
    removed: int
    gaps: int
    lost: int
    repeated: int
    restarts: int
    cleared: int
    malformed: int
    unknown: int
    orphans: int
    others: int
    full: int


class IndexStats(NamedTuple):
    """An index in numbers (kvcl_sched_index_stats_t)."""

    instances: int
    sources: int
    degraded: int
    blocks: int
    holders: int
    predicted: int
    bytes: int
    retired: int


def root(salt: bytes = b"", model: str = "", lora: Optional[str] = None, tenant: Optional[str] = None,
         extra: Optional[str] = None, group: int = 0) -> bytes:
    """The root of a prompt's keys, for key_chain(): of a source's salt and model, and a request's adapter, tenant, salt
    and group.

    >>> import kvcl
    >>> root(b"salt", "m") == kvcl.key_root(b"salt", "m")
    True
    >>> root(b"salt", "m", lora="adapter") == root(b"salt", "m")
    False
    """
    return _kvcl.sched_root(salt, model, lora, tenant, extra, group)


class Index(_kvcl.SchedIndex):
    """Which instance holds which blocks on which tier, from the events of sources.

    max_instances, max_blocks: limits; 0 is the library's default. predict_seconds: life time of a predicted block.

    >>> import kvcl
    >>> index = Index(predict_seconds=2)
    >>> vllm = index.source("vllm-0", instance=0, feed=Feed.VLLM, model="m", block_tokens=4)
    >>> payload = bytes.fromhex("920091" "97ab426c6f636b53746f726564" "910a" "c0" "9401020304" "04" "c0" "a3475055")
    >>> index.feed(vllm, [b"topic", (0).to_bytes(8, "big"), payload])
    <State.EXACT: 1>
    >>> [hold.blocks for hold in index.match(kvcl.key_chain(root(model="m"), [1, 2, 3, 4, 5], 4))]
    [1]
    >>> index.feed(vllm, [b"topic", (7).to_bytes(8, "big"), payload]), index.replay_request(vllm)[-1]
    (<State.DEGRADED: 2>, 1)
    """

    def __new__(cls, max_instances: int = 0, max_blocks: int = 0, predict_seconds: float = 0) -> "Index":
        return super().__new__(cls, max_instances, max_blocks, round(predict_seconds * 1e9))

    def __enter__(self) -> "Index":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def source(self, name: str, instance: int, feed: Feed = Feed.KEYS, *, tiers: Iterable[Tier] = (), salt: bytes = b"",
               model: Optional[str] = None, block_tokens: int = 0, dp_rank: Optional[int] = None, max_blocks: int = 0,
               only_model: Optional[str] = None, only_tenant: Optional[str] = None, only_backend: Optional[str] = None,
               skips: bool = False) -> int:
        """Add a source of events about an instance, and return the source's number.

        tiers: the tiers of its events; none: all. salt and model: of its keys. block_tokens, dp_rank, only_...: events
        that differ are ignored, and counted. skips: a tenant's handle reads the store's events, so numbers are missing.
        """
        mask = 0
        for tier in tiers:
            mask |= 1 << tier
        flags = (0 if dp_rank is None else 1) | (2 if skips else 0)
        return self._source((flags, instance, feed, mask, block_tokens, dp_rank or 0, max_blocks), name, model, salt,
                            only_model, only_tenant, only_backend)

    def info(self, source: int) -> SourceInfo:
        """A source's state and counters."""
        raw = self._info(source)
        return SourceInfo(raw[0], State(raw[1]), *raw[2:])

    def stats(self) -> IndexStats:
        """The index in numbers."""
        return IndexStats(*self._stats())

    def add(self, source: int, keys: Any, tier: int = Tier.DRAM) -> None:
        """Tell that the source's instance holds these blocks on a tier."""
        self._change(source, tier, keys, True)

    def remove(self, source: int, keys: Any, tier: int = Tier.DRAM) -> None:
        """Tell that the source's instance holds these blocks on a tier no more."""
        self._change(source, tier, keys, False)

    def feed(self, source: int, frames: Sequence[Any], replayed: bool = False) -> State:
        """Read one message of an engine (frames: topic, number, payload) or of Mooncake (one frame of JSON).
        Returns the state: if it is DEGRADED, send replay_request() to the publisher and feed the answers with
        replayed=True, the end marker too. ProtocolError: the message cannot be read; the source is DEGRADED."""
        return State(self._feed(source, frames, replayed))

    def store_events(self, source: int, events: Sequence[StoreEvent]) -> State:
        """Read events of a store's rank (Store.events). Returns the state: if DEGRADED, call store_list()."""
        return State(self._store_events(source, [event[:6] + (None,) for event in events]))

    def store_list(self, source: int, items: Iterable[StoreItem], seq: int) -> None:
        """Read all blocks of a store's rank (Store.items). seq: of its newest event before they were listed."""
        self._store_list(source, 0, [], 1, 0)
        for tier, group in itertools.groupby(items, key=lambda item: item.tier):
            self._store_list(source, tier, [item.key for item in group], 0, 0)
        self._store_list(source, 0, [], 2, seq)

    def predict(self, instance: int, keys: Any, now: float) -> None:
        """Tell that a request with these blocks was sent to an instance: they are pending for predict_seconds."""
        self._predict(instance, keys, round(now * 1e9))

    def expire(self, now: float) -> None:
        """Drop the predictions that are older than predict_seconds."""
        self._expire(round(now * 1e9))

    def match(self, keys: Any, *, everywhere: bool = False, least: int = 0) -> List[Hold]:
        """The leading runs of a prompt's blocks that instances hold. everywhere: also runs that begin later. least:
        runs that end before this block are left out."""
        return [Hold(instance, first, blocks, known(Tier, tier), flags != 0)
                for instance, first, blocks, tier, flags in self._match(keys, 1 if everywhere else 0, least)]


# ---- decisions ----

class Instance(NamedTuple):
    """An instance as last reported (kvcl_sched_inst_t); unknown numbers are 0."""

    id: int
    role: int = Role.BOTH
    draining: bool = False
    model: int = 0  # index into the scheduler's models
    age: float = 0  # seconds since it was reported
    queue: float = 0  # predicted seconds until it could begin one more prefill
    prefills: int = 0
    waiting: int = 0
    queued_tokens: int = 0
    running: int = 0
    pending: int = 0
    context_tokens: int = 0
    pending_tokens: int = 0
    kv_free: int = 0
    kv_total: int = 0
    host: int = 0
    rack: int = 0
    net: int = 0
    nic: float = 0  # bytes a second
    sends: int = 0
    recvs: int = 0
    send_bytes: float = 0
    recv_bytes: float = 0
    past: float = 0


class Request(NamedTuple):
    """A request (kvcl_sched_req_t)."""

    tokens: int
    block_tokens: int = 0
    id: int = 0
    dry: bool = False  # decide() leaves the scheduler as it is
    klass: int = 0
    tries: int = 0
    output_tokens: int = 0
    output_max: int = 0
    weight: float = 0
    ttft: float = 0  # deadline, from arrival; 0: none
    tbt: float = 0
    arrival: float = 0
    session: int = 0
    kv_bytes: float = 0


class Times(NamedTuple):
    """The parts of a predicted time to the first token."""

    waited: float
    queue: float
    fetch: float
    prefill: float
    handover: float
    load: float
    ttft: float   # the sum; negative: not known
    error: float  # relative; negative: not known


class Run(NamedTuple):
    """A run of blocks in a decision."""

    first: int
    blocks: int
    plan: Union[Plan, int]
    tier: Union[Tier, int]
    keep: bool
    source: Optional[int]    # the instance that sends it
    others: Tuple[int, ...]  # FETCH: other instances that hold it; REPLICATE: those that get it


class Decision(NamedTuple):
    """The decision about a request (kvcl_sched_decision_t); None: no instance."""

    verdict: Union[Verdict, int]
    reason: Union[Reason, int]
    retry: float
    prefill: Optional[int]
    decode: Optional[int]
    tbt: float
    tbt_error: float
    busy: float  # add it to the prefill instance's queue
    score: float
    runner_up: Optional[int]
    left_out: int
    runner_score: float
    there_tokens: int
    fetch_tokens: int
    compute_tokens: int
    output_tokens: int
    times: Times
    runner_times: Times
    runs: List[Run]
    text: str  # the decision in words
    stale: int  # instances that take requests, and whose report is old


class Waiting(NamedTuple):
    """A prefill that waits at an instance (kvcl_sched_waiting_t)."""

    id: int
    arrival: float = 0
    deadline: float = 0
    prefill: float = 0
    error: float = -1
    ready: float = 0
    weight: float = 0
    tokens: int = 0


class Measured(NamedTuple):
    """Measurements of a request (kvcl_sched_measured_t); 0: not measured."""

    id: int = 0
    prefill: int = NONE
    decode: int = NONE
    klass: int = 0
    tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    prefill_seconds: float = 0
    fetch_seconds: float = 0
    fetch_bytes: float = 0
    ttft: float = 0
    ttft_guess: float = 0
    tbt: float = 0
    batch: float = 0
    context: float = 0


class Policy(NamedTuple):
    """A policy of the table."""

    name: str
    kind: str  # "prefill", "decode", "admit", "queue"
    desc: str
    source: Optional[str]


class ModelInfo(NamedTuple):
    """A model of an engine's speed; errors are relative, and negative if not known."""

    name: str
    source: str
    prefill_error: float
    decode_error: float
    transfer_error: float
    kv_bytes: float  # of a token


def _model(which: Model) -> Tuple[str, ...]:
    return (which,) if isinstance(which, str) else tuple(which)


def policies() -> List[Policy]:
    """The policies that a Scheduler knows.

    >>> {"prefill", "decode", "admit", "queue"} == {policy.kind for policy in policies()}
    True
    """
    return [Policy(*row) for row in _kvcl.sched_policies()]


def model(which: Model) -> ModelInfo:
    """A model: of a file, a shipped model's name, or (name, text).

    >>> model(MODEL).name
    'example'
    """
    return ModelInfo(*_kvcl.sched_model(_model(which)))


def times(which: Model, tokens: float, cached: float = 0, batch: float = 1,
          context: float = 0) -> Tuple[Tuple[float, float], Tuple[float, float]]:
    """The predictions of a model: (seconds, relative error) of a prefill of so many tokens, `cached` of which are there
    already, and of one decode step. Negative: not known.

    >>> round(times(MODEL, 1000)[0][0], 3)
    0.111
    """
    return _kvcl.sched_times(_model(which), tokens, cached, batch, context)


def _instance(number: int) -> Optional[int]:
    return None if number == NONE else number


def _run(raw: Any) -> Run:
    (first, blocks, plan, tier, flags, source), others = raw
    return Run(first, blocks, known(Plan, plan), known(Tier, tier), flags != 0, _instance(source), others)


def _decision(raw: Any) -> Decision:
    numbers, times, runner_times, runs, text = raw
    (verdict, reason, retry, prefill, decode, tbt, tbt_error, busy, score, runner_up, left_out, runner_score, there,
     fetch, compute, output, stale) = numbers
    return Decision(known(Verdict, verdict), known(Reason, reason), retry, _instance(prefill), _instance(decode), tbt,
                    tbt_error, busy, score, _instance(runner_up), left_out, runner_score, there, fetch, compute, output,
                    Times(*times), Times(*runner_times), [_run(run) for run in runs], text, stale)


def _holds(holds: Iterable[Hold]) -> List[Tuple[int, ...]]:
    return [(hold.instance, hold.first, hold.blocks, int(hold.tier), int(hold.pending)) for hold in holds]


def _instances(instances: Iterable[Instance]) -> List[Tuple[Any, ...]]:
    return [tuple(instance) for instance in instances]


class Scheduler(_kvcl.Sched):
    """Decides which instances run a request. policy: "prefill=NAME,decode=NAME,admit=NAME,queue=NAME"; policies() lists
    the names. models: of instances' speed.

    >>> scheduler = Scheduler("prefill=local,queue=fcfs", models=[MODEL])
    >>> scheduler.order([Waiting(id=7, arrival=2.0), Waiting(id=8, arrival=1.0)], now=3.0)
    (1, [])
    """

    def __new__(cls, policy: str = "", models: Sequence[Model] = (), seed: int = 0, max_instances: int = 0,
                max_requests: int = 0, max_blocks: int = 0, max_holds: int = 0) -> "Scheduler":
        return super().__new__(cls, policy, tuple(_model(which) for which in models),
                               (seed, max_instances, max_requests, max_blocks, max_holds))

    def __enter__(self) -> "Scheduler":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def decide(self, request: Request, keys: Any, instances: Iterable[Instance], holds: Iterable[Hold],
               now: float) -> Decision:
        """Decide about a request. keys: of its blocks, or their number. holds: of Index.match()."""
        return _decision(self._decide(now, tuple(request), keys, _instances(instances), _holds(holds)))

    def decode(self, request: Request, keys: Any, prefill: int, decode: int, instances: Iterable[Instance],
               now: float) -> Decision:
        """Decide about the decode instance again, after the prefill."""
        return _decision(self._decode(now, tuple(request), keys, prefill, decode, _instances(instances)))

    def order(self, waiting: Iterable[Waiting], now: float) -> Tuple[Optional[int], List[int]]:
        """Of the prefills that wait at an instance: the index of the next, and the indices of those to refuse."""
        return self._order(now, [tuple(one) for one in waiting])

    def prefill_done(self, measured: Measured, now: float) -> None:
        """Tell that a prefill has ended."""
        self._measured(0, now, tuple(measured))

    def first_token(self, measured: Measured, now: float) -> None:
        """Tell that the first token of a request was sent."""
        self._measured(1, now, tuple(measured))

    def finished(self, measured: Measured, now: float) -> None:
        """Tell that a request has ended, complete or not."""
        self._measured(2, now, tuple(measured))

    def gone(self, instance: int, now: float) -> None:
        """Tell that an instance has left."""
        self._gone(now, instance)
