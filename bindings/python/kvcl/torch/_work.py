"""A collective, send or recv in flight, as torch.distributed sees it."""

import datetime
import queue
import threading
import time
from typing import Any, Callable, List, Optional, Protocol, Sequence

import torch
import torch.distributed as dist

from .. import InProgress, KvclError, RankFailed, Request, WaitTimeout
from ._live import Live
from ._outbox import Outbox


class Finisher(threading.Thread):
    """Completes the futures of a group's works, in the order in which they were asked for."""

    def __init__(self) -> None:
        super().__init__(name="kvcl-futures", daemon=True)
        self.works: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self.start()

    def run(self) -> None:
        while True:
            work = self.works.get()
            if work is None:
                return
            work._complete_future()


class WorkOwner(Protocol):
    """The group."""

    _live: Live

    def finisher(self) -> Finisher: ...


class Work(dist.Work):
    """A collective in flight: some requests, and what is to be done once they are complete."""

    _revokes = True  # a rank that has failed ends the collectives of all

    def __init__(self, group: "WorkOwner", requests: List[Request[Any]], result: List[torch.Tensor],
                 after: Sequence[Callable[[], Any]] = (), outbox: Optional[Outbox] = None) -> None:
        super().__init__()
        self._group = group
        self._live = group._live
        self._requests = requests
        self._result = result
        self._after = list(after)
        self._outbox = outbox  # of what gives copies: where wait() leaves them
        self._post_stream: Optional[torch.cuda.Stream] = None
        for tensor in result:
            if tensor.is_cuda:
                self._post_stream = torch.cuda.current_stream(tensor.device)
                break
        self._lock = threading.Lock()
        self._over = False
        self._error: Optional[BaseException] = None
        self._source = -1
        self._future: Optional[torch.futures.Future] = None

    def _finish(self, seconds: Optional[float]) -> None:
        until = None if seconds is None else time.monotonic() + seconds
        if not self._lock.acquire(timeout=-1 if seconds is None else min(seconds, threading.TIMEOUT_MAX)):
            raise WaitTimeout(f"the work is not over after {seconds} s: another thread waits for it too")
        try:
            if self._over:
                return
            try:
                self._wait_for_all(until)
                if self._after:
                    with torch.no_grad():  # parameters of a model may be results
                        self._run_steps()
            except BaseException as error:
                if any(not request.done() for request in self._requests):
                    raise  # a wait that ended early
                self._error = error
            self._over = True
            self._after = []
        finally:
            self._lock.release()

    def _wait_for_all(self, until: Optional[float]) -> None:
        """Raises the first error when all are complete, so that nothing writes into the tensors any more."""
        failed: Optional[KvclError] = None
        for request in self._requests:
            try:
                if self._outbox is not None and until is None:
                    self._outbox.wait_and_give(request)
                    continue
                info = request.wait(None if until is None else max(0.0, until - time.monotonic()))
                self._source = getattr(info, "source", self._source)
            except InProgress:
                raise
            except KvclError as error:
                failed = failed or error
                if self._revokes and isinstance(error, RankFailed):
                    self._live.revoke()  # which ends the others
        if failed is not None:
            raise failed

    def _run_steps(self) -> None:
        """On a device they follow the post on its stream, whichever thread runs them, and are waited for."""
        if self._post_stream is None:
            for step in self._after:
                step()
            return
        with torch.cuda.stream(self._post_stream):
            for step in self._after:
                step()
        self._post_stream.synchronize()

    def then(self, steps: Sequence[Callable[[], Any]]) -> None:
        """Before anyone waits for it: steps that follow the others."""
        self._after += steps

    def wait(self, timeout: Optional[datetime.timedelta] = None) -> bool:
        seconds = timeout.total_seconds() if timeout is not None else 0.0
        self._finish(seconds if seconds > 0 else None)
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        if not self._over and all(request.done() for request in self._requests):
            self._finish(None)
        return self._over

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> Optional[BaseException]:
        return self._error

    def result(self) -> List[torch.Tensor]:
        self.wait()
        return self._result

    def _source_rank(self) -> int:
        return self._source

    def source_rank(self) -> int:
        return self._source

    def get_future(self) -> "torch.futures.Future[Any]":
        if self._future is None:
            self._future = torch.futures.Future()
            self._group.finisher().works.put(self)
        return self._future

    def _complete_future(self) -> None:
        try:
            self._finish(None)
        except BaseException as error:
            self._error = error
        assert self._future is not None
        if self._error is None:
            self._future.set_result(self._result)
        else:
            self._future.set_exception(self._error)


class Message(Work):
    """A send or recv: nobody else waits for it."""

    _revokes = False
