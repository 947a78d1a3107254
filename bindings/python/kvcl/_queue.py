"""Queues: the completions of many operations at once."""

import asyncio
from typing import Any, List, NamedTuple, Optional

from . import _kvcl
from ._errors import Status
from ._request import Request


class Done(NamedTuple):
    """An operation that has completed."""

    tag: Any  # of posting()
    request: Request[Any]  # its result() raises the error of a failed one
    status: Status
    bytes: int  # of payload that it moved
    seconds: float  # from the call that posted it to its completion
    error: Optional[str]  # why it failed; None: it has not


class _Posting:
    def __init__(self, queue: "Queue", tag: Any) -> None:
        self._mine = (queue, tag)
        self._before: Any = None

    def __enter__(self) -> "Queue":
        self._before = _kvcl.Queue._swap(*self._mine)
        return self._mine[0]

    def __exit__(self, *exc: Any) -> None:
        _kvcl.Queue._swap(*self._before)


class Queue(_kvcl.Queue):
    """Collects the completions of operations that are posted in its posting() blocks.

        queue = kvcl.Queue()
        for job in jobs:
            with queue.posting(job):
                store.get(job.keys, cache, job.blocks)
        for done in queue.drain():
            finish(done.tag, done.status)

    drain() never waits, and costs about a microsecond where nothing has completed. Poll it, sleep on fileno(), or await
    wait(). The queue holds each Request until its completion was drained; done(), wait() and await of such a Request
    work as ever, and leave the completion in the queue. Operations of several contexts may share a queue. A context
    without a progress thread moves only in its own calls: call its progress(), or wait for requests.
    """

    def posting(self, tag: Any = None) -> _Posting:
        """A with block in which this thread's operations are posted with the queue, and with this tag.

        Leave out calls that wait for their own end (barrier(), allgather()), which need no queue, and do not await
        inside it.
        """
        return _Posting(self, tag)

    def drain(self, limit: Optional[int] = None) -> List[Done]:
        """The completions since the last call, at most limit, the oldest first."""
        return [Done(tag, request, Status(status), count, ns / 1e9, error)
                for tag, request, status, count, ns, error in self._drain(2**62 if limit is None else limit)]

    async def wait(self) -> List[Done]:
        """drain(), once there is a completion. One task of an event loop at a time."""
        loop = asyncio.get_running_loop()
        while True:
            done = self.drain()
            if done:
                return done
            future = loop.create_future()
            loop.add_reader(self.fileno(), _wake, future)
            try:
                await future
            finally:
                loop.remove_reader(self.fileno())

    def __enter__(self) -> "Queue":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<kvcl.Queue, closed>" if self.closed else f"<kvcl.Queue: {self.in_flight} in flight>"


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
