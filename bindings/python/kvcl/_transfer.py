"""Prepared transfers, and the streams that operations follow."""

from typing import Any, Optional

from . import _kvcl
from ._request import Request


def stream_handle(stream: Any) -> int:
    """A CUstream as a number, 0 for none: a number, a torch.cuda.Stream, a cupy.cuda.Stream, or __cuda_stream__."""
    if stream is None:
        return 0
    if hasattr(stream, "__cuda_stream__"):
        stream = stream.__cuda_stream__()[1]
    else:
        stream = getattr(stream, "cuda_stream", getattr(stream, "ptr", stream))
    if not isinstance(stream, int) or stream < 0:
        raise TypeError(f"a CUDA stream or its handle is needed, not {type(stream).__name__!r}")
    return stream or 1  # the null stream has no handle of its own: CU_STREAM_LEGACY


class Transfer(_kvcl.Transfer):
    """A get or put of Comm.prepare_get() or prepare_put(), for many postings, by any threads.

    >>> import kvcl
    >>> with kvcl.Context(boot="self") as ctx:
    ...     cache = ctx.cache("main", kvcl.Layout.bytes(blocks=4, block_bytes=8))
    ...     cache.write(0, b"8 bytes.")
    ...     with ctx.world.prepare_get(0, cache) as fetch:
    ...         for block in (1, 2, 3):
    ...             fetch.post(remote=[block - 1], local=[block]).wait()
    ...     cache.read(3)
    b'8 bytes.'
    """

    def post(self, local: Any, remote: Any, *, timeout: Optional[float] = None, stream: Any = None,
             notify: Optional[bytes] = None) -> Request[None]:
        """Move these blocks, with the ranges that it was prepared with. timeout None: that of the preparation."""
        return self._post(Request(), local, remote, timeout, stream_handle(stream), notify)

    def __enter__(self) -> "Transfer":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<kvcl.Transfer, closed>" if self.closed else "<kvcl.Transfer>"
