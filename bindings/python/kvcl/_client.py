"""A client of a job's store: a process that is no rank of the job, and comes and goes while the job lives.

The job's kvcl_serve runs with --clients FILE, and the client connects to the address in that file. The form of the
messages is in src/tools/serve/client_wire.h.
"""

import collections
import contextlib
import struct
import time
from typing import Any, Deque, Generator, List, Optional, Sequence, Set, Tuple

from ._cache import Cache
from ._comm import Comm, RankState
from ._context import Context
from ._errors import (BadLayout, Canceled, InvalidParam, KvclError, OutOfRange, ProtocolError, RankFailed, Status,
                      TimedOut, by_status)

VERSION = 1
TAG_REQUEST, TAG_REPLY = 1, 2
HELLO, MATCH, EXISTS, GET, PUT, REMOVE = range(1, 7)
KEYS_MAX = 4096  # of one request
TEXT_MAX = 1024
BLOCKS_MAX = 1 << 20   # of the server's buffer
ADDRESS_MAX = 1 << 16  # bytes
LEAVING = 3600.0       # seconds that the word that a client has left may travel, to a server that stands still

_REQUEST = struct.Struct("<IIQQQII")
_REPLY = struct.Struct("<IiQQII")
_WELCOME = struct.Struct("<II64s")
_BODY_MAX = _WELCOME.size + 32 * (TEXT_MAX + 1)

_ERRORS = by_status()

Steps = Generator[Any, None, Any]  # yields requests to wait for, or None to be continued later


class Call:
    """An operation of a StoreClient in flight. It moves in StoreClient.progress() only; neither waits."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._waiting: Any = None
        self._result: Any = None
        self.done = False
        self.error: Optional[Exception] = None

    @property
    def result(self) -> Any:
        """Of a call that is done; raises if it failed."""
        if not self.done:
            raise RuntimeError("the call is not done")
        if self.error is not None:
            raise self.error
        return self._result

    def wait_step(self, seconds: float) -> None:
        """Wait, at most so long, for what the call waits for: progress() moves it then. Blocks."""
        if self._waiting is None:
            time.sleep(min(seconds, 0.0001))
            return
        try:
            self._waiting.wait(seconds)
        except KvclError:
            pass  # progress() sees it

    def _advance(self) -> bool:
        while True:
            if self._waiting is not None and not self._waiting.done():
                return False
            failed = None
            if self._waiting is not None:
                try:
                    self._waiting.result()
                except KvclError as error:
                    failed = error
            try:
                self._waiting = self._steps.send(None) if failed is None else self._steps.throw(failed)
                if self._waiting is None:
                    return False
            except StopIteration as end:
                self._result, self.done = end.value, True
                return True
            except Exception as error:  # noqa: B902: of this call alone
                self.error, self.done = error, True
                return True


class Layers:
    """Which layers of a call's blocks are there: of get(), those that have arrived; of save(), those that the caller
    has marked by ready(), since nothing of a layer is read before. A save of blocks that the store does not have ends
    only after all were marked, or drop()."""

    def __init__(self) -> None:
        self.there: Set[int] = set()
        self.stream: Any = None
        self.dropped = False

    def drop(self) -> None:
        """Layers that are not ready never will be: the save fails."""
        self.dropped = True

    def ready(self, layer: int, stream: Any = None) -> None:
        """A layer's bytes are in place, or will be when the CUDA stream has finished its earlier work."""
        self.there.add(layer)
        self.stream = stream if stream is not None else self.stream


class StoreClient:
    """The store of a job, reached through one of its kvcl_serve ranks.

    context: of this process alone (boot="self"), with the job's secret. block_bytes: of the blocks that get() and put()
    move; 0: keys only. layers: of the caches that get() and save() move layer by layer. text: how this client
    introduces itself to later ones, at most 1,024 bytes. timeout: of a message and its reply, and of a transfer; a call
    of many blocks begins no further part after it. connect() blocks. The other methods post and return a Call, which
    moves in progress(); one thread at a time. Blocks travel through a buffer of the server's that this client alone
    uses. A call that fails because the server is lost ends the connection: connected is False then, and connect() may
    be called again, with another server in the file.
    """

    def __init__(self, context: Context, *, block_bytes: int = 0, text: str = "", timeout: float = 30.0,
                 layers: int = 0) -> None:
        if len(text.encode()) > TEXT_MAX or "\0" in text:
            raise InvalidParam(f"text: at most {TEXT_MAX} bytes without zeros")
        if layers < 0 or (layers > 1 and block_bytes % layers != 0):
            raise InvalidParam(f"layers: blocks of {block_bytes} bytes have no {layers} layers of equal size")
        self._context, self._block_bytes, self._text, self._timeout = context, block_bytes, text, timeout
        self._layers = layers
        self._comm: Optional[Comm] = None
        self._calls: List[Call] = []
        self._number = 0
        self._unanswered = 0
        self._heard = 0.0
        self._free: Deque[int] = collections.deque()
        self.buffer = ""
        self.others: List[str] = []

    # ---- the connection ----

    @property
    def connected(self) -> bool:
        """Whether calls may be posted."""
        return self._comm is not None

    @property
    def lost(self) -> bool:
        """Whether the connection has ended, also if no call has noticed. Sends nothing."""
        comm = self._comm
        return comm is None or comm.rank_state(0) == RankState.FAILED

    @property
    def silent(self) -> float:
        """Seconds for which a request has been sent and nothing has been answered."""
        return time.monotonic() - self._heard if self._unanswered else 0.0

    def connect(self, file: str, timeout: float = 5.0) -> None:
        """Connect to the kvcl_serve whose address is in the file, in timeout seconds, and wait as long for its first
        reply. Blocks. Raises KvclError or OSError."""
        with open(file, encoding="ascii", errors="replace") as lines:
            address = lines.readline(ADDRESS_MAX).strip()
        if not address.startswith("kvcl"):
            raise InvalidParam(f"{file} holds no address: name the file that kvcl_serve --clients writes")
        comm = self._context.world.connect(address, timeout)
        self._comm, self._calls = comm, []
        try:
            hello = Call(self._hello(timeout))
            while not hello._advance():
                try:
                    hello._waiting.wait()  # at most timeout
                except KvclError:
                    pass  # _advance() sees it
            hello.result
        except Exception:  # noqa: B902: also of a reply of another form
            self._leave()
            raise

    def _hello(self, timeout: float) -> Steps:
        text = self._text.encode()
        head = _REQUEST.pack(VERSION, HELLO, 0, 0, self._block_bytes, self._layers, len(text))
        _, body = yield from self._exchange(0, head + text, _BODY_MAX, timeout)
        if len(body) < _WELCOME.size:
            raise self._other_form()
        blocks, n, name = _WELCOME.unpack_from(body)
        if blocks > BLOCKS_MAX:
            raise self._other_form()
        self._free = collections.deque(range(blocks))
        self.buffer = name.rstrip(b"\0").decode("ascii")
        self.others = [one.decode(errors="replace") for one in bytes(body[_WELCOME.size:]).split(b"\0")[:n]]

    def close(self) -> None:
        """End the connection. Calls in flight fail, when their transfers have ended: progress() until they are done."""
        for call in self._calls:
            if call._waiting is not None and not call._waiting.done():
                call._waiting.cancel()
        self._leave()

    def _leave(self) -> None:
        """The connection is over. The server is told, since it sees no end of a context that lives on, and connects
        again."""
        comm, self._comm = self._comm, None
        if comm is not None:
            with contextlib.suppress(KvclError):
                comm.send_bytes(0, TAG_REQUEST, b"", timeout=LEAVING)  # goes on by itself

    # ---- calls ----

    def match(self, keys: Sequence[bytes]) -> Call:
        """The number of leading keys that the store has."""
        return self._post(self._match(b"".join(keys), len(keys)))

    def exists(self, keys: Sequence[bytes]) -> Call:
        """A bool for each key."""
        return self._post(self._exists(list(keys)))

    def get(self, keys: Sequence[bytes], cache: Cache, ids: Sequence[int], *,
            layers: Optional[Layers] = None) -> Call:
        """Fetch blocks into blocks ids of the cache. The result is a Status for each; those not OK have undefined
        bytes. After the call no byte of the blocks changes any more, however it ended. layers: fetch layer by layer, in
        order, and tell there which have arrived, of blocks that do not fail."""
        return self._post(self._move(GET, list(keys), cache, list(ids), None, layers))

    def put(self, keys: Sequence[bytes], cache: Cache, ids: Sequence[int]) -> Call:
        """Put blocks ids of the cache into the store. The result is a Status for each. The bytes must not change until
        it is done."""
        return self._post(self._move(PUT, list(keys), cache, list(ids)))

    def save(self, keys: Sequence[bytes], cache: Cache, ids: Sequence[int], *, stream: Any = None,
             layers: Optional[Layers] = None) -> Call:
        """put() of those that the store does not have; the Status of the others is OK. stream: a CUDA stream whose
        earlier work computes the blocks. layers: send each layer once it is marked there as ready."""
        return self._post(self._save(list(keys), cache, list(ids), stream, layers))

    def remove(self, keys: Sequence[bytes]) -> Call:
        """Remove keys from the store."""
        return self._post(self._remove(list(keys)))

    def progress(self) -> bool:
        """Move all calls as far as they go; whether some are left. Never waits."""
        if self._calls:
            self._calls = [call for call in self._calls if not call._advance()]
        return bool(self._calls)

    def wait(self, call: Call) -> Any:
        """Drive a call to its end; its result. Blocks, by the deadlines of its steps."""
        while not call.done:
            self.progress()
            if not call.done:
                call.wait_step(1.0)
        return call.result

    def _post(self, steps: Steps) -> Call:
        call = Call(steps)
        if not call._advance():
            self._calls.append(call)
        return call

    # ---- the steps of calls ----

    def _exchange(self, number: int, message: bytes, body_max: int,
                  timeout: Optional[float] = None) -> Generator[Any, None, Tuple[int, memoryview]]:
        """Send a request; the value and the body of its reply. Raises the error that the server replies, too."""
        timeout = self._timeout if timeout is None else timeout
        comm = self._comm
        if comm is None:
            raise RankFailed("the store's server is not connected")
        reply = bytearray(_REPLY.size + body_max + TEXT_MAX)
        if self._unanswered == 0:
            self._heard = time.monotonic()
        self._unanswered += 1
        try:
            received = comm.recv_bytes(0, TAG_REPLY, reply, timeout=timeout)
            sent = comm.send_bytes(0, TAG_REQUEST, message, timeout=timeout)
            yield sent
            yield received
        except KvclError:
            if self._comm is comm:
                self._leave()  # the order of later replies is unknown
            raise
        finally:
            self._unanswered -= 1
            self._heard = time.monotonic()
        size = received.result().bytes
        if size >= _REPLY.size:
            version, status, echo, value, body_len, text_len = _REPLY.unpack_from(reply)
            if version == VERSION and echo == number and size == _REPLY.size + body_len + text_len:
                body = memoryview(reply)[_REPLY.size:_REPLY.size + body_len]
                if status != 0 and body_len == 0:
                    raise _ERRORS.get(status, KvclError)(bytes(reply[size - text_len:size]).decode(errors="replace"))
                return value, body
        raise self._other_form()

    def _other_form(self) -> ProtocolError:
        """The error of such a reply. The connection ends with it."""
        self._leave()
        return ProtocolError("the store's server sent a reply of another form: is it another version?")

    def _ask(self, kind: int, keys: bytes, n: int, ids: bytes = b"", body_max: int = 0) -> Any:
        self._number += 1
        head = _REQUEST.pack(VERSION, kind, self._number, int(self._timeout * 5e8), 0, n, 0)
        return self._exchange(self._number, head + keys + ids, body_max)

    def _match(self, keys: bytes, n: int) -> Steps:
        hit = 0
        for first in range(0, n, KEYS_MAX):
            part = min(KEYS_MAX, n - first)
            found, _ = yield from self._ask(MATCH, keys[first * 32:(first + part) * 32], part)
            if found > part:
                raise self._other_form()
            hit += found
            if found < part:
                break
        return hit

    def _exists(self, keys: List[bytes]) -> Steps:
        present: List[bool] = []
        for first in range(0, len(keys), KEYS_MAX):
            part = keys[first:first + KEYS_MAX]
            _, body = yield from self._ask(EXISTS, b"".join(part), len(part), body_max=len(part))
            if len(body) != len(part):
                raise self._other_form()
            present += [one != 0 for one in body]
        return present

    def _remove(self, keys: List[bytes]) -> Steps:
        for first in range(0, len(keys), KEYS_MAX):
            part = keys[first:first + KEYS_MAX]
            yield from self._ask(REMOVE, b"".join(part), len(part))

    def _save(self, keys: List[bytes], cache: Cache, ids: List[int], stream: Any,
              layers: Optional[Layers]) -> Steps:
        present = yield from self._exists(keys)
        out = [Status.OK] * len(keys)
        missing = [i for i, one in enumerate(present) if not one]
        if missing:
            made = yield from self._move(PUT, [keys[i] for i in missing], cache, [ids[i] for i in missing], stream,
                                         layers)
            for i, status in zip(missing, made):
                out[i] = status
        return out

    def _move(self, kind: int, keys: List[bytes], cache: Cache, ids: List[int], stream: Any = None,
              layers: Optional[Layers] = None) -> Steps:
        if len(keys) != len(ids):
            raise InvalidParam(f"{len(keys)} keys for {len(ids)} blocks")
        if layers is not None and self._layers != cache.layout.layers:
            raise InvalidParam(f"layers: the cache has {cache.layout.layers}, this client was made for {self._layers}")
        out: List[Status] = []
        until = time.monotonic() + self._timeout
        while len(out) < len(keys):
            comm = self._comm
            if comm is None:
                raise RankFailed("the store's server is not connected")
            if time.monotonic() > until:
                raise TimedOut(f"{len(out)} of {len(keys)} blocks were moved in {self._timeout:g} s")
            n = min(len(keys) - len(out), len(self._free), KEYS_MAX)
            if n == 0:
                yield None  # other calls have the whole buffer
                continue
            taken = [self._free.popleft() for _ in range(n)]
            try:
                part = slice(len(out), len(out) + n)
                if kind == PUT:
                    out += yield from self._put_part(comm, keys[part], cache, ids[part], taken, stream, layers)
                else:
                    last = layers if part.stop == len(keys) else None
                    out += yield from self._get_part(comm, keys[part], cache, ids[part], taken, last)
            finally:
                if self._comm is comm:
                    self._free.extend(taken)
        return out

    def _request(self, kind: int, keys: List[bytes], taken: List[int]) -> Any:
        ids = struct.pack(f"<{len(taken)}I", *taken)
        _, body = yield from self._ask(kind, b"".join(keys), len(keys), ids, 4 * len(keys))
        if len(body) != 4 * len(keys):
            raise self._other_form()
        return [Status(one) for one in struct.unpack(f"<{len(keys)}i", body)]

    def _put_part(self, comm: Comm, keys: List[bytes], cache: Cache, ids: List[int], taken: List[int],
                  stream: Any, layers: Optional[Layers]) -> Any:
        sent: List[Any] = []
        failed: Optional[KvclError] = None
        for layer in [None] if layers is None else range(self._layers):
            while layers is not None and layer not in layers.there and self._comm is comm and not layers.dropped:
                yield None  # it is being computed
            if layers is not None and layer not in layers.there:
                failed = Canceled("the blocks were not computed")
                break
            try:
                sent.append(comm.put(0, cache, ids, taken, layers=_range(layer), remote_cache=self.buffer,
                                     timeout=self._timeout, stream=stream if layers is None else layers.stream))
            except KvclError as error:
                failed = error
                break
        yield from self._transfers(comm, sent, failed)
        return (yield from self._request(PUT, keys, taken))

    def _get_part(self, comm: Comm, keys: List[bytes], cache: Cache, ids: List[int], taken: List[int],
                  layers: Optional[Layers]) -> Any:
        status = yield from self._request(GET, keys, taken)
        good = [i for i, one in enumerate(status) if one == Status.OK]
        if not good:
            return status
        theirs, ours = [taken[i] for i in good], [ids[i] for i in good]
        posted: List[Any] = []
        failed: Optional[KvclError] = None
        try:
            for layer in [None] if layers is None else range(self._layers):
                posted.append(comm.get(0, cache, theirs, ours, layers=_range(layer), remote_cache=self.buffer,
                                       timeout=self._timeout))
        except KvclError as error:
            failed = error
        yield from self._transfers(comm, posted, failed, layers)
        return status

    def _transfers(self, comm: Comm, requests: List[Any], failed: Optional[KvclError],
                   layers: Optional[Layers] = None) -> Steps:
        """Wait for all of them, so that none still moves bytes when the first error is raised."""
        for layer, request in enumerate(requests):
            try:
                yield request
                if layers is not None and failed is None:
                    layers.there.add(layer)
            except KvclError as error:
                failed = failed or error
        if failed is not None:
            if self._comm is comm and not isinstance(failed, (BadLayout, Canceled, InvalidParam, OutOfRange)):
                self._leave()
            raise failed
        if self._comm is not comm:
            raise RankFailed("the connection to the store's server was lost")


def _range(layer: Optional[int]) -> Optional[Tuple[int, int]]:
    """A selection of one layer; None: of all."""
    return None if layer is None else (layer, layer + 1)
