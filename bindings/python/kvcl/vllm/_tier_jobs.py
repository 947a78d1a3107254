"""What the secondary tier does with vLLM's jobs: threads copy chunks between vLLM's memory and the store. No type of
vLLM.

A chunk is a row of vLLM's memory. The store's calls are those of kvcl._job, which raise nothing: where there is no
store, nothing is found and nothing is kept.
"""

import hashlib
import queue
import threading
import time
from typing import Any, Callable, Deque, List, NamedTuple, Optional, Sequence
from collections import deque

from .._cache import Layout
from .._introduce import Fields
from .._job import Job, Memory
from .._job_options import options
from .._keys import key_from_bytes
from .._options import Option, text, truth

MEMORY = "kvcl.vllm tier"
OPTIONS = (
    Option("threads", 2, "threads that copy chunks", least=1, most=64),
    Option("model", "", "the name by which engines know that they run the same weights; default: vLLM's"),
    Option("enable_kv_events", False, "tell stored chunks through vLLM's publisher", kind=truth),
    Option("locality", None, "for these events", ("LOCAL", "REMOTE"), text),
)


def said(fields: Fields) -> Fields:
    """The fields as the tier introduces itself by them: vLLM's groups of layers by their sizes."""
    groups = fields.get("kv_cache_groups", [])
    names = [list(group["layer_names"]) for group in groups]
    out = {name.replace("_", " "): value if isinstance(value, (int, float)) else str(value)
           for name, value in fields.items() if name not in ("form", "kv_cache_groups")}
    return {**out, "tokens per block": [group["tokens_per_block"] for group in groups],
            "layers": [len(one) for one in names],
            "layer names": hashlib.sha256(str(names).encode()).hexdigest()[:16]}


class Ended(NamedTuple):
    """A job that has ended: which of its keys were stored, or have arrived."""

    number: int
    keys: List[bytes]
    good: List[bool]
    load: bool
    seconds: float


class TierJobs:
    """view: vLLM's memory, one row a chunk. root: of the store's keys. All methods are called by one thread; only
    drain() and close() wait. lookup() may be called by any."""

    def __init__(self, job: Job, view: memoryview, root: bytes, threads: int) -> None:
        self._job, self._root = job, root
        self._flat = view.cast("B")
        chunks = len(view)
        self.chunk_bytes = view.nbytes // chunks
        layout = Layout.bytes(chunks, self.chunk_bytes)
        job.open(self.chunk_bytes, [Memory(MEMORY, layout, self._flat)])
        self._tasks: "queue.SimpleQueue[Optional[Callable[[], None]]]" = queue.SimpleQueue()
        self._state = threading.Condition()
        self._ended: Deque[Ended] = deque()
        self._busy = 0
        self._threads = [threading.Thread(target=self._run, name=f"kvcl-tier-{i}", daemon=True)
                         for i in range(threads)]
        for thread in self._threads:
            thread.start()

    def _keys(self, keys: Sequence[bytes]) -> List[bytes]:
        return [key_from_bytes(key, self._root) for key in keys]

    def lookup(self, keys: Sequence[bytes]) -> List[bool]:
        """Which chunks the store has. Blocks."""
        return self._job.has_blocks(self._keys(keys))

    def store(self, number: int, keys: Sequence[bytes], chunks: Sequence[int]) -> None:
        """Begin to store chunks; those that the store has are not sent."""
        self._begin(number, list(keys), [int(one) for one in chunks], False)

    def load(self, number: int, keys: Sequence[bytes], chunks: Sequence[int]) -> None:
        """Begin to load chunks. Those that do not arrive have undefined bytes."""
        self._begin(number, list(keys), [int(one) for one in chunks], True)

    def ended(self) -> List[Ended]:
        """The jobs that have ended since the last call."""
        with self._state:
            ended = list(self._ended)
            self._ended.clear()
        return ended

    def drain(self) -> None:
        """Wait until no job moves bytes."""
        with self._state:
            self._state.wait_for(lambda: self._busy == 0)

    def close(self) -> None:
        """End the jobs that were begun, and leave the store."""
        self.drain()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join(10.0)
        self._job.close()
        try:
            self._flat.release()  # vLLM unmaps its memory next
        except BufferError:  # the store's context has not closed
            pass

    # ---- the threads ----

    def _begin(self, number: int, keys: List[bytes], chunks: List[int], load: bool) -> None:
        begun = time.monotonic()
        with self._state:
            self._busy += 1

        def task() -> None:
            good = [False] * len(keys)
            try:
                good = (self._load if load else self._store)(self._keys(keys), chunks)
            except Exception as error:  # noqa: B902: of this job alone
                self._job.say(type(error), f"a job of vLLM's tier failed: {error!r}")
            with self._state:
                self._ended.append(Ended(number, keys, good, load, time.monotonic() - begun))
                self._busy -= 1
                self._state.notify_all()

        self._tasks.put(task)

    def _load(self, keys: List[bytes], chunks: List[int]) -> List[bool]:
        return self._job.get_blocks(keys, MEMORY, chunks)

    def _store(self, keys: List[bytes], chunks: List[int]) -> List[bool]:
        good = self._job.has_blocks(keys)
        missing = [i for i, has in enumerate(good) if not has]
        if missing:
            made = self._job.put_blocks([keys[i] for i in missing], MEMORY, [chunks[i] for i in missing],
                                        self.chunk_bytes)
            for i, one in zip(missing, made):
                good[i] = one
        return good

    def _run(self) -> None:
        while True:
            task = self._tasks.get()
            if task is None:
                return
            task()


def options_of(given: Any) -> Any:
    """The tier's options, checked."""
    return options("kvcl.vllm tier", given, OPTIONS)
