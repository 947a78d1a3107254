"""The engine below kvcl.sglang_disagg: it writes a prefill engine's KV cache into a decode engine's memory. Needs no
SGLang.

Each process has one Engine, a context that listens. A prefill rank connects to the decode ranks that name their engines
to it, introduces itself, and writes by put_vec. A decode rank learns so which prefill ranks have ended.
"""

import logging
import threading
import time
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from ._comm import RankState
from .compat.mooncake_engine import TransferEngine, TransferNotify, _Peer, note_pack

log = logging.getLogger("kvcl")

WHO = "kvcl.sglang_disagg"
CONNECT = 5.0  # seconds: SGLang's transfer threads serve other requests, too
GRACE = 1.0    # seconds between the end of a prefill rank and its report: what it has sent before is taken first


def page_mismatch(mine: Sequence[int], theirs: Sequence[int], buffers: int, same: bool) -> Optional[str]:
    """What is wrong with the sizes of a decode rank's pages, one for each buffer of the KV cache; None: nothing. Pages
    are addressed there by the size that they have here, so one of another size would be written over its neighbours.

    same: both sides' ranks hold the same heads. A side with other layers (pipeline parallelism) has other buffers.
    """
    if theirs and len(theirs) != buffers:
        return f"the decode engine registers {buffers} buffers of KV cache, and sizes of pages for {len(theirs)}"
    if same and len(theirs) == len(mine):
        for i, (a, b) in enumerate(zip(mine, theirs)):
            if a != b:
                return (f"a page of KV buffer {i} has {a} bytes here and {b} bytes in the decode engine: give both the "
                        f"same model, --page-size and --kv-cache-dtype")
    return None


class _Transfers(TransferEngine):
    def __init__(self) -> None:
        super().__init__()
        self.connect_timeout = CONNECT
        self.name = ""  # by which peers know this rank; "": it does not introduce itself
        self.lost: Optional[Callable[[str], None]] = None
        self._here = threading.local()
        self._known: Dict[int, str] = {}               # by the number of the connection
        self._ended: List[Tuple[float, str]] = []

    @property
    def why(self) -> str:
        """Why this thread's last call has failed."""
        return getattr(self._here, "why", "")

    def _failed(self, what: str, why: object) -> int:
        self._here.why = f"{what}: {why}"
        return -1

    def _met(self, peer: _Peer) -> None:
        if self.name:
            peer.comm.notify(0, note_pack(WHO, self.name), timeout=CONNECT).wait()

    def _noted(self, source: int, note: TransferNotify) -> None:
        if note.name == WHO:
            self._known[source] = note.msg

    def _turn(self) -> None:
        """Report the peers that have ended, unless they have connected again."""
        now = time.monotonic()
        for number in [one for one in self._known if self._door.rank_state(one) == RankState.FAILED]:
            self._ended.append((now + GRACE, self._known.pop(number)))
        while self._ended and self._ended[0][0] <= now:
            _, name = self._ended.pop(0)
            lost = self.lost
            if lost is not None and name not in self._known.values():
                try:
                    lost(name)
                except Exception as error:  # it must not end the thread
                    log.warning("%s: %s has ended: %r", WHO, name, error)


class Engine:
    """What SGLang's managers call, in Mooncake's terms: a session is "host:port" of a peer's engine.

    host: an address of this host that peers reach. device: memory may be a GPU's. RuntimeError: it cannot listen, with
    the reason. Any thread may call it.
    """

    def __init__(self, host: str, device: bool = False) -> None:
        self._transfers = _Transfers()
        self._transfers.device = device
        if self._transfers.initialize(f"[{host}]" if ":" in host else host, "P2PHANDSHAKE") != 0:
            raise RuntimeError(f"{WHO}: no engine at {host}: {self._transfers.why}")
        self._session = self._transfers.session

    def introduce(self, name: str) -> None:
        """Peers that this rank connects to know it by this name from now on."""
        self._transfers.name = name

    def watch(self, lost: Optional[Callable[[str], None]]) -> None:
        """lost(name) is called, by a thread, when a peer that has introduced itself has ended. None: no more."""
        self._transfers.lost = lost

    def meet(self, session: str) -> str:
        """Connect to a peer, if that is to be done, and ask for its memory anew. "", or why that has failed."""
        return "" if self._transfers.send_probe(session) == 0 else self._transfers.why

    def alive(self, session: str) -> bool:
        """Whether there is a connection to a peer."""
        peer = self._transfers._peers.get(session)
        return peer is not None and not peer.lost

    @property
    def why(self) -> str:
        """Why this thread's last failed call has failed."""
        return self._transfers.why

    def take_why(self) -> str:
        """why, once."""
        why, self._transfers._here.why = self._transfers.why, ""
        return why

    def close(self) -> None:
        """End all connections."""
        self._transfers.close()

    # ---- SGLang's calls ----

    def get_session_id(self) -> str:
        """What peers call this engine."""
        return self._session

    def batch_register(self, ptrs: Sequence[int], lengths: Sequence[int]) -> int:
        """Let peers write this memory, until batch_deregister(). RuntimeError: that cannot be."""
        done: List[int] = []
        for ptr, length in zip(ptrs, lengths):
            if self._transfers.register_memory(ptr, length) != 0:
                why = self.why
                self.batch_deregister(done)
                raise RuntimeError(f"{WHO}: {length} bytes at {ptr:#x} cannot be registered: {why}")
            done.append(ptr)
        return 0

    def batch_deregister(self, ptrs: Sequence[int]) -> int:
        """Peers can write it no more."""
        return self._transfers.batch_unregister_memory(ptrs)

    def batch_transfer_sync(self, session: str, buffers: Sequence[int], peer_addresses: Sequence[int],
                            lengths: Sequence[int]) -> int:
        """Write many pieces into a peer's registered memory. 0: all are visible there; -1: some may have been written,
        but nothing reads the memory here any more, and `why` says why."""
        status = self._transfers.batch_transfer_sync_write(session, buffers, peer_addresses, lengths)
        if status != 0:
            log.warning("%s: a transfer to %s has failed: %s", WHO, session, self.why)
        return status

    def send_probe(self, session: str) -> int:
        """0: the peer answers."""
        return self._transfers.send_probe(session)
