"""Mooncake's TransferEngine over contexts that connect to each other (Context.listen, Context.connect).

    from kvcl.compat.mooncake_engine import TransferEngine

or kvcl.compat.mooncake.install() before the program imports mooncake.engine. An engine is a context that listens at its
own name, "host:port"; a transfer connects to the peer when it first names it, and asks which memory it has registered.
No metadata server takes part: with "P2PHANDSHAKE", or a name without a port, a free port is taken (get_rpc_port()).
The paths, the secret and the deadlines are KVCL's (KVCL_NET, KVCL_SECRET_FILE, KVCL_TIMEOUT). Host memory only. Calls
return Mooncake's numbers, and none raises; the log of kvcl.compat says why one has failed.
"""

import bisect
import ctypes
import enum
import logging
import struct
import threading
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .._comm import Comm, RankState
from .._context import Context
from .._errors import DeadHandle, InvalidParam, KvclError, Shutdown
from .._mem import Mem, RemoteMem

log = logging.getLogger("kvcl.compat")

TAG = 0x6b74  # of the lists of memory
ASK, NOTE = b"A", b"N"
_COUNT = struct.Struct("<I")
_REGION = struct.Struct("<QQI")  # address, bytes, bytes of the description


class TransferOpcode(enum.Enum):
    READ = 0
    WRITE = 1


class TransferNotify:
    """What get_notifies() returns: a name and a message."""

    def __init__(self, name: str = "", msg: str = "") -> None:
        self.name, self.msg = name, msg


def name_split(name: str) -> Tuple[str, str]:
    """The host and the port of "host", "host:port", "[an IPv6 address]" with or without ":port"; no port: ""."""
    host, _, port = name.rpartition(":")
    return (host, port) if port.isdigit() and (":" not in host or host.endswith("]")) else (name, "")


class _OnDevice:
    """Bytes of a device."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = dict(shape=(size,), typestr="|u1", data=(address, False), strides=None,
                                             version=3)


def register_at(context: Context, address: int, size: int, device: bool) -> Mem:
    """Register memory by its address. device: it may be a device's, which the driver knows; without, it is host memory.

    KvclError: it cannot be registered; with device Unsupported if this library was built without devices.
    """
    if device:
        try:
            context.register(_OnDevice(address, 1)).close()
        except InvalidParam:  # the driver says that it is no device's
            device = False
    return context.register(_OnDevice(address, size) if device else (ctypes.c_ubyte * size).from_address(address))


def note_pack(name: str, msg: str) -> bytes:
    """A notification of a program."""
    raw = name.encode()
    return NOTE + _COUNT.pack(len(raw)) + raw + msg.encode()


def note_read(data: bytes) -> Optional[TransferNotify]:
    """None: it is none."""
    if len(data) < 1 + _COUNT.size:
        return None
    at, (n,) = 1 + _COUNT.size, _COUNT.unpack_from(data, 1)
    if n > len(data) - at:
        return None
    return TransferNotify(data[at:at + n].decode(errors="replace"), data[at + n:].decode(errors="replace"))


def table_pack(regions: Sequence[Tuple[int, int, bytes]]) -> bytes:
    """The list of memory: (address, bytes, description) each."""
    return _COUNT.pack(len(regions)) + b"".join(_REGION.pack(base, size, len(text)) + text
                                                for base, size, text in regions)


def table_read(data: bytes) -> List[Tuple[int, int, bytes]]:
    """ValueError: it has another form."""
    out, at = [], _COUNT.size
    for _ in range(_COUNT.unpack_from(data)[0] if len(data) >= at else 0):
        if len(data) - at < _REGION.size:
            raise ValueError("a list of memory ends too early")
        base, size, n = _REGION.unpack_from(data, at)
        at += _REGION.size
        if n > len(data) - at:
            raise ValueError("a list of memory ends too early")
        out.append((base, size, data[at:at + n]))
        at += n
    if at != len(data):
        raise ValueError("a list of memory has bytes too many, or too few")
    return out


class Region(NamedTuple):
    base: int
    size: int
    memory: Any  # Mem, or RemoteMem


class Regions:
    """Memory by address. Those of one engine do not overlap."""

    def __init__(self, regions: Sequence[Region] = ()) -> None:
        self.all = sorted(regions, key=lambda one: one.base)
        self._bases = [one.base for one in self.all]

    def holding(self, address: int, size: int) -> Optional[Region]:
        i = bisect.bisect_right(self._bases, address) - 1
        found = self.all[i] if i >= 0 else None
        return found if found is not None and address + size <= found.base + found.size else None


class _Peer:
    """A connection, and the memory that the other side has registered."""

    def __init__(self, comm: Comm) -> None:
        self.comm, self.regions, self.first = comm, Regions(), 0
        self.lock = threading.Lock()

    def ask(self, timeout: float) -> None:
        """Read the list anew. KvclError, ValueError: there is none."""
        with self.lock:
            self.comm.notify(0, ASK, timeout=timeout).wait()
            seen = self.comm.probe(0, TAG, timeout)
            if seen is None:
                raise ValueError("the peer sends no list of its memory")
            data = bytearray(seen.bytes)
            self.comm.recv_bytes(0, TAG, data, timeout=timeout).wait()
            rows = table_read(bytes(data))
            self.regions = Regions([Region(base, size, self.comm.attach(0, text)) for base, size, text in rows])
            self.first = rows[0][0] if rows else 0

    def doubt(self) -> None:
        """A transfer has failed: its memory may have been registered anew. The next one asks."""
        self.regions = Regions()

    @property
    def lost(self) -> bool:
        return self.comm.closed or self.comm.rank_state(0) == RankState.FAILED


class TransferEngine:
    """The calls of Mooncake's class, for host memory."""

    def __init__(self) -> None:
        self._context: Optional[Context] = None
        self._door: Any = None
        self._name, self._port = "", 0
        self._lock = threading.Lock()
        self._local: List[Region] = []  # in the order of registration
        self._index = Regions()
        self._peers: Dict[str, _Peer] = {}
        self._meeting: Dict[str, threading.Lock] = {}  # held while a thread connects to that peer
        self._notes: List[TransferNotify] = []
        self._batches: Dict[int, Tuple[List[Any], _Peer]] = {}
        self._last = 0
        self._closing = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self.timeout = self.connect_timeout = 30.0
        self.device = False  # memory that is registered may be a device's

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"kvcl.compat.mooncake_engine: TransferEngine.{name} is not offered")

    # ---- opening ----

    def initialize(self, local_hostname: str, metadata_server: str = "P2PHANDSHAKE", protocol: str = "tcp",
                   device_name: str = "") -> int:
        """Listen at local_hostname. 0, or -1."""
        if self._context is not None:
            return self._failed("initialize", "it was called before")
        host, port = name_split(local_hostname)
        if metadata_server == "P2PHANDSHAKE" or not port:
            port = "0"
        self._closing.clear()  # of a close() before, or of an initialize() that has failed
        try:
            self._context = Context(boot="self")
            self._door = self._context.listen(f"{host}:{port}")
            address = self._door.address or ""
        except KvclError as error:
            self.close()
            return self._failed("initialize", error)
        self._port = int(address.rpartition(":")[2])
        self._name = f"{host}:{self._port}"
        self._thread = threading.Thread(target=self._serve, name="kvcl-transfer-engine", daemon=True)
        self._thread.start()
        return 0

    def initialize_ext(self, local_hostname: str, metadata_server: str, protocol: str, device_name: str,
                       metadata_type: str = "") -> int:
        """As initialize()."""
        return self.initialize(local_hostname, metadata_server, protocol, device_name)

    @property
    def session(self) -> str:
        """What others name this engine: "host:port"."""
        return self._name

    def get_rpc_port(self) -> int:
        """The port that others name."""
        return self._port

    def close(self) -> None:
        """End all connections."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(10)
        context, self._context = self._context, None
        if context is not None:
            context.close()
        self._local, self._index, self._peers, self._batches = [], Regions(), {}, {}

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # the interpreter ends
            pass

    # ---- memory ----

    def register_memory(self, buffer_addr: int, capacity: int, location: str = "*") -> int:
        """Let peers read and write this memory, which must stay until unregister_memory(). 0, or -1."""
        if self._context is None or buffer_addr <= 0 or capacity <= 0:
            return self._failed("register_memory", "no engine, or no memory")
        try:
            memory = register_at(self._context, buffer_addr, capacity, self.device)
        except KvclError as error:
            return self._failed("register_memory", error)
        with self._lock:
            self._local.append(Region(buffer_addr, capacity, memory))
            self._index = Regions(self._local)
        return 0

    def unregister_memory(self, buffer_addr: int) -> int:
        """Take it back: 0, or -1."""
        with self._lock:
            found = [one for one in self._local if one.base == buffer_addr]
            self._local = [one for one in self._local if one.base != buffer_addr]
            self._index = Regions(self._local)
        for one in found:
            one.memory.close()
        return 0 if found else self._failed("unregister_memory", "it was not registered")

    def batch_register_memory(self, buffer_addresses: Sequence[int], capacities: Sequence[int],
                              location: str = "*") -> int:
        """register_memory() of each; -1: of one it has failed."""
        return min([self.register_memory(*one) for one in zip(buffer_addresses, capacities)], default=0)

    def batch_unregister_memory(self, buffer_addresses: Sequence[int]) -> int:
        """unregister_memory() of each."""
        return min([self.unregister_memory(one) for one in buffer_addresses], default=0)

    def allocate_managed_buffer(self, length: int) -> int:
        """Registered memory of the library, which peers of this host map: its address; 0: there is none."""
        if self._context is None or length <= 0:
            return 0
        try:
            memory = self._context.alloc(length)
        except KvclError as error:
            self._failed("allocate_managed_buffer", error)
            return 0
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory.view()))
        with self._lock:
            self._local.append(Region(base, length, memory))
            self._index = Regions(self._local)
        return base

    def free_managed_buffer(self, user_tensor: int, length: int) -> int:
        """Give it back."""
        return self.unregister_memory(user_tensor)

    def get_first_buffer_address(self, segment_name: str) -> int:
        """The address of the first memory that an engine has registered; 0: none."""
        if segment_name == self._name:
            return self._local[0].base if self._local else 0
        peer = self._peer(segment_name)
        if peer is None:
            return 0
        try:
            peer.ask(self.timeout)
        except (KvclError, ValueError) as error:
            self._failed("get_first_buffer_address", error)
            return 0
        return peer.first

    def write_bytes_to_buffer(self, dest_address: int, src_ptr: Any, length: int) -> int:
        """Copy bytes to an address of this process."""
        ctypes.memmove(dest_address, bytes(src_ptr[:length]), length)
        return 0

    def read_bytes_from_buffer(self, source_address: int, length: int) -> bytes:
        """Bytes at an address of this process."""
        return ctypes.string_at(source_address, length)

    # ---- transfers ----

    def transfer_sync_write(self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int,
                            transport_hint: str = "") -> int:
        """Write to a peer's registered memory. 0, or -1."""
        return self._sync(target_hostname, True, [buffer], [peer_buffer_address], [length])

    def transfer_sync_read(self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int,
                           transport_hint: str = "") -> int:
        """Read a peer's registered memory. 0, or -1."""
        return self._sync(target_hostname, False, [buffer], [peer_buffer_address], [length])

    def batch_transfer_sync_write(self, target_hostname: str, buffers: Sequence[int],
                                  peer_buffer_addresses: Sequence[int], lengths: Sequence[int],
                                  transport_hint: str = "") -> int:
        """Write many pieces in one operation. 0, or -1: some may have been written."""
        return self._sync(target_hostname, True, buffers, peer_buffer_addresses, lengths)

    def batch_transfer_sync_read(self, target_hostname: str, buffers: Sequence[int],
                                 peer_buffer_addresses: Sequence[int], lengths: Sequence[int],
                                 transport_hint: str = "") -> int:
        """Read many pieces in one operation."""
        return self._sync(target_hostname, False, buffers, peer_buffer_addresses, lengths)

    def transfer_sync(self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int,
                      opcode: TransferOpcode, notify: Optional[TransferNotify] = None,
                      transport_hint: str = "") -> int:
        """Read or write; the peer's get_notifies() has notify afterwards."""
        return self._sync(target_hostname, opcode == TransferOpcode.WRITE, [buffer], [peer_buffer_address], [length],
                          notify)

    def batch_transfer_sync(self, target_hostname: str, buffers: Sequence[int], peer_buffer_addresses: Sequence[int],
                            lengths: Sequence[int], opcode: TransferOpcode, notify: Optional[TransferNotify] = None,
                            transport_hint: str = "") -> int:
        """transfer_sync() of many pieces."""
        return self._sync(target_hostname, opcode == TransferOpcode.WRITE, buffers, peer_buffer_addresses, lengths,
                          notify)

    def batch_transfer_async_write(self, target_hostname: str, buffers: Sequence[int],
                                   peer_buffer_addresses: Sequence[int], lengths: Sequence[int],
                                   transport_hint: str = "") -> int:
        """Begin to write; the number of the batch, 0: it has failed."""
        return self._begin(target_hostname, True, buffers, peer_buffer_addresses, lengths)

    def batch_transfer_async_read(self, target_hostname: str, buffers: Sequence[int],
                                  peer_buffer_addresses: Sequence[int], lengths: Sequence[int],
                                  transport_hint: str = "") -> int:
        """Begin to read."""
        return self._begin(target_hostname, False, buffers, peer_buffer_addresses, lengths)

    def batch_transfer_async(self, target_hostname: str, buffers: Sequence[int], peer_buffer_addresses: Sequence[int],
                             lengths: Sequence[int], opcode: TransferOpcode, transport_hint: str = "") -> int:
        """Begin to read or write."""
        return self._begin(target_hostname, opcode == TransferOpcode.WRITE, buffers, peer_buffer_addresses, lengths)

    def transfer_submit_write(self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int,
                              transport_hint: str = "") -> int:
        """Begin to write one piece."""
        return self._begin(target_hostname, True, [buffer], [peer_buffer_address], [length])

    def transfer_check_status(self, batch_id: int) -> int:
        """1: the batch has ended, and is forgotten; 0: not yet; -1: it has failed."""
        batch = self._batches.get(batch_id)
        if batch is not None and not all(one.done() for one in batch[0]):
            return 0
        return 1 if self.get_batch_transfer_status([batch_id]) == 0 else -1

    def get_batch_transfer_status(self, batch_ids: Sequence[int]) -> int:
        """Wait for batches: 0, or -1 if one has failed or does not exist."""
        out = 0
        for number in batch_ids:
            batch = self._batches.pop(number, None)
            out = min(out, self._failed("batch", f"there is no {number}") if batch is None else self._end(*batch))
        return out

    # ---- peers ----

    def get_notifies(self) -> List[TransferNotify]:
        """What peers have sent with their transfers since the last call."""
        with self._lock:
            notes, self._notes = self._notes, []
        return notes

    def send_probe(self, peer_server_name: str) -> int:
        """0: the peer answers."""
        peer = self._peer(peer_server_name)
        if peer is None:
            return -1
        try:
            peer.ask(self.timeout)
        except (KvclError, ValueError) as error:
            return self._failed("send_probe", error)
        return 0

    # ---- inside ----

    def _failed(self, what: str, why: Any) -> int:
        log.warning("TransferEngine: %s: %s", what, why)
        return -1

    def _serve(self) -> None:
        """The thread that answers peers."""
        while not self._closing.is_set():
            try:
                self._turn()
                got = self._door.notify_recv(0.5)
                if got is not None and got[1][:1] == ASK:
                    with self._lock:
                        rows = [(one.base, one.size, one.memory.export(write=True)) for one in self._local]
                    self._door.send_bytes(got[0], TAG, table_pack(rows), timeout=self.timeout)
                elif got is not None and (note := note_read(got[1])) is not None:
                    self._noted(got[0], note)
            except KvclError as error:
                if isinstance(error, (Shutdown, DeadHandle)) or self._door.closed:
                    return
                self._failed("a peer", error)
                self._closing.wait(0.1)

    def _noted(self, source: int, note: TransferNotify) -> None:
        with self._lock:
            self._notes.append(note)

    def _turn(self) -> None:
        """Called by the thread that answers peers, at least twice a second."""

    def _met(self, peer: _Peer) -> None:
        """Called when a connection was made, before it is used. KvclError: it is not used."""

    def _peer(self, name: str) -> Optional[_Peer]:
        with self._lock:
            context, meeting = self._context, self._meeting.setdefault(name, threading.Lock())
        if context is None:
            return None
        with meeting:
            peer = self._peers.get(name)
            if peer is not None and not peer.lost:
                return peer
            try:
                peer = _Peer(context.connect(name, timeout=min(self.timeout, self.connect_timeout)))
                self._met(peer)
            except KvclError as error:
                self._failed(name, error)
                return None
            self._peers[name] = peer
            return peer

    def _post(self, name: str, write: bool, buffers: Sequence[int], theirs: Sequence[int], lengths: Sequence[int],
              notify: Optional[TransferNotify]) -> Optional[Tuple[List[Any], _Peer]]:
        if not len(buffers) == len(theirs) == len(lengths):
            self._failed(name, f"{len(buffers)} buffers, {len(theirs)} addresses, {len(lengths)} lengths")
            return None
        peer = self._peer(name)
        if peer is None:
            return None
        requests: List[Any] = []
        try:
            regions = [peer.regions.holding(at, size) for at, size in zip(theirs, lengths)]
            if None in regions:
                peer.ask(self.timeout)
                regions = [peer.regions.holding(at, size) for at, size in zip(theirs, lengths)]
            groups: Dict[Any, Tuple[Any, Any, List[int], List[int], List[int]]] = {}
            for far, here, there, size in zip(regions, buffers, theirs, lengths):
                near = self._index.holding(here, size)
                if far is None or here <= 0:
                    self._failed(name, f"{size} bytes at {there:#x} are not registered there")
                    return None
                if near is None and self.device:
                    self._failed(name, f"{size} bytes at {here:#x} are not registered here")
                    return None
                base = near.base if near is not None else here
                local = near.memory if near is not None else (ctypes.c_ubyte * size).from_address(here)
                lists = groups.setdefault((far.base, base if near is not None else (here, size)),
                                          (far.memory, local, [], [], []))
                for one, value in zip(lists[2:], (there - far.base, here - base, size)):
                    one.append(value)
            note = None if notify is None else note_pack(notify.name, notify.msg)
            for memory, local, at, from_, n in groups.values():
                move = memory.put_vec if write else memory.get_vec
                requests.append(move(at, local, from_, n, timeout=self.timeout,
                                     notify=note if len(groups) == 1 else None))
            if note is not None and len(groups) != 1:
                if self._end(requests, peer) != 0:
                    return None
                requests.append(peer.comm.notify(0, note, timeout=self.timeout))
            return requests, peer
        except (KvclError, ValueError) as error:
            for request in requests:  # none may move bytes when the caller learns that it has failed
                with request:
                    pass
            peer.doubt()
            self._failed(name, error)
            return None

    def _end(self, requests: Sequence[Any], peer: _Peer) -> int:
        """Wait for the parts of a transfer: 0, or -1."""
        out = 0
        for one in requests:
            try:
                one.wait()
            except KvclError as error:
                out = self._failed("a transfer", error)
        if out != 0:
            peer.doubt()
        return out

    def _sync(self, name: str, write: bool, buffers: Sequence[int], theirs: Sequence[int], lengths: Sequence[int],
              notify: Optional[TransferNotify] = None) -> int:
        posted = self._post(name, write, buffers, theirs, lengths, notify)
        return -1 if posted is None else self._end(*posted)

    def _begin(self, name: str, write: bool, buffers: Sequence[int], theirs: Sequence[int],
               lengths: Sequence[int]) -> int:
        posted = self._post(name, write, buffers, theirs, lengths, None)
        if posted is None or not posted[0]:
            return 0
        with self._lock:
            self._last += 1
            self._batches[self._last] = posted
            return self._last


TransferEngine.TransferOpcode, TransferEngine.TransferNotify = TransferOpcode, TransferNotify  # type: ignore
