"""Requests: operations in flight. Wait for them by wait(), asyncio, or one file descriptor."""

import asyncio
import contextlib
import os
import time
import weakref
from typing import (Any, Callable, Dict, Generator, Generic, Iterable, Iterator, List, Optional, Sequence, Tuple,
                    TypeVar, cast)

from . import _kvcl
from ._errors import InProgress, Status

T = TypeVar("T")
_BUSY = 0.001  # seconds between looks at a request that another thread is inside the library with


class Request(_kvcl.Request, Generic[T]):
    """An operation in flight, from the call that posted it.

    Call wait() or done(), or await it. wait(), result() and await return its result, of the type in brackets (of a recv
    a RecvInfo: Request[RecvInfo]; of most others None), or raise if the operation failed.

    A Request dropped while in flight is detached: the operation continues, at most until its own deadline, and its
    buffers are kept alive until then. Use it as a context manager to be sure that it is not in flight afterwards:
    leaving cancels an incomplete operation, and waits.

    >>> import asyncio, kvcl
    >>> async def echo(world: kvcl.Comm) -> kvcl.RecvInfo:
    ...     received = world.recv_bytes(0, 1, bytearray(5))
    ...     await world.send_bytes(0, 1, b"hello")
    ...     return await received
    >>> with kvcl.Context(boot="self") as ctx:
    ...     asyncio.run(echo(ctx.world))
    RecvInfo(source=0, tag=1, bytes=5)
    """

    _shape: Optional[Callable[[Any], T]] = None  # converts the raw result for users

    def wait(self, timeout: Optional[float] = None) -> T:
        """Wait, at most timeout seconds, without the GIL. Returns the result.

        Raises WaitTimeout (a TimeoutError) if it has not completed: it continues. TimedOut is final: the operation's
        own deadline passed. After Ctrl-C it continues as well.
        """
        return self._out(self._wait(timeout))

    def result(self) -> T:
        """The result of a completed request; InProgress if it has not completed."""
        return self._out(self._result())

    def layer_wait(self, layer: int, timeout: Optional[float] = None) -> None:
        """Of a recv, or of Store.get_part(layerwise=True): wait, at most timeout seconds, without the GIL, until this
        layer (as the local cache counts) has arrived. WaitTimeout if it has not: the request continues. Raises the
        request's error if it has failed. If the send was not layerwise, all layers arrive when the request completes.
        """
        self._layer_wait(layer, timeout)

    def layer_test(self, layer: int) -> bool:
        """Whether this layer has arrived; raises the request's error if it has failed."""
        return bool(self._layer_test(layer))

    async def layer(self, layer: int) -> None:
        """layer_wait() for asyncio: `await request.layer(3)`. A task that is canceled here stops waiting; the request
        continues."""
        context = self._context
        if context is None or context._threadless:
            while not self.layer_test(layer):
                await asyncio.sleep(0)
            return
        await _until_layer(self, layer, context)

    def test(self) -> bool:
        """Whether it has completed; raises if it failed."""
        if not self.done():
            return False
        self._result()
        return True

    @property
    def status(self) -> Status:
        """INPROGRESS, or the final status. Does not progress the operation: done() does."""
        return Status(self._status)

    @property
    def block_status(self) -> Optional[List[Status]]:
        """A status for each block, of operations that move blocks by get, put or a store; None before completion."""
        numbers = self._statuses()
        return None if numbers is None else [Status(n) for n in memoryview(numbers).cast("i")]

    @property
    def copies(self) -> Optional[List[int]]:
        """Of a put into a store: the number of copies of each block; None before completion."""
        copies = self._copies()
        return None if copies is None else list(copies)

    def _out(self, raw: Any) -> T:
        return cast(T, raw) if self._shape is None else self._shape(raw)

    def __enter__(self) -> "Request[T]":
        return self

    def __exit__(self, *exc: Any) -> None:
        if not self.done():
            self.cancel()
            try:
                self._wait(None)
            except Exception:  # Canceled, usually: no caller waits any longer
                pass

    def __await__(self) -> Generator[Any, None, T]:
        if not self.done():
            context = self._context
            if context is not None and context._threadless:
                while not self.done():
                    yield
            else:
                yield from _until_done(self)
        return self.result()

    def __repr__(self) -> str:
        return f"<kvcl.Request {self.status.name}>"


# ---- asyncio ----
#
# All awaited requests of a context share its descriptor. The loop that arms it checks all of them, also those of
# other threads' loops, since arming clears the event for the other loops.


class _Awaited:
    def __init__(self) -> None:
        self.requests: "Dict[Request[Any], None]" = {}
        self.layers: Dict[Callable[[], None], None] = {}  # each looks whether its layer has arrived
        self.loops: "Dict[asyncio.AbstractEventLoop, int]" = {}


_awaited: "weakref.WeakKeyDictionary[Any, _Awaited]" = weakref.WeakKeyDictionary()


def _wake(awaited: _Awaited, context: _kvcl.Context) -> None:
    while not context._arm():
        for request in list(awaited.requests):
            request.done()  # runs _when_done callbacks
        for look in list(awaited.layers):
            look()


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _event(loop: asyncio.AbstractEventLoop) -> "Tuple[asyncio.Future[None], Callable[..., None]]":
    """A future of this loop, and a function for any thread that ends it."""
    future: "asyncio.Future[None]" = loop.create_future()

    def happened(*_: Any) -> None:
        try:
            loop.call_soon_threadsafe(_finish, future)
        except RuntimeError:  # the loop is closed
            pass

    return future, happened


@contextlib.contextmanager
def _watched(loop: asyncio.AbstractEventLoop, context: _kvcl.Context) -> Iterator[_Awaited]:
    """The loop watches the context's descriptor."""
    awaited = _awaited.setdefault(context, _Awaited())
    fd = context.fileno()
    if awaited.loops.get(loop, 0) == 0:
        loop.add_reader(fd, _wake, awaited, context)
    awaited.loops[loop] = awaited.loops.get(loop, 0) + 1
    try:
        yield awaited
    finally:
        awaited.loops[loop] -= 1
        if awaited.loops[loop] == 0:
            del awaited.loops[loop]
            loop.remove_reader(fd)


def _until_done(request: Request[Any]) -> Generator[Any, None, None]:
    loop = asyncio.get_running_loop()
    context = request._context
    if context is None:  # completed meanwhile
        return
    canceled = None
    with _watched(loop, context) as awaited:
        try:
            while True:
                future, happened = _event(loop)
                awaited.requests[request] = None
                request._when_done(happened)
                request.done()  # it may have completed before the descriptor was watched
                _wake(awaited, context)
                try:
                    yield from future.__await__()
                    break
                except asyncio.CancelledError as error:  # stop the operation; leave only when its buffers are free
                    if canceled is not None:
                        raise
                    canceled = error
                    request.cancel()
        finally:
            awaited.requests.pop(request, None)
    if canceled is not None:
        raise canceled


async def _until_layer(request: Request[Any], layer: int, context: _kvcl.Context) -> None:
    loop = asyncio.get_running_loop()
    with _watched(loop, context) as awaited:
        while (arrived := request._layer_test(layer)) is not True:
            if arrived is None:  # another thread waits for the request
                await asyncio.sleep(_BUSY)
                continue
            future, happened = _event(loop)

            def look(happened: Callable[..., None] = happened) -> None:
                try:
                    if request._layer_test(layer) is False:
                        return
                except Exception:  # noqa: B902: the task's own test raises it
                    pass
                happened()

            awaited.layers[look] = None
            try:
                request._when_done(happened)
                look()  # it may have arrived before the descriptor was watched
                _wake(awaited, context)
                await future
            finally:
                del awaited.layers[look]


# ---- several ----


def wait_all(requests: Iterable[Request[T]], timeout: Optional[float] = None) -> List[T]:
    """Wait for all; their results, in order.

    If some failed, the first one's error is raised after all have completed. WaitTimeout after timeout seconds: those
    left continue.
    """
    requests = list(requests)
    until = None if timeout is None else time.monotonic() + timeout
    failed: Optional[BaseException] = None
    for request in requests:
        try:
            request.wait(None if until is None else max(0.0, until - time.monotonic()))
        except InProgress:
            raise
        except Exception as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return [request.result() for request in requests]


def wait_any(requests: Sequence[Request[T]], timeout: Optional[float] = None) -> Tuple[int, Request[T]]:
    """Wait until one of them has completed, well or not; (its index, it). WaitTimeout after timeout seconds.

    Requests that had completed before count: leave out those that you have handled. All are of one context;
    ValueError if there is none.
    """
    requests = tuple(requests)
    index = _kvcl.wait_any(requests, timeout)
    return index, requests[index]


def wait_some(requests: Sequence[Request[Any]], timeout: Optional[float] = None) -> List[int]:
    """Wait until at least one of them has completed, well or not; the indices of all that have. As wait_any()."""
    requests = tuple(requests)
    _kvcl.wait_any(requests, timeout)
    return [index for index, request in enumerate(requests) if request.done()]
