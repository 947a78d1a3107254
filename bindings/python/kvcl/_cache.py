"""Layouts and caches."""

import dataclasses
from typing import Any, Tuple

from . import _kvcl

_PER = {"one": 0, "layer": _kvcl.LAYOUT_PER_LAYER, "plane": _kvcl.LAYOUT_PER_PLANE}
_ORDERS = {"NHD": 0, "HND": 1}


@dataclasses.dataclass(frozen=True)
class Layout:
    """The positions of the bytes of a paged KV cache: a table of elements [layer][K/V plane][block][token][head][dim].

    Strides are bytes; 0 means dense. base selects the buffers: "one" for all, one per "layer" or per
    "plane" (K0 V0 K1 V1 ...). order ("NHD": [token][head][dim], or "HND") is of the default strides only. See
    include/kvcl/kvcl_layout.h.

    >>> import kvcl
    >>> layout = kvcl.Layout(layers=2, blocks=8, tokens=16, heads=4, head_dim=64, elem_bytes=2)
    >>> layout.block_bytes, layout.n_bases, layout.base_bytes
    (32768, 1, 262144)
    """

    layers: int = 1
    blocks: int = 1
    tokens: int = 1
    heads: int = 1
    head_dim: int = 1
    elem_bytes: int = 2
    kv: int = 2
    order: str = "NHD"
    base: str = "one"
    layer_stride: int = 0
    kv_stride: int = 0
    block_stride: int = 0
    token_stride: int = 0
    head_stride: int = 0
    _tuple: Tuple[int, ...] = dataclasses.field(init=False, repr=False, compare=False)
    _info: Tuple[int, int, int] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.base not in _PER:
            raise ValueError(f"base is {self.base!r}: one of {', '.join(_PER)} is possible")
        if self.order not in _ORDERS:
            raise ValueError(f"order is {self.order!r}: NHD or HND is possible")
        fields = (_PER[self.base], self.layers, self.kv, self.blocks, self.tokens, self.heads, self.head_dim,
                  self.elem_bytes, _ORDERS[self.order], self.layer_stride, self.kv_stride, self.block_stride,
                  self.token_stride, self.head_stride)
        object.__setattr__(self, "_tuple", fields)
        object.__setattr__(self, "_info", _kvcl.layout_info(fields))  # BadLayout names the field

    @classmethod
    def bytes(cls, blocks: int, block_bytes: int, block_stride: int = 0) -> "Layout":
        """Opaque blocks of block_bytes each; they match any block of the same number of bytes."""
        return cls(blocks=blocks, head_dim=block_bytes, elem_bytes=1, kv=1, block_stride=block_stride)

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all layers."""
        return self._info[0]

    @property
    def n_bases(self) -> int:
        """The number of buffers."""
        return self._info[1]

    @property
    def base_bytes(self) -> int:
        """The bytes that each buffer must have."""
        return self._info[2]

    def hash(self) -> "bytes_":
        """32 bytes, equal for layouts that put every byte at the same place."""
        return _kvcl.layout_hash(self._tuple)

    def check_compatible(self, other: "Layout") -> None:
        """BadLayout, naming the difference, unless whole blocks of both are compatible."""
        _kvcl.layout_compatible(self._tuple, other._tuple)

    def __str__(self) -> str:
        return _kvcl.layout_describe(self._tuple)


bytes_ = bytes


class Cache(_kvcl.Cache):
    """A paged KV cache: a layout committed over memory, with a name by which peers find it.

    buffers: the engine's own tensors, of the host or of a CUDA device, one, or one per base of the layout, which the
    cache keeps alive; None: the library allocates memory that peers on this host map, the fastest path.
    writable: peers may put into it; otherwise they only read it.

    >>> import kvcl
    >>> with kvcl.Context(boot="self") as ctx:
    ...     cache = ctx.cache("main", kvcl.Layout.bytes(blocks=4, block_bytes=8))
    ...     cache.write(0, b"8 bytes.")
    ...     cache.read(0)
    b'8 bytes.'
    """

    layout: Layout

    def __new__(cls, context: _kvcl.Context, name: str, layout: Layout, buffers: Any = None, *,
                writable: bool = False) -> "Cache":
        if not isinstance(layout, Layout):
            raise TypeError(f"a Layout is needed, not {type(layout).__name__!r}")
        if buffers is not None and not isinstance(buffers, (list, tuple)):
            buffers = (buffers,)
        self = cls._create(context, name, layout._tuple, None if buffers is None else tuple(buffers), writable)
        self.layout = layout
        return self

    @property
    def bases(self) -> Tuple[memoryview, ...]:
        """Writable memoryviews of its memory, one per base. close() releases them; release views of them first."""
        return tuple(self._view(i, self.layout.base_bytes) for i in range(self.layout.n_bases))

    def read(self, block: int) -> bytes:
        """A block's bytes in canonical order (layer, K/V, token, head, dim)."""
        out = bytearray(self.block_bytes)
        self.read_into(block, out)
        return bytes(out)

    def __enter__(self) -> "Cache":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<kvcl.Cache, closed>" if self.closed else f"<kvcl.Cache {self.name!r}: {self.layout}>"
