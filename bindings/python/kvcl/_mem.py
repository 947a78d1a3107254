"""Plain memory: local, exported to peers, and remote, imported from a peer."""

import time
from array import array
from typing import Any, Iterable, Optional, Tuple, Union

from . import _kvcl
from ._errors import WaitTimeout
from ._request import Request


#: Of a put: after its data is visible, add n to the 8-byte counter at an offset of memory of the same peer.
Signal = Optional[Tuple["RemoteMem", int, int]]  # (memory, offset, n)


class Mem(_kvcl.Mem):
    """Registered bytes that are not a cache: from Context.register(), .alloc() or .map_file().

    >>> import kvcl
    >>> with kvcl.Context(boot="self") as ctx:
    ...     mem = ctx.alloc(64)
    ...     remote = ctx.world.attach(0, mem.export(write=True))  # on a peer, with the bytes that export() gave here
    ...     remote.put(8, b"abc", signal=(remote, 0, 1)).wait()
    ...     mem.signal_wait(0, 1)
    ...     mem.view()[8:11].tobytes()
    b'abc'
    """

    def export(self, read: bool = True, write: bool = False) -> bytes:
        """A description for Comm.attach() on a peer; send it by any means. It grants these rights to any holder."""
        return self._export((_kvcl.READ if read else 0) | (_kvcl.WRITE if write else 0))

    def signal_wait(self, offset: int, value: int, timeout: Optional[float] = None) -> None:
        """Wait until the 8-byte counter at offset is at least value: signals of puts (RemoteMem.put) add to it.

        The puts' data is visible then. WaitTimeout after timeout seconds; without a timeout it waits for ever.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = 0.1 if until is None else min(0.1, until - time.monotonic())
            if self._signal_wait(offset, value, max(left, 1e-6)):
                return
            if until is not None and time.monotonic() >= until:
                raise WaitTimeout(f"the counter at {offset} has not reached {value}")

    def __enter__(self) -> "Mem":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __len__(self) -> int:
        return self.nbytes

    def __repr__(self) -> str:
        return "<kvcl.Mem, closed>" if self.closed else f"<kvcl.Mem: {self.nbytes} bytes>"


def _pack(offsets: Iterable[int], at: Iterable[int], lengths: Union[int, Iterable[int]]) -> Any:
    """Three lists of numbers as one array of (offset there, offset here, length)."""
    there, here = array("Q", offsets), array("Q", at)
    n = array("Q", [lengths]) * len(there) if isinstance(lengths, int) else array("Q", lengths)
    if not len(there) == len(here) == len(n):
        raise ValueError(f"{len(there)} offsets, {len(here)} places here, {len(n)} lengths: give as many of each")
    packed = array("Q", bytes(24 * len(there)))
    packed[0::3], packed[1::3], packed[2::3] = there, here, n
    return packed


class RemoteMem(_kvcl.RemoteMem):
    """A peer's memory, from Comm.attach()."""

    def get(self, offset: int, buffer: Any, *, timeout: Optional[float] = None,
            notify: Optional[bytes] = None, background: bool = False) -> Request[None]:
        """Fill a buffer with the bytes at offset.

        notify: the peer gets these bytes afterwards (Comm.notify_recv), as with every get and put. background: as
        Comm.get().
        """
        return self._move(Request(), False, offset, buffer, None, timeout, notify, background)

    def put(self, offset: int, data: Any, *, signal: Signal = None, timeout: Optional[float] = None,
            notify: Optional[bytes] = None, background: bool = False) -> Request[None]:
        """Write a buffer's bytes at offset. Done when they are visible to the peer.

        signal=(memory of the same peer, offset, n): after the data is visible, add n to the 8-byte counter there.
        """
        return self._move(Request(), True, offset, data, signal, timeout, notify, background)

    def get_vec(self, offsets: Iterable[int], local: Any, at: Iterable[int], lengths: Union[int, Iterable[int]], *,
                timeout: Optional[float] = None, notify: Optional[bytes] = None,
                background: bool = False) -> Request[None]:
        """Fetch many pieces in one operation: lengths[i] bytes at offsets[i], to at[i] of local.

        local is a writable buffer, or a Mem (which may be a device's). lengths may be one number for all pieces.
        """
        return self._move_vec(Request(), False, _pack(offsets, at, lengths), local, None, timeout, notify,
                              background)

    def put_vec(self, offsets: Iterable[int], local: Any, at: Iterable[int], lengths: Union[int, Iterable[int]], *,
                signal: Signal = None, timeout: Optional[float] = None, notify: Optional[bytes] = None,
                background: bool = False) -> Request[None]:
        """Write many pieces in one operation: lengths[i] bytes from at[i] of local, to offsets[i]. As put()."""
        return self._move_vec(Request(), True, _pack(offsets, at, lengths), local, signal, timeout, notify,
                              background)

    def __len__(self) -> int:
        return self.nbytes

    def __enter__(self) -> "RemoteMem":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<kvcl.RemoteMem, closed>" if self.closed else f"<kvcl.RemoteMem: {self.nbytes} bytes>"
