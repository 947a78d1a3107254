"""LMCache over KVCL: Client is a native plugin for LMCache's second level (L2).

    lmcache server --supported-transfer-mode auto --l2-adapter '{"type": "native_plugin",
        "module_path": "kvcl.lmcache", "class_name": "Client", "adapter_params": {"pool": "8G"}}'

The options in adapter_params are those of contrib/doc/engines. LMCache's chunks are values of the store, copied
straight from and into LMCache's own memory.
"""

import os
import queue
import threading
from collections import deque
from functools import partial
from typing import Any, Callable, Deque, List, Optional, Sequence, Set, Tuple

from ._job import Job
from ._job_options import block_is_first, options
from ._keys import keys_from_bytes
from ._options import Option

_os: Any = os  # eventfd: the type stubs of mypy 1.0 lack it
WHO = "kvcl.lmcache"
OPTIONS = (Option("threads", 2, "threads that run LMCache's batches", least=1, most=64),)

# Of a batch: its parts are run by several threads, each by one that copies all of it itself. Some more parts than
# threads, since one of them begins later.
PART_BYTES = 2 << 20

Completion = Tuple[int, bool, str, Optional[List[bool]]]


class _Batch:
    """A batch in parts; the thread that ends the last one completes it."""

    def __init__(self, number: int, parts: int, strict: bool) -> None:
        self.number, self.left, self.strict = number, parts, strict  # strict: it fails if one of its keys does
        self.each: List[Optional[List[bool]]] = [None] * parts
        self.why = ""


Tasks = queue.SimpleQueue[Optional[Tuple[_Batch, int, Callable[[], List[bool]]]]]


def parts_of(sizes: Sequence[int]) -> List[slice]:
    """Cut a batch into runs of at most PART_BYTES; a larger chunk is one of its own."""
    cuts, bytes_ = [0], 0
    for i, size in enumerate(sizes):
        if i > cuts[-1] and bytes_ + size > PART_BYTES:
            cuts.append(i)
            bytes_ = 0
        bytes_ += size
    return [slice(a, b) for a, b in zip(cuts, cuts[1:] + [len(sizes)])]


class Client:
    """LMCache's interface of a native connector: batches are submitted, run by threads, and drained when event_fd() is
    readable.

    A chunk that is absent, or a store that is, is a miss; a put that fails is reported to LMCache as failed. No call
    raises once the client is made, and none waits, except close().
    """

    def __init__(self, **given: Any) -> None:
        found = options(WHO, given, OPTIONS)
        first = block_is_first(WHO, found, "LMCache's chunk")
        self._salt = found.salt.encode()
        self._job = Job(WHO, found)
        self._fd: int = _os.eventfd(0, _os.EFD_CLOEXEC | _os.EFD_NONBLOCK)
        self._lock = threading.Lock()
        self._done: Deque[Completion] = deque()
        self._last = 0
        self._closed = False
        self._tasks: Tasks = queue.SimpleQueue()
        self._questions: Tasks = queue.SimpleQueue()  # to other ranks: they wait for no copy
        self._threads = [threading.Thread(target=self._run, args=(tasks,), name=f"kvcl-lmcache-{i}", daemon=True)
                         for i, tasks in enumerate([self._questions] + [self._tasks] * found.threads)]
        self._models: Set[str] = set()  # that were introduced
        self._first = first
        if not self._first:
            self._job.open()
        for thread in self._threads:
            thread.start()

    # ---- LMCache's calls ----

    def event_fd(self) -> int:
        """The descriptor that is readable when drain_completions() has something."""
        return self._fd

    def submit_batch_set(self, keys: Sequence[str], views: Sequence[memoryview]) -> int:
        """Store chunks. Their memory must stay untouched until the completion."""
        return self._submit(self._cut(self._set, keys, views), strict=True)

    def submit_batch_get(self, keys: Sequence[str], views: Sequence[memoryview]) -> int:
        """Load chunks into their memory; the completion says which have arrived."""
        return self._submit(self._cut(self._get, keys, views))

    def submit_batch_exists(self, keys: Sequence[str]) -> int:
        """Which chunks are stored. A store that answers at once has completed it when the call returns: no thread
        is woken, and no copy is waited for."""
        try:
            there, answer = self._job.ask_values(self._keys(keys))
        except Exception:  # names that are no strings: the thread that reads them says so
            return self._submit([lambda: self._job.has_values(self._keys(keys))])
        if not there:
            return self._submit([answer], tasks=self._questions)
        batch = self._batch(1)
        self._ended(batch, 0, answer(), "")
        return batch.number

    def submit_batch_delete(self, keys: Sequence[str]) -> int:
        """Remove chunks, from all ranks."""
        return self._submit([lambda: [self._job.remove_values(self._keys(keys))] * len(keys)], strict=True)

    def drain_completions(self) -> List[Completion]:
        """The batches that have ended since the last call: (number, whether it succeeded, why not, for each key)."""
        try:
            _os.eventfd_read(self._fd)
        except (OSError, ValueError):  # nothing new, or closed
            pass
        with self._lock:
            done = list(self._done)
            self._done.clear()
        return done

    def close(self) -> None:
        """Leave the job. Batches that have not begun end as failed."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._questions.put(None)
        for _ in self._threads[1:]:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join(2 * self._job.options.timeout)
        self._job.close()
        with self._lock:
            os.close(self._fd)
            self._fd = -1

    # ---- the threads ----

    def _batch(self, parts: int, strict: bool = False) -> _Batch:
        with self._lock:
            self._last += 1
            return _Batch(self._last, parts, strict)

    def _submit(self, parts: List[Callable[[], List[bool]]], strict: bool = False,
                tasks: Optional[Tasks] = None) -> int:
        batch = self._batch(len(parts), strict)
        for i, body in enumerate(parts):
            (tasks or self._tasks).put((batch, i, body))
        return batch.number

    def _cut(self, body: Any, keys: Sequence[str], views: Sequence[memoryview]) -> List[Callable[[], List[bool]]]:
        try:
            parts = parts_of([view.nbytes for view in views])
        except Exception:  # no memoryviews: the thread that reads them says so
            parts = [slice(0, len(keys))]
        return [partial(body, keys[part], views[part]) for part in parts]

    def _run(self, tasks: Tasks) -> None:
        while True:
            task = tasks.get()
            if task is None:
                return
            batch, i, body = task
            each, why = None, ""
            try:
                each = body() if not self._closed else None
            except Exception as error:  # an argument that is no buffer, for example: this batch's error alone
                self._job.say(type(error), f"a batch of LMCache failed: {error!r}")
                why = repr(error)
            del body, task  # the memory is LMCache's again
            self._ended(batch, i, each, why)

    def _ended(self, batch: _Batch, i: int, each: Optional[List[bool]], why: str) -> None:
        with self._lock:
            batch.each[i] = each
            batch.why = batch.why or why
            batch.left -= 1
            if batch.left == 0:
                done = [one for part in batch.each if part is not None for one in part]
                ran = all(part is not None for part in batch.each)
                ok = ran and (all(done) or not batch.strict)
                why = batch.why or ("" if ok else "not stored: the log of kvcl says why")
                self._done.append((batch.number, ok, why, done if ran else None))
                if self._fd >= 0:
                    _os.eventfd_write(self._fd, 1)

    def _introduce(self, keys: Sequence[str], sizes: Sequence[int]) -> None:
        """At the first chunks of a model: LMCache says what it is of with each chunk alone."""
        model, _, rest = keys[0].partition("@")
        if model in self._models:
            return
        ranks = rest.partition("@")[0]
        first = [size for key, size in zip(keys, sizes) if key[len(model):].startswith(f"@{ranks}@0@")]  # of group 0
        if first:
            self._models.add(model)
            self._job.introduce({"model": model, "parallel ranks": ranks[:2], "chunk bytes": max(first)})

    def _keys(self, keys: Sequence[str]) -> List[bytes]:
        return keys_from_bytes(keys, self._salt)

    def _get(self, keys: Sequence[str], views: Sequence[memoryview]) -> List[bool]:
        return self._job.get_values(self._keys(keys), views)

    def _set(self, keys: Sequence[str], views: Sequence[memoryview]) -> List[bool]:
        sizes = [view.nbytes for view in views]
        if self._first and sizes:
            self._job.open(block=max(sizes))
        if sizes:
            self._introduce(keys, sizes)
        return self._job.put_values(self._keys(keys), views, sizes)
