"""What torch gives to a collective: tensors as bytes, options, streams."""

import ctypes
import functools
from typing import Any, Callable, List, Sequence

import torch
import torch.distributed as dist

OPS = ((dist.ReduceOp.SUM, "sum"), (dist.ReduceOp.PRODUCT, "prod"), (dist.ReduceOp.MIN, "min"),
       (dist.ReduceOp.MAX, "max"), (dist.ReduceOp.BAND, "and"), (dist.ReduceOp.BOR, "or"),
       (dist.ReduceOp.BXOR, "xor"), (dist.ReduceOp.AVG, "sum"))  # an average is divided later: averaged()


def op_of(opts: Any) -> str:
    op = getattr(opts, "reduceOp", dist.ReduceOp.SUM)
    for known, name in OPS:
        if op == known:
            return name
    raise ValueError(f"kvcl reduces by SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR and BXOR, not by {getattr(op, 'op', op)}")


def averaged(opts: Any, result: torch.Tensor, ranks: int) -> List[Callable[[], Any]]:
    """What divides a sum of so many ranks, if an average was asked for."""
    if getattr(opts, "reduceOp", dist.ReduceOp.SUM) != dist.ReduceOp.AVG:
        return []
    if not result.is_floating_point():
        raise ValueError(f"an average of {result.dtype}: floating-point tensors are needed")
    return [lambda: result.div_(ranks)]


def root_of(opts: Any) -> int:
    return getattr(opts, "rootRank", 0)


def check_dense(tensor: torch.Tensor) -> None:
    if tensor.device.type not in ("cpu", "cuda") or tensor.layout is not torch.strided:
        raise ValueError("the kvcl backend takes dense tensors on the CPU or a CUDA device, not one of "
                         f"{tensor.layout} on {tensor.device}")


def same_type(output: torch.Tensor, tensor: torch.Tensor, what: str) -> None:
    """Bytes of one type are no elements of another, though there may be as many."""
    if output.dtype != tensor.dtype:
        raise ValueError(f"{what}: the output is of {output.dtype}, the input of {tensor.dtype}: one type is needed")


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    check_dense(tensor)
    flat = tensor.detach().reshape(-1)
    if flat.stride(0) != 1:  # of one element, which any stride may follow
        flat = flat.as_strided(flat.shape, (1,))
    return flat.view(torch.uint8)


_numpy: Any = None
try:
    import numpy
    _numpy = numpy
except ImportError:
    pass


def handed(value: Any) -> Any:
    """What is handed to the library for bytes_of(): on the CPU NumPy's view, whose address costs 5 us less than that of
    a tensor (DLPack). Anything else as it is."""
    if _numpy is not None and isinstance(value, torch.Tensor) and value.device.type == "cpu":
        return value.numpy()
    return value


@functools.lru_cache(64)
def _bytes_type(size: int) -> Any:
    return ctypes.c_char * size


def _plain_at(tensor: torch.Tensor) -> int:
    """The address of a tensor of the host whose memory holds its elements in order; else 0."""
    at: int = 0
    if (tensor.is_cpu and tensor.layout is torch.strided and tensor.is_contiguous() and not tensor.is_neg() and
            not tensor.is_conj()):
        at = tensor.data_ptr()
    return at


def copy_of(tensor: torch.Tensor) -> Any:
    """The bytes of a tensor of the host as they are now, to be handed to the library. It calls no operator of torch
    where it can: a clone and two views cost more than a message of 8 bytes."""
    at = _plain_at(tensor)
    if at:
        return ctypes.string_at(at, tensor.numel() * tensor.element_size())
    return handed(bytes_of(tensor.clone(memory_format=torch.contiguous_format)))


def place_of(tensor: torch.Tensor) -> Any:
    """The memory of a contiguous tensor, to be handed to the library, which reads or writes it."""
    at = _plain_at(tensor)
    if not at:
        return handed(bytes_of(tensor))
    place = _bytes_type(tensor.numel() * tensor.element_size()).from_address(at)
    place.tensor = tensor  # lives as long as its memory is in use
    return place


def stream_of(tensor: torch.Tensor) -> int:
    """The current stream of the tensor's device; none on the CPU."""
    if tensor.device.type != "cuda":
        return 0
    return torch.cuda.current_stream(tensor.device).cuda_stream or 1  # CU_STREAM_LEGACY: the null stream


def one_of(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    if len(tensors) != 1:
        raise ValueError(f"one tensor is needed, not {len(tensors)}")
    return tensors[0]
