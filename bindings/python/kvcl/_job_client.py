"""The store of a job that runs already, as kvcl._job uses one: through a kvcl_serve, by a process that is no rank.

It has the calls of Store that Job makes, for blocks of one size. Values are blocks: a value of any other length is not
stored. They are copied through a cache of this process, from and into which the client moves blocks.
"""

import threading
from typing import Any, Callable, List, Optional, Sequence

from ._cache import Cache, Layout
from ._client import Call, StoreClient
from ._context import Context
from ._errors import KvclError, Status, Unsupported, by_status

STAGE_BYTES = 16 << 20

_ERRORS = by_status()


class Answer:
    """What Job asks a Request that has completed: the status of each block."""

    def __init__(self, block_status: List[Status]) -> None:
        self.block_status = block_status

    def wait(self) -> None:
        """Raises the first block's error."""
        for status in self.block_status:
            if status != Status.OK:
                raise _ERRORS.get(status, KvclError)(f"a block of kvcl_serve: {status.name}")


class Later:
    """What Job asks a Request that has not completed: a query, which runs when it is waited for."""

    def __init__(self, run: Callable[[], Any]) -> None:
        self.wait = run

    def done(self) -> bool:
        return False


def _pieces(value: Any) -> List[memoryview]:
    parts = value if isinstance(value, (list, tuple)) else [value]
    return [memoryview(part).cast("B") for part in parts]


class ClientStore:
    """A StoreClient with the calls of Store, which raise KvclError as those do. Any thread; one call at a time.

    timeout: seconds of each call; the timeout argument of the calls is not used. connect() comes first, and again when
    it is closed. All connections use one context: a server that was silent may still answer an earlier connection, and
    a new context in the earlier one's place in shared memory would take that answer for its own.
    """

    def __init__(self, context: Context, file: str, block_bytes: int, timeout: float) -> None:
        self._client = StoreClient(context, block_bytes=block_bytes, timeout=timeout)
        self._context, self._file, self._block_bytes, self._timeout = context, file, block_bytes, timeout
        self._lock = threading.Lock()
        self._stage: Optional[Cache] = None
        self._views: Sequence[memoryview] = ()

    def connect(self) -> None:
        """Connect to the server that the file names now. Blocks, also until calls by the last connection have ended."""
        client = StoreClient(self._context, block_bytes=self._block_bytes, timeout=self._timeout)
        client.connect(self._file, self._timeout)
        with self._lock:
            self._client = client

    @property
    def closed(self) -> bool:
        """Whether the server was lost. Sends nothing."""
        return self._client.lost

    def introduce(self, text: str, timeout: float) -> List[str]:
        """Leave a text for later engines, by a connection that ends at once. Returns those of earlier ones. Blocks."""
        client = StoreClient(self._context, text=text, timeout=timeout)
        client.connect(self._file, timeout)
        client.close()
        return client.others

    def _run(self, post: Callable[[StoreClient], Call]) -> Any:
        with self._lock:
            return self._client.wait(post(self._client))

    # ---- blocks and keys ----

    def get(self, keys: Sequence[bytes], cache: Cache, blocks: Sequence[int], *, timeout: float) -> Answer:
        return Answer(self._run(lambda client: client.get(keys, cache, blocks)))

    def put(self, keys: Sequence[bytes], cache: Cache, blocks: Sequence[int], *, timeout: float) -> Answer:
        return Answer(self._run(lambda client: client.put(keys, cache, blocks)))

    def match_post(self, keys: Sequence[bytes], *, timeout: float) -> Later:
        return Later(lambda: self._run(lambda client: client.match(keys)))

    def exists_post(self, keys: Sequence[bytes], *, timeout: float) -> Later:
        return Later(lambda: self._run(lambda client: client.exists(keys)))

    # ---- values ----

    def get_values(self, keys: Sequence[bytes], buffers: Sequence[Any], *, timeout: float) -> Answer:
        return Answer(self._staged(keys, [_pieces(one) for one in buffers], self._get_lot, Status.ERR_NOT_FOUND))

    def put_values(self, keys: Sequence[bytes], values: Sequence[Any], *, replicas: int = 0, timeout: float) -> Answer:
        return Answer(self._staged(keys, [_pieces(one) for one in values], self._put_lot,
                                         Status.ERR_BAD_LAYOUT))

    def upsert_values(self, keys: Sequence[bytes], values: Sequence[Any], *, replicas: int = 0,
                      timeout: float) -> Answer:
        self.remove_values(keys, timeout=timeout)
        return self.put_values(keys, values, replicas=replicas, timeout=timeout)

    def remove_values(self, keys: Sequence[bytes], *, timeout: float) -> None:
        self._run(lambda client: client.remove(keys))

    def value_sizes(self, keys: Sequence[bytes], *, timeout: float) -> List[Optional[int]]:
        return [self._block_bytes if has else None for has in self._run(lambda client: client.exists(keys))]

    def clear(self, *, timeout: float) -> int:
        raise Unsupported("a client of kvcl_serve cannot clear its store")

    def _staged(self, keys: Sequence[bytes], values: List[List[memoryview]], lot: Callable[..., List[Status]],
                other: Status) -> List[Status]:
        """Run lots of the stage's size. other: the status of a value that is no block."""
        out = [other] * len(keys)
        blocks = [i for i, value in enumerate(values) if sum(one.nbytes for one in value) == self._block_bytes]
        with self._lock:
            if self._stage is None:
                layout = Layout.bytes(max(1, STAGE_BYTES // self._block_bytes), self._block_bytes)
                self._stage = self._context.cache("kvcl client values", layout)
                self._views = self._stage.bases
            room = self._stage.layout.blocks
            for first in range(0, len(blocks), room):
                part = blocks[first:first + room]
                for i, status in zip(part, lot(self._stage, [keys[i] for i in part], [values[i] for i in part])):
                    out[i] = status
        return out

    def _get_lot(self, stage: Cache, keys: List[bytes], values: List[List[memoryview]]) -> List[Status]:
        statuses: List[Status] = self._client.wait(self._client.get(keys, stage, range(len(keys))))
        at = 0
        for status, value in zip(statuses, values):
            end = at + self._block_bytes
            for one in value if status == Status.OK else ():
                one[:] = self._views[0][at:at + one.nbytes]
                at += one.nbytes
            at = end
        return statuses

    def _put_lot(self, stage: Cache, keys: List[bytes], values: List[List[memoryview]]) -> List[Status]:
        at = 0
        for value in values:
            for one in value:
                self._views[0][at:at + one.nbytes] = one
                at += one.nbytes
        statuses: List[Status] = self._client.wait(self._client.put(keys, stage, range(len(keys))))
        return statuses
