"""MooncakeDistributedStore's calls for torch's tensors: a value is a header of 128 bytes, and the tensor's bytes.

A tensor that is split for tensor parallelism is one value a rank, under KEY_tp_RANK, as Mooncake names them. Tensors of
a device are copied to the host first, and what is returned is in the host's memory. The header is KVCL's own: a value
that Mooncake itself has stored is none.
"""

import ctypes
import math
import struct
from typing import Any, List, Optional, Sequence, Tuple

OK, FAILED, INVALID, NOT_FOUND = 0, -1, -600, -704  # Mooncake's numbers

# In Mooncake's order; the place in the list is stored.
DTYPES = ("float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool",
          "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
DIMS_MAX = 14
_HEAD = struct.Struct(f"<8sII{DIMS_MAX}q")  # magic, dtype, dimensions, shape
MAGIC = b"kvclten1"


def head_of(dtype: str, shape: Sequence[int]) -> bytes:
    """The header. ValueError: a tensor that cannot be stored."""
    if dtype not in DTYPES or len(shape) > DIMS_MAX:
        raise ValueError(f"a tensor of {dtype} with {len(shape)} dimensions: {', '.join(DTYPES)} with at most "
                         f"{DIMS_MAX} can be stored")
    return _HEAD.pack(MAGIC, DTYPES.index(dtype), len(shape), *shape, *[0] * (DIMS_MAX - len(shape)))


def head_read(head: Any, size: int, itemsize: Any) -> Optional[Tuple[str, Tuple[int, ...]]]:
    """The type and the shape of a value of `size` bytes; None: no tensor. itemsize(type): bytes of an element."""
    if size < _HEAD.size:
        return None
    magic, dtype, dims, *shape = _HEAD.unpack_from(head)
    if magic != MAGIC or dtype >= len(DTYPES) or dims > DIMS_MAX or any(one < 0 for one in shape):
        return None
    found = tuple(shape[:dims])
    if math.prod(found) * itemsize(DTYPES[dtype]) != size - _HEAD.size:
        return None
    return DTYPES[dtype], found


def _itemsize(dtype: str) -> int:
    import torch
    return int(getattr(torch, dtype).itemsize)


def _parts(tensor: Any) -> List[memoryview]:
    """A tensor as the buffers of its value. ValueError, AttributeError: no tensor that can be stored."""
    import torch
    tensor = tensor.detach().cpu().contiguous()
    head = memoryview(head_of(str(tensor.dtype).rpartition(".")[2], tuple(tensor.shape)))
    if tensor.numel() == 0:
        return [head]
    return [head, memoryview(tensor.reshape(-1).view(torch.uint8).numpy())]


def _tensor(value: Any, size: int) -> Any:
    """The tensor over a value's bytes, which it keeps; None: the value is none."""
    import torch
    found = head_read(value, size, _itemsize)
    if found is None:
        return None
    dtype, shape = getattr(torch, found[0]), found[1]
    if math.prod(shape) == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(value, dtype=dtype, offset=_HEAD.size, count=math.prod(shape)).reshape(shape)


def tp_key(key: str, rank: int) -> str:
    """The key of a rank's shard."""
    return f"{key}_tp_{rank}"


class Tensors:
    """The calls. The class that inherits it has _put(), batch_get_buffer(), batch_get_into() and batch_put_from()."""

    # ---- whole tensors ----

    def _put_tensors(self: Any, keys: Sequence[str], tensors: Sequence[Any], config: Any = None,
                     replace: bool = False) -> List[int]:
        if len(keys) != len(tensors):
            return [INVALID] * len(keys)
        out, parts = [INVALID] * len(keys), []
        for i, tensor in enumerate(tensors):
            try:
                parts.append((i, _parts(tensor)))
            except (AttributeError, ValueError, TypeError):
                continue
        done = self._put([keys[i] for i, _ in parts], [one for _, one in parts], config, replace)
        for (i, _), one in zip(parts, done):
            out[i] = one
        return out

    def put_tensor(self, key: str, tensor: Any) -> int:
        """Put a tensor. 0, or an error."""
        return self._put_tensors([key], [tensor])[0]

    def batch_put_tensor(self, keys: Sequence[str], tensors_list: Sequence[Any]) -> List[int]:
        """put_tensor() of each key."""
        return self._put_tensors(keys, tensors_list)

    def pub_tensor(self, key: str, tensor: Any, config: Any = None) -> int:
        """put_tensor() with a ReplicateConfig."""
        return self._put_tensors([key], [tensor], config)[0]

    def batch_pub_tensor(self, keys: Sequence[str], tensors_list: Sequence[Any], config: Any = None) -> List[int]:
        """pub_tensor() of each key."""
        return self._put_tensors(keys, tensors_list, config)

    def upsert_tensor(self, key: str, tensor: Any) -> int:
        """Put a tensor in place of the value that is there."""
        return self._put_tensors([key], [tensor], None, True)[0]

    def batch_upsert_tensor(self, keys: Sequence[str], tensors_list: Sequence[Any]) -> List[int]:
        """upsert_tensor() of each key."""
        return self._put_tensors(keys, tensors_list, None, True)

    def upsert_pub_tensor(self, key: str, tensor: Any, config: Any = None) -> int:
        """upsert_tensor() with a ReplicateConfig."""
        return self._put_tensors([key], [tensor], config, True)[0]

    def batch_upsert_pub_tensor(self, keys: Sequence[str], tensors_list: Sequence[Any],
                                config: Any = None) -> List[int]:
        """upsert_pub_tensor() of each key."""
        return self._put_tensors(keys, tensors_list, config, True)

    def get_tensor(self, key: str) -> Any:
        """A tensor; None: it is absent, or the value is none."""
        return self.batch_get_tensor([key])[0]

    def batch_get_tensor(self: Any, keys: Sequence[str]) -> List[Any]:
        """get_tensor() of each key."""
        return [None if one is None else _tensor(one, len(one)) for one in self.batch_get_buffer(keys)]

    # ---- split for tensor parallelism ----

    def _put_split(self: Any, keys: Sequence[str], tensors: Sequence[Any], size: int, dim: int,
                   config: Any = None) -> List[int]:
        if size <= 1:
            return list(self._put_tensors(keys, tensors, config))
        if len(keys) != len(tensors):
            return [INVALID] * len(keys)
        names: List[str] = []
        shards: List[Any] = []
        counts = []
        for key, tensor in zip(keys, tensors):
            try:
                split = tensor.chunk(size, dim) if tensor.shape[dim] % size == 0 else ()
            except (AttributeError, IndexError, RuntimeError):
                split = ()
            counts.append(len(split))
            names += [tp_key(key, rank) for rank in range(len(split))]
            shards += split
        each = iter(self._put_tensors(names, shards, config))
        return [min([next(each) for _ in range(n)], default=INVALID) for n in counts]

    def put_tensor_with_tp(self, key: str, tensor: Any, tp_rank: int = 0, tp_size: int = 1,
                           split_dim: int = 0) -> int:
        """Put the shards of all ranks: the length of split_dim must be a multiple of tp_size."""
        return self._put_split([key], [tensor], tp_size, split_dim)[0]

    def batch_put_tensor_with_tp(self, base_keys: Sequence[str], tensors_list: Sequence[Any], tp_rank: int = 0,
                                 tp_size: int = 1, split_dim: int = 0) -> List[int]:
        """put_tensor_with_tp() of each key."""
        return self._put_split(base_keys, tensors_list, tp_size, split_dim)

    def pub_tensor_with_tp(self, key: str, tensor: Any, config: Any = None, tp_rank: int = 0, tp_size: int = 1,
                           split_dim: int = 0) -> int:
        """put_tensor_with_tp() with a ReplicateConfig."""
        return self._put_split([key], [tensor], tp_size, split_dim, config)[0]

    def batch_pub_tensor_with_tp(self, base_keys: Sequence[str], tensors_list: Sequence[Any], config: Any = None,
                                 tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0) -> List[int]:
        """pub_tensor_with_tp() of each key."""
        return self._put_split(base_keys, tensors_list, tp_size, split_dim, config)

    def get_tensor_with_tp(self, key: str, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0) -> Any:
        """This rank's shard."""
        return self.batch_get_tensor_with_tp([key], tp_rank, tp_size)[0]

    def batch_get_tensor_with_tp(self, base_keys: Sequence[str], tp_rank: int = 0, tp_size: int = 1) -> List[Any]:
        """This rank's shard of each key."""
        return self.batch_get_tensor(_names(base_keys, tp_rank, tp_size))

    # ---- registered buffers, which hold the header too ----

    def get_tensor_into(self, key: str, buffer_ptr: int, size: int) -> Any:
        """Get a tensor into a registered buffer, which it uses as long as it lives; None: it is absent."""
        found = self.batch_get_tensor_into([key], [buffer_ptr], [size])[0]
        return None if isinstance(found, int) else found

    def batch_get_tensor_into(self: Any, keys: Sequence[str], buffer_ptrs: Sequence[int],
                              sizes: Sequence[int]) -> List[Any]:
        """get_tensor_into() of each key."""
        if not len(keys) == len(buffer_ptrs) == len(sizes):
            return [INVALID] * len(keys)
        each = self.batch_get_into(keys, buffer_ptrs, sizes)
        return [_tensor((ctypes.c_ubyte * n).from_address(ptr), n) if n > 0 else None
                for ptr, n in zip(buffer_ptrs, each)]

    def get_tensor_with_tp_into(self, key: str, buffer_ptr: int, size: int, tp_rank: int = 0, tp_size: int = 1,
                                split_dim: int = 0) -> Any:
        """get_tensor_into() of this rank's shard."""
        return self.get_tensor_into(_names([key], tp_rank, tp_size)[0], buffer_ptr, size)

    def batch_get_tensor_with_tp_into(self, base_keys: Sequence[str], buffer_ptrs: Sequence[int],
                                      sizes: Sequence[int], tp_rank: int = 0, tp_size: int = 1) -> List[Any]:
        """get_tensor_with_tp_into() of each key."""
        return self.batch_get_tensor_into(_names(base_keys, tp_rank, tp_size), buffer_ptrs, sizes)

    def put_tensor_from(self, key: str, buffer_ptr: int, size: int) -> int:
        """Put the tensor that a registered buffer holds, as get_tensor_into() leaves it there."""
        return int(self.batch_put_tensor_from([key], [buffer_ptr], [size])[0])

    def batch_put_tensor_from(self: Any, keys: Sequence[str], buffer_ptrs: Sequence[int],
                              sizes: Sequence[int]) -> List[int]:
        """put_tensor_from() of each key."""
        if not len(keys) == len(buffer_ptrs) == len(sizes) or not all(map(self._known, buffer_ptrs, sizes)):
            return [INVALID] * len(keys)
        if any(head_read((ctypes.c_ubyte * n).from_address(ptr), n, _itemsize) is None
               for ptr, n in zip(buffer_ptrs, sizes)):
            return [INVALID] * len(keys)
        return list(self.batch_put_from(keys, buffer_ptrs, sizes))

    def put_tensor_with_tp_from(self: Any, key: str, buffer_ptr: int, size: int, tp_rank: int = 0, tp_size: int = 1,
                                split_dim: int = 0) -> int:
        """put_tensor_with_tp() of the tensor that a registered buffer holds."""
        return int(self.batch_put_tensor_with_tp_from([key], [buffer_ptr], [size], tp_rank, tp_size, split_dim)[0])

    def batch_put_tensor_with_tp_from(self: Any, base_keys: Sequence[str], buffer_ptrs: Sequence[int],
                                      sizes: Sequence[int], tp_rank: int = 0, tp_size: int = 1,
                                      split_dim: int = 0) -> List[int]:
        """put_tensor_with_tp_from() of each key."""
        if not len(base_keys) == len(buffer_ptrs) == len(sizes) or not all(map(self._known, buffer_ptrs, sizes)):
            return [INVALID] * len(base_keys)
        whole = [_tensor((ctypes.c_ubyte * n).from_address(ptr), n) for ptr, n in zip(buffer_ptrs, sizes)]
        return list(self._put_split(base_keys, whole, tp_size, split_dim))


def _names(keys: Sequence[str], rank: int, size: int) -> List[str]:
    return [tp_key(key, rank) for key in keys] if size > 1 else list(keys)
