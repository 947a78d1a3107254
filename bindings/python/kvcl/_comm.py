"""Communicators and transfers over them."""

import array
import enum
from typing import Any, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from . import _kvcl
from ._cache import Cache
from ._mem import RemoteMem, Signal
from ._reduce import Kind, dtype_number, op_number
from ._request import Request
from ._transfer import Transfer, stream_handle

Range = Optional[Tuple[int, int]]


class RankState(enum.IntEnum):
    """What this rank knows of another."""

    UNKNOWN = 0  # not met yet
    ALIVE = 1
    SUSPECT = 2  # met, but it leaves a query of a store without an answer: other ranks are asked first
    FAILED = 3   # that process does not return; another one may join in its slot (KVCL_JOIN), and is ALIVE then


class RecvInfo(NamedTuple):
    """The bytes, source and tag of a completed recv."""

    source: int
    tag: int
    bytes: int


class MemoryInfo(NamedTuple):
    """A memory of another rank, and how gets and puts reach it: "loop", "mapped", "native" or "served"; "": without the
    right. why: by what it is native, or why it is served; put_why: the same of puts."""

    what: str  # "cache", or "memory": import_mem()
    name: str  # the cache's, "" if it is not known
    bytes: int
    get_path: str
    put_path: str
    why: str
    put_why: str


def _info(raw: Any) -> RecvInfo:
    return RecvInfo(*raw)


class Comm(_kvcl.Comm):
    """Ranks in order. ctx.world has all of the job.

    Where a method takes blocks it takes ids (a list, range, array or NumPy array, or one int), and, to move less than
    whole blocks, layers=(first, end), heads=(first, end) and tokens=(first, end), which counts along the list. The two
    sides' blocks may have different numbers of tokens if one divides the other.

    stream: a CUDA stream (torch.cuda.Stream, cupy.cuda.Stream, a handle). The operation begins when that stream has
    finished its earlier work: keys and values that it still computes are complete when they are sent, and blocks that
    it still reads are not overwritten.

    >>> import kvcl
    >>> with kvcl.Context(boot="self") as ctx:  # a rank alone is its own peer
    ...     cache = ctx.cache("main", kvcl.Layout.bytes(blocks=4, block_bytes=8))
    ...     cache.write(0, b"8 bytes.")
    ...     ctx.world.get(0, cache, remote=[0], local=[3]).wait()
    ...     cache.read(3)
    b'8 bytes.'
    """

    #: Of a communicator of Context.listen(): what others give to Context.connect().
    address: Optional[str] = None

    # ---- making others ----

    def split(self, color: Optional[int], key: int = 0, timeout: Optional[float] = None) -> Optional["Comm"]:
        """Collective: a communicator for each color, its ranks ordered by key, then rank. color None: in none."""
        return type(self)._split(self, color, key, timeout)

    def create(self, ranks: Iterable[int]) -> "Comm":
        """A communicator over some ranks, in this order. Its members call it with the same list; no message is sent."""
        return type(self)._create(self, tuple(ranks))

    def connect(self, address: Optional[str], timeout: Optional[float] = None) -> "Comm":
        """Join another job, started separately, that calls accept(). Collective on both sides.

        address: of the other side's rank 0 (Context.address), needed on this side's rank 0. Returns an
        inter-communicator, whose ranks are the other job's.
        """
        return type(self)._join(self, address, False, timeout)

    def accept(self, timeout: Optional[float] = None) -> "Comm":
        """The other half of connect(): wait for one job."""
        return type(self)._join(self, None, True, timeout)

    def disconnect(self, rank: int = 0) -> None:
        """Disconnect a rank of Context.listen()'s communicator, or rank 0 of Context.connect()'s.

        Both sides' later calls that name it raise RankFailed. close() disconnects all.
        """
        self._disconnect(rank)

    def rank_state(self, rank: int) -> RankState:
        """The state of a rank as this rank knows it. Sends nothing and does not block: a rank that has just died may
        still be ALIVE."""
        return RankState(self._rank_state(rank))

    # ---- going on after failures: with KVCL_VIEWS=yes ----

    def active(self) -> List[bool]:
        """Which ranks are members of the job's present view (Comm.view). Local."""
        return [byte != 0 for byte in self._active()[0]]

    def failed(self) -> List[int]:
        """The ranks that have failed, in the order in which this rank was told. Where another process has joined in a
        rank's slot, that rank is in it no longer. Local."""
        return self._failed()

    def ack_failed(self, n: int) -> int:
        """Acknowledge the first n of failed(), for agree(). Returns how many are acknowledged now."""
        return self._ack_failed(n)

    def agree(self, flags: int, timeout: Optional[float] = None) -> Tuple[int, bool]:
        """Collective over the living: the bits that all have set, and whether all failures are acknowledged by all.

        All get the same, whichever ranks die meanwhile. flags: a number of 64 bits; another one raises ValueError.
        """
        return self._agree(flags, timeout)

    def revoke(self) -> None:
        """End all operations of this communicator, on all ranks, with Revoked; agree and shrink go on working. One rank
        calls it, and waits for none."""
        self._revoke()

    def deactivate(self, ranks: Iterable[int], timeout: Optional[float] = None) -> Tuple[int, List[int]]:
        """Take living ranks, not this one, out of the job. Returns the number of the view without them, and those of
        them that were no members before. Blocks, for about KVCL_DEAD."""
        return self._deactivate(list(ranks), timeout)

    def activate(self, ranks: Iterable[int], timeout: Optional[float] = None) -> Tuple[int, List[int]]:
        """Processes that have joined in these slots, and wait (KVCL_JOIN_WAITS; an event WAITING told of them), become
        members. One member calls it. Returns the number of the view with them, and those of the ranks in whose slots no
        process waits, or has ended meanwhile. Blocks."""
        return self._activate(list(ranks), timeout)

    def waiting(self) -> List[bool]:
        """For each rank, whether its process waits until a member activates it (KVCL_JOIN_WAITS): those that events
        WAITING have named, except for those that have become members or ended since. Local, sends nothing. Raises
        Unsupported without KVCL_VIEWS."""
        return [byte != 0 for byte in self._waiting()]

    def sync(self, timeout: Optional[float] = None) -> Tuple[int, List[int]]:
        """Wait until this rank's view has all that this rank knows: failures, leavings, activations of its own; in a
        process that has joined, that a member has activated it. Returns the number of the view, and the ranks of this
        communicator that are no members. Local: the others need not call it."""
        return self._sync(timeout)

    def is_revoked(self) -> bool:
        """Was it revoked, as this rank knows?"""
        return self._is_revoked()

    def shrink(self, timeout: Optional[float] = None) -> "Comm":
        """Collective over the living: a communicator of those that are left, in their order."""
        return type(self)._shrink(self, timeout)

    def memory(self, rank: int) -> List[MemoryInfo]:
        """What was decided about each cache that a rank has described to this one (at the first transfer with it), and
        each memory imported from it. Connects if there is no connection. Blocks."""
        return [MemoryInfo(*row) for row in self._memory(rank)]

    # ---- two-sided ----

    def send(self, rank: int, tag: int, cache: Cache, blocks: Any, *, layers: Range = None, heads: Range = None,
             tokens: Range = None, layerwise: bool = False, timeout: Optional[float] = None,
             stream: Any = None) -> Request[None]:
        """Send blocks to the recv that names (this rank or ANY_SOURCE, tag). Done when the receiver has the bytes.

        layerwise: nothing of a layer is read before layer_ready(layer) on the request; the receiver's
        layer_wait(layer) returns when it has arrived.
        """
        return self._pass(Request(), False, rank, tag, cache, (blocks, layers, heads, tokens), layerwise, timeout,
                          stream_handle(stream))

    def recv(self, rank: int, tag: int, cache: Cache, blocks: Any, *, layers: Range = None, heads: Range = None,
             tokens: Range = None, timeout: Optional[float] = None, stream: Any = None) -> Request[RecvInfo]:
        """Receive blocks, as many bytes as the sender selected; tag may be ANY_TAG. The result is a RecvInfo."""
        request: Request[RecvInfo] = Request()
        request._shape = _info
        return self._pass(request, True, rank, tag, cache, (blocks, layers, heads, tokens), False, timeout,
                          stream_handle(stream))

    def send_bytes(self, rank: int, tag: int, data: Any, *, timeout: Optional[float] = None) -> Request[None]:
        """Send a buffer's bytes."""
        return self._pass_bytes(Request(), False, rank, tag, data, timeout)

    def recv_bytes(self, rank: int, tag: int, buffer: Any, *, timeout: Optional[float] = None) -> Request[RecvInfo]:
        """Receive at most as many bytes as the buffer has. The result is a RecvInfo. tag: of the send, or ANY_TAG."""
        request: Request[RecvInfo] = Request()
        request._shape = _info
        return self._pass_bytes(request, True, rank, tag, buffer, timeout)

    def probe(self, rank: int, tag: int, timeout: Optional[float] = 0) -> Optional[RecvInfo]:
        """A message from rank or ANY_SOURCE with this tag or ANY_TAG that no recv has matched: its source, tag and
        bytes. It stays: a recv takes it. None if there is none after timeout seconds; timeout None: wait for one.
        """
        raw = self._probe(rank, tag, timeout)
        return None if raw is None else RecvInfo(*raw)

    # ---- one-sided ----

    def get(self, rank: int, cache: Cache, remote: Any, local: Any, *, layers: Range = None, heads: Range = None,
            tokens: Range = None, remote_layers: Range = None, remote_heads: Range = None,
            remote_tokens: Range = None, remote_cache: Optional[str] = None,
            timeout: Optional[float] = None, stream: Any = None, notify: Optional[bytes] = None,
            background: bool = False) -> Request[None]:
        """Copy blocks `remote` of the rank's cache into blocks `local` of `cache`; its program takes no part.

        The peer's cache has the name of the local one, or remote_cache. Its layers and heads are numbered like the
        local ones, or given by remote_layers and remote_heads. tokens and remote_tokens select a range of each side's
        list; the default is the whole list. notify: the peer gets these bytes afterwards (notify_recv), here to learn
        that its blocks have been read. background: other transfers go first, where they compete.
        """
        theirs = (remote, layers if remote_layers is None else remote_layers,
                  heads if remote_heads is None else remote_heads, remote_tokens)
        return self._copy(Request(), False, rank, cache, (local, layers, heads, tokens), theirs, remote_cache, timeout,
                          stream_handle(stream), notify, background, None)

    def put(self, rank: int, cache: Cache, local: Any, remote: Any, *, layers: Range = None, heads: Range = None,
            tokens: Range = None, remote_layers: Range = None, remote_heads: Range = None,
            remote_tokens: Range = None, remote_cache: Optional[str] = None,
            timeout: Optional[float] = None, stream: Any = None, notify: Optional[bytes] = None,
            background: bool = False, signal: Signal = None) -> Request[None]:
        """Copy blocks `local` of `cache` into blocks `remote` of the rank's. Done when the peer can read them.

        signal: as RemoteMem.put().
        """
        theirs = (remote, layers if remote_layers is None else remote_layers,
                  heads if remote_heads is None else remote_heads, remote_tokens)
        return self._copy(Request(), True, rank, cache, (local, layers, heads, tokens), theirs, remote_cache, timeout,
                          stream_handle(stream), notify, background, signal)

    def prepare_get(self, rank: int, cache: Cache, *, layers: Range = None, heads: Range = None, tokens: Range = None,
                    remote_layers: Range = None, remote_heads: Range = None, remote_tokens: Range = None,
                    remote_cache: Optional[str] = None, timeout: Optional[float] = None,
                    background: bool = False) -> Transfer:
        """A get() that is posted many times, with other blocks each time (Transfer.post): its arguments are checked,
        and the peer's cache looked up, once."""
        theirs = (layers if remote_layers is None else remote_layers,
                  heads if remote_heads is None else remote_heads, remote_tokens)
        return Transfer._prepare(self, False, rank, cache, (layers, heads, tokens), theirs, remote_cache, timeout,
                                 background, None)

    def prepare_put(self, rank: int, cache: Cache, *, layers: Range = None, heads: Range = None, tokens: Range = None,
                    remote_layers: Range = None, remote_heads: Range = None, remote_tokens: Range = None,
                    remote_cache: Optional[str] = None, timeout: Optional[float] = None,
                    background: bool = False, signal: Signal = None) -> Transfer:
        """The same of a put(). The signal is that of every posting."""
        theirs = (layers if remote_layers is None else remote_layers,
                  heads if remote_heads is None else remote_heads, remote_tokens)
        return Transfer._prepare(self, True, rank, cache, (layers, heads, tokens), theirs, remote_cache, timeout,
                                 background, signal)

    def notify(self, rank: int, data: Any, *, timeout: Optional[float] = None) -> Request[None]:
        """Notify a rank without a get or put: these bytes (at most 8,192) for its notify_recv."""
        return self._notify(Request(), rank, data, timeout)

    def notify_recv(self, timeout: float = 0.0) -> Optional[Tuple[int, bytes]]:
        """Take the next notification: (source, bytes). None if none arrives within timeout seconds."""
        return self._notify_recv(timeout)

    def attach(self, rank: int, export: Any) -> RemoteMem:
        """A rank's memory, from the bytes of its Mem.export()."""
        return RemoteMem._import(self, rank, export)

    # ---- collective ----

    def bcast(self, root: int, cache: Cache, blocks: Any, *, layers: Range = None, heads: Range = None,
              timeout: Optional[float] = None) -> Request[None]:
        """Broadcast the root's blocks to every rank; each names its own cache and blocks."""
        return self._bcast(Request(), root, cache, (blocks, layers, heads, None), timeout)

    def bcast_bytes(self, root: int, buffer: Any, *, timeout: Optional[float] = None, stream: int = 0) -> Request[None]:
        """Broadcast the root's bytes to every rank; all buffers have one length."""
        given, taken = (buffer, None) if root == self.rank else (None, buffer)
        return self._collective(Request(), Kind.BCAST, root, given, taken, 0, 0, timeout, stream)

    def barrier(self, timeout: Optional[float] = None) -> None:
        """Wait until every rank has called it."""
        self.ibarrier(timeout=timeout).wait()

    def ibarrier(self, *, timeout: Optional[float] = None) -> Request[None]:
        """barrier() as a Request."""
        return self._collective(Request(), Kind.BARRIER, 0, None, None, 0, 0, timeout)

    def allgather(self, data: Any, timeout: Optional[float] = None) -> List[bytes]:
        """Every rank's data, in rank order. Equal lengths on all ranks."""
        return self.iallgather(data, timeout=timeout).wait()

    def iallgather(self, data: Any, *, timeout: Optional[float] = None) -> Request[List[bytes]]:
        """allgather() as a Request."""
        size = self.size
        request: Request[List[bytes]] = Request()

        def cut(raw: bytearray) -> List[bytes]:
            step = len(raw) // size
            return [bytes(raw[i * step:(i + 1) * step]) for i in range(size)]

        request._shape = cut
        return self._collective(request, Kind.ALLGATHER, 0, data, None, 0, 0, timeout)

    # Each returns a Request. Buffers have one length on all ranks; those with a part for each rank have the parts in
    # the order of ranks. op: "sum", "prod", "min", "max", and of integers "and", "or", "xor". dtype: the type of an
    # element ("f32", "bf16", "i64", ...), by default the buffer's own; a bytearray's is u8. Buffers may be a CUDA
    # device's on all ranks (by NCCL, or by the host: kvcl_coll.h); stream: the handle of a stream whose earlier work
    # comes first, as in get(); without it, synchronize before the call.

    def all_reduce(self, buffer: Any, op: str = "sum", *, out: Any = None, dtype: Optional[str] = None,
                   timeout: Optional[float] = None, stream: int = 0) -> Request[None]:
        """Reduce the elements of all ranks' buffers; every rank has the same result, bit by bit, in out (None: in the
        buffer itself)."""
        return self._collective(Request(), Kind.ALLREDUCE, 0, None if out is None else buffer,
                                buffer if out is None else out, dtype_number(buffer, dtype), op_number(op), timeout,
                                stream)

    def reduce_scatter(self, buffer: Any, out: Any, op: str = "sum", *, dtype: Optional[str] = None,
                       timeout: Optional[float] = None, stream: int = 0) -> Request[None]:
        """Reduce as all_reduce(); this rank gets its part of the result, size times shorter than the buffer, in out."""
        return self._collective(Request(), Kind.REDUCE_SCATTER, 0, buffer, out, dtype_number(buffer, dtype),
                                op_number(op), timeout, stream)

    def all_to_all(self, buffer: Any, out: Any, *, lengths: Optional[Sequence[int]] = None,
                   out_lengths: Optional[Sequence[int]] = None, timeout: Optional[float] = None,
                   stream: int = 0) -> Request[None]:
        """Give each rank its part of the buffer; out gets each rank's part for this one.

        lengths and out_lengths, both or none: the bytes for and from each rank, where they are not all equal.
        """
        if (lengths is None) != (out_lengths is None):
            raise ValueError("all_to_all: give lengths and out_lengths, or neither")
        if lengths is not None and out_lengths is not None:
            return self._exchange(Request(), buffer, array.array("Q", lengths), out, array.array("Q", out_lengths),
                                  timeout, stream)
        return self._collective(Request(), Kind.ALLTOALL, 0, buffer, out, 0, 0, timeout, stream)

    def exchange(self, given: Sequence[Any], taken: Sequence[Any], *, timeout: Optional[float] = None) -> Request[None]:
        """all_to_all() of one buffer of the host for each rank, or None: given[r] goes to rank r, taken[r] gets what
        that gives, of the same length. Buffers of given may overlap. No byte is copied to put them together."""
        return self._exchange_parts(Request(), tuple(given), tuple(taken), timeout)

    def all_gather_into(self, buffer: Any, out: Any, *, timeout: Optional[float] = None,
                        stream: int = 0) -> Request[None]:
        """Every rank's buffer, in out."""
        return self._collective(Request(), Kind.ALLGATHER, 0, buffer, out, 0, 0, timeout, stream)

    def gather(self, root: int, buffer: Any, out: Any = None, *, timeout: Optional[float] = None,
               stream: int = 0) -> Request[None]:
        """Every rank's buffer, in the root's out; others give none."""
        return self._collective(Request(), Kind.GATHER, root, buffer, out, 0, 0, timeout, stream)

    def scatter(self, root: int, buffer: Any, out: Any, *, timeout: Optional[float] = None,
                stream: int = 0) -> Request[None]:
        """This rank's part of the root's buffer, in out; the others' buffer is None."""
        return self._collective(Request(), Kind.SCATTER, root, buffer, out, 0, 0, timeout, stream)

    def __enter__(self) -> "Comm":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return "<kvcl.Comm, closed>"
        return f"<kvcl.Comm: {'remote side of ' if self.is_inter else ''}{self.size} ranks, I am {self.rank}>"
