"""The caller's own key-value store as the three functions that kvcl_init needs."""

import threading
import time
import weakref
from typing import Any, Callable, Dict, List, Tuple

_WAIT = 60.0
_Functions = Tuple[Callable[[str, bytes], None], Callable[[str], bytes], Callable[[], None]]


def _fence(set_: Callable[[str, bytes], None], get: Callable[[str], bytes], rank: int, size: int) -> Callable[[], None]:
    """A fence from set and get: every rank sets its own entry and gets those of the others."""
    count = 0

    def fence() -> None:
        nonlocal count
        count += 1
        set_(f"fence{count}.{rank}", b"1")
        for peer in range(size):
            get(f"fence{count}.{peer}")

    return fence


class _Uses:
    """How many contexts each rank has opened on a store: ranks open them in the same order, so the numbers match.

    The library also counts, but per process: with ranks that are threads of one process, or with a process that has
    used another store before, the numbers would differ.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.counts: Dict[Tuple[int, int], int] = {}
        self.kept: List[Any] = []  # stores without weak references: their id must not be reused

    def next(self, store: Any, rank: int) -> int:
        with self.lock:
            if not any(key[0] == id(store) for key in self.counts):
                try:
                    weakref.finalize(store, self.forget, id(store)).atexit = False
                except TypeError:
                    self.kept.append(store)
            number = self.counts.get((id(store), rank), 0)
            self.counts[(id(store), rank)] = number + 1
            return number

    def forget(self, gone: int) -> None:
        with self.lock:
            for key in [key for key in self.counts if key[0] == gone]:
                del self.counts[key]


_uses = _Uses()


def _waiting_get(store: Any) -> Callable[[str], bytes]:
    """get(key) of a mapping, which other threads or processes fill."""

    def get(key: str) -> bytes:
        until = time.monotonic() + _WAIT
        while True:
            try:
                value: bytes = store[key]
                return value
            except KeyError:
                if time.monotonic() > until:
                    raise TimeoutError(f"no rank set {key!r} in {_WAIT:.0f} s") from None
                time.sleep(0.001)

    return get


def adapt(oob: Any, rank: int, size: int) -> _Functions:
    """(set, get, fence) from a tuple of them, a mapping, or an object with set and a waiting get (a torch Store)."""
    if isinstance(oob, tuple):
        if len(oob) != 3 or not all(callable(f) for f in oob):
            raise TypeError("oob: a tuple of three functions (set, get, fence) is needed")
        return oob[0], oob[1], oob[2]
    if hasattr(oob, "__setitem__") and hasattr(oob, "__getitem__"):
        put, take = oob.__setitem__, _waiting_get(oob)
    elif callable(getattr(oob, "set", None)) and callable(getattr(oob, "get", None)):
        put, take = oob.set, oob.get
    else:
        raise TypeError(f"oob: a mapping, a store with set and get, or (set, get, fence) is needed, not "
                        f"{type(oob).__name__!r}")
    number = _uses.next(oob, rank)

    def own(key: str) -> str:
        return f"kvcl/{number}/{key.split('.', 2)[-1] if key.startswith('kvcl.') else key}"

    def set_(key: str, value: bytes) -> None:
        put(own(key), value)

    def get(key: str) -> bytes:
        return take(own(key))

    return set_, get, _fence(set_, get, rank, size)
