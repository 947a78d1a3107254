"""Few bytes that are given away: the call ends before their receivers have them, as gloo's do, so that a rank does not
wait until another one has a processor. No call waits for room: wait() on its work does, for the oldest."""

import atexit
import collections
import os
import warnings
import weakref
from typing import Any, Deque

import torch

from .. import KvclError, Request

FEW = 64 << 10  # bytes, whose copy takes less than a processor's change to another process
MOST = 8        # in flight

_all: "weakref.WeakSet[Outbox]" = weakref.WeakSet()


def few(tensor: torch.Tensor, times: int = 1) -> bool:
    return (tensor.is_cpu and not tensor.is_sparse and
            tensor.numel() * tensor.element_size() * times <= FEW)


class Outbox:
    """Requests of a group that give copies. Threads use it without a lock."""

    def __init__(self) -> None:
        self._requests: Deque[Request[Any]] = collections.deque()
        self.pid = os.getpid()
        _all.add(self)

    def give(self, request: Request[Any]) -> bool:
        """Take it, where there is room. A failure that is known already is raised; a later one is warned of."""
        if request.done():
            request.wait()
            return True
        if len(self._requests) >= MOST:
            self._end_done()
        if len(self._requests) >= MOST:
            return False
        self._requests.append(request)
        return True

    def wait_and_give(self, request: Request[Any]) -> None:
        """Wait for the oldest until there is room for this one."""
        while not self.give(request):
            self._end_oldest()

    def finish(self) -> None:
        """Wait until all have arrived, or failed: each has its deadline."""
        while self._requests:
            self._end_oldest()

    def drop(self) -> None:
        """They go on, as long as their context is open."""
        self._requests.clear()

    def _end_done(self) -> None:
        """The oldest ones that are over."""
        for request in list(self._requests):
            if not request.done():
                return
            try:
                self._requests.remove(request)
            except ValueError:  # another thread has taken it
                continue
            self._end(request)

    def _end_oldest(self) -> None:
        try:
            request = self._requests.popleft()
        except IndexError:  # another thread has taken it
            return
        self._end(request)

    @staticmethod
    def _end(request: Request[Any]) -> None:
        try:
            request.wait()
        except KvclError as error:
            warnings.warn(f"kvcl: what a gather, scatter, broadcast or send gave has not arrived: {error}",
                          RuntimeWarning, stacklevel=5)


@atexit.register
def _finish_all() -> None:
    """Before the contexts close: torch does not end its groups itself. A forked child has none."""
    for box in list(_all):
        if box.pid == os.getpid():
            box.finish()
