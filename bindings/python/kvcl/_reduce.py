"""Names of element types and of reductions, as the library numbers them (kvcl_coll.h)."""

import enum
from typing import Any, Optional


class Kind(enum.IntEnum):
    """As in ext/coll.c."""

    ALLREDUCE = 0
    REDUCE_SCATTER = 1
    ALLTOALL = 2
    ALLGATHER = 3
    GATHER = 4
    SCATTER = 5
    BCAST = 6
    BARRIER = 7


OPS = {name: number for number, name in enumerate(("sum", "prod", "min", "max", "and", "or", "xor"))}
DTYPES = {name: number for number, name in enumerate(("u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f16",
                                                      "bf16", "f32", "f64"))}

# What NumPy and torch call them.
_ALIASES = {"uint8": "u8", "int8": "i8", "uint16": "u16", "int16": "i16", "uint32": "u32", "int32": "i32",
            "uint64": "u64", "int64": "i64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
            "bool": "u8"}

_LETTERS = {"?": "u", "B": "u", "b": "i", "H": "u", "h": "i", "I": "u", "i": "i", "L": "u", "l": "i", "Q": "u",
            "q": "i", "e": "f", "f": "f", "d": "f"}


def op_number(op: str) -> int:
    """The number of a reduction."""
    if op not in OPS:
        raise ValueError(f"no reduction {op!r}: one of {', '.join(OPS)}")
    return OPS[op]


def dtype_number(buffer: Any, dtype: Optional[str]) -> int:
    """The number of the element type: the one given, or the buffer's own."""
    name = str(dtype if dtype is not None else getattr(buffer, "dtype", "")).rsplit(".", 1)[-1]
    if not name:
        view = memoryview(buffer)
        letter = view.format.lstrip("@=<")
        name = f"{_LETTERS.get(letter, letter)}{view.itemsize * 8}"
    name = _ALIASES.get(name, name)
    if name not in DTYPES:
        raise ValueError(f"elements of type {name!r} cannot be reduced: give dtype, one of {', '.join(DTYPES)}")
    return DTYPES[name]
