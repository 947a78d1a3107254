"""The context: this process's membership in a job."""

import atexit
import sys
import weakref
from typing import Any, AsyncIterator, Optional

from . import _kvcl
from ._cache import Cache, Layout
from ._comm import Comm
from ._errors import KvclError
from ._mem import Mem
from ._oob import adapt
from ._request import Request
from ._transfer import stream_handle
from ._views import ViewEvent, follow, taken

ANY_SOURCE = _kvcl.ANY_SOURCE
ANY_TAG = _kvcl.ANY_TAG

_open: "weakref.WeakSet[Context]" = weakref.WeakSet()


class Context(_kvcl.Context):
    """Join the job: under mpirun or srun, by a rendezvous address, or alone. A process may have several.

    boot: "auto", "pmix", "tcp", "join", "self". rendezvous: "tcp://host:port", with rank (None: assigned) and size. A
    process that joins a running job (KVCL_JOIN) needs no size: it asks for the slot rank, or takes a free one.
    oob: the caller's own store, for processes that are connected already; rank and size are needed with it. It is a
    dict-like object that all ranks share, a torch.distributed Store (anything with set(key, bytes) and a get(key) that
    waits for the key), or three functions (set, get, fence).
    path: "auto", "shm", "tcp", "rdma", "loop". Without a progress thread, operations move only inside calls that wait
    and in progress().

    Arguments that are not given are taken from the KVCL_* variables. Use it in a with statement, or close() it: that
    cancels all operations in flight and closes all objects created from it.

    >>> import kvcl
    >>> with kvcl.Context(boot="self") as ctx:
    ...     ctx.rank, ctx.size
    (0, 1)
    """

    _world: Optional[Comm] = None

    def __new__(cls, *, boot: Optional[str] = None, rendezvous: Optional[str] = None, rank: Optional[int] = None,
                size: Optional[int] = None, oob: Any = None, secret_file: Optional[str] = None,
                path: Optional[str] = None, progress_thread: bool = True) -> "Context":
        functions = None
        if oob is not None:
            if rank is None or size is None:
                raise ValueError("with oob, rank and size are needed")
            functions = adapt(oob, rank, size)
        self = cls._open(boot, rendezvous, -1 if rank is None else rank, 0 if size is None else size, secret_file,
                         path, progress_thread, functions)
        _open.add(self)
        return self

    def close(self) -> None:
        """Leave the job. Peers that still read this rank's memory fail: a job that cares calls world.barrier() first.

        BufferError while a view of the library's memory exists (a slice of Cache.bases, a NumPy array of it).
        """
        self._close()

    def leave(self, timeout: Optional[float] = None) -> None:
        """Leave the job's views, so that the others learn of no failure (KVCL_VIEWS): first what only this rank has is
        handed over, then a view without it comes, after about KVCL_DEAD. Close the context afterwards. Blocks. Raises
        RankFailed in a process that waits to become a member: close() ends that."""
        self._leave(timeout)

    def join_address(self) -> Optional[str]:
        """host:port for the KVCL_JOIN of processes that join the job through this rank; None without KVCL_JOIN_AT."""
        return self._join_address()

    @property
    def world(self) -> Comm:
        """All ranks of the job."""
        if self._world is None or self._world.closed:
            self._world = Comm._world(self)
        return self._world

    @property
    def rank(self) -> int:
        """This rank in the job."""
        return self.world.rank

    @property
    def size(self) -> int:
        """The number of ranks of the job."""
        return self.world.size

    @property
    def address(self) -> str:
        """This context's address, for jobs started separately: pass it to Comm.connect() of the other job."""
        return self._address()

    def listen(self, at: Optional[str] = None) -> Comm:
        """Let other contexts connect() to this one, without a call here when they do.

        Each that connects is the next rank, from 0, of the communicator that is returned; its .address is what they
        connect to. at: "host:port", port 0: a free one; None: no port is opened, and they need this context's .address.
        notify_recv() on it serves all of them. All need the same secret_file. Close the communicator to stop.
        """
        comm, address = Comm._listen(self, at)
        comm.address = address
        return comm

    def connect(self, address: str, timeout: Optional[float] = None) -> Comm:
        """A communicator with a context that listens, which is its rank 0. Close it to disconnect."""
        return Comm._reach(self, address, timeout)

    def connect_post(self, address: str, timeout: Optional[float] = None) -> "Request[Comm]":
        """connect() without its wait: a Request whose result is the communicator. Many may run at a time.

        A Request that is canceled, or dropped before it has ended, closes its communicator.
        """
        request: Request[Comm] = Request()
        return Comm._reach_post(request, self.world, address, timeout)

    def stream_done(self, stream: Any, timeout: Optional[float] = None) -> "Request[None]":
        """A Request that completes when a CUDA stream (as in Comm.get()) has done what it was given before."""
        return self.world._stream_done(Request(), stream_handle(stream), timeout)

    def cache(self, name: str, layout: Layout, buffers: Any = None, *, writable: bool = False) -> Cache:
        """A Cache over buffers, or over memory of the library. writable: peers may put into it."""
        return Cache(self, name, layout, buffers, writable=writable)

    def register(self, buffer: Any) -> Mem:
        """Register a writable buffer, which the Mem keeps alive."""
        return Mem._register(self, buffer)

    def alloc(self, size: int, *, huge: bool = False, numa_node: Optional[int] = None) -> Mem:
        """Zeroed memory from the library, which peers on this host map."""
        return Mem._alloc(self, size, huge, numa_node)

    def map_file(self, path: Any, offset: int = 0, length: int = 0) -> Mem:
        """A file's bytes, mapped and registered; length 0: to its end."""
        return Mem._file(self, path, offset, length)

    # ---- views: with KVCL_VIEWS=yes ----

    def event(self) -> Optional[ViewEvent]:
        """The oldest event of the views that was not taken yet, or None. Does not block."""
        return taken(self._event())

    def event_fileno(self) -> int:
        """A descriptor that is readable while there is an event(), for poll. Never read from it."""
        return self._event_fd()

    def events(self) -> AsyncIterator[ViewEvent]:
        """Events as they come: `async for event in ctx.events()`. One task at a time; cancel it before close()."""
        return follow(self)

    def phase(self, warm_up: bool) -> None:
        """Tell the others that this process may be stopped for KVCL_WARM (a debugger, a frozen container); False: that
        it serves again. Busy Python code, also with the GIL, needs no such word: a thread of the library beats."""
        self._phase(warm_up)

    def __enter__(self) -> "Context":
        return self

    def __exit__(self, kind: Any, error: Any, tb: Any) -> None:
        try:
            self.close()
        except (BufferError, KvclError) as failed:
            if error is None:
                raise
            # The body's exception matters more; its traceback may hold the views.
            print(f"kvcl: the context stays open until exit: {failed}", file=sys.stderr)

    def __repr__(self) -> str:
        return "<kvcl.Context, closed>" if self.closed else f"<kvcl.Context: rank {self.rank} of {self.size}>"


@atexit.register
def _leave() -> None:
    for context in list(_open):
        context._abandon()
