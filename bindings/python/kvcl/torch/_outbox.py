"""Few bytes that are given away: the call ends before their receivers have them, as gloo's do, so that a rank does not
wait until another one has a processor."""

import atexit
import collections
import os
import warnings
import weakref
from typing import Any, Deque

import torch

from .. import KvclError, Request

FEW = 64 << 10  # bytes, whose copy takes less than a processor's change to another process
MOST = 8        # in flight: then the call waits for the oldest

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

    def give(self, request: Request[Any]) -> None:
        """A failure that is known already is raised; a later one is warned of."""
        if request.done():
            request.wait()
            return
        self._requests.append(request)
        while len(self._requests) > MOST:
            self._end_oldest()

    def finish(self) -> None:
        """Wait until all have arrived, or failed: each has its deadline."""
        while self._requests:
            self._end_oldest()

    def drop(self) -> None:
        """They go on, as long as their context is open."""
        self._requests.clear()

    def _end_oldest(self) -> None:
        try:
            self._requests.popleft().wait()
        except IndexError:  # another thread has taken it
            pass
        except KvclError as error:
            warnings.warn(f"kvcl: what a gather, scatter, broadcast or send gave has not arrived: {error}",
                          RuntimeWarning, stacklevel=4)


@atexit.register
def _finish_all() -> None:
    """Before the contexts close: torch does not end its groups itself. A forked child has none."""
    for box in list(_all):
        if box.pid == os.getpid():
            box.finish()
