"""The options of the engines that keep a store open (kvcl._job): a table, and reading it."""

import difflib
import os
from types import SimpleNamespace
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional

UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def bytes_of(value: Any) -> int:
    """Bytes: 262144, "256K", "4G", "1 GiB"."""
    if isinstance(value, str):
        lower = value.strip().lower()
        digits = lower.rstrip("bikmgt ")
        unit = lower[len(digits):].strip().removesuffix("b").removesuffix("i")
        if not digits.isdecimal() or unit not in UNITS:
            raise ValueError("bytes are needed, such as 262144, 256K or 4G")
        value = int(digits) << UNITS[unit]
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("bytes are needed, such as 262144, 256K or 4G")
    return value


def number(value: Any) -> int:
    """A whole number, at least 0; also as a string."""
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("a number is needed")
    return value


def seconds(value: Any) -> float:
    """A number above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e6:
        raise ValueError("seconds are needed, more than 0")
    return float(value)


def text(value: Any) -> str:
    """A string, or a path."""
    if not isinstance(value, (str, os.PathLike)):
        raise ValueError("a string is needed")
    return os.fspath(value)


class Option(NamedTuple):
    """An option of an engine. kind reads a value that was given, and raises ValueError."""

    kind: Callable[[Any], Any]
    default: Any
    help: str


OPTIONS: Dict[str, Option] = {
    "rendezvous": Option(text, None, "tcp://host:port where the ranks of the job meet; without it, and without "
                                     "KVCL_RENDEZVOUS, the process is a job of its own"),
    "size": Option(number, None, "the number of ranks of the job, kvcl_serve's included"),
    "rank": Option(number, None, "this process's rank; without it ranks are given in order of arrival"),
    "secret_file": Option(text, None, "a file (mode 0600) with the job's secret"),
    "store": Option(text, None, "the file that kvcl_serve --clients writes: the process is no rank of its job, and "
                                "uses its store through it; instead of rendezvous and pool"),
    "pool": Option(bytes_of, 0, "memory of this process for the store; 0: other ranks have the pools (kvcl_serve)"),
    "block": Option(bytes_of, 0, "bytes of a block of the pool; 0: what the engine stores at first"),
    "nvme": Option(text, None, "/path/of/a/file:size, a second tier for the pool"),
    "replicas": Option(number, 0, "copies of each block; 0: the largest number that a rank of the job gives"),
    "salt": Option(text, "", "engines find each other's blocks only if their salts are equal"),
    "timeout": Option(seconds, 5.0, "seconds after which a call gives up and answers as if nothing were stored"),
    "connect": Option(seconds, 10.0, "seconds for which the engine's start waits for the store; later it continues "
                                      "without, and takes the store up when it opens"),
}


def options(who: str, given: Mapping[str, Any], more: Optional[Mapping[str, Option]] = None) -> SimpleNamespace:
    """The options of one engine, checked. ValueError: a name that does not exist, or a value that makes no sense."""
    table = {**OPTIONS, **(more or {})}
    values = {name: row.default for name, row in table.items()}
    for name, value in given.items():
        if name not in table:
            near = difflib.get_close_matches(str(name), table, n=1, cutoff=0.0)
            raise ValueError(f"{who}: there is no option {name!r}; the nearest is {near[0]!r}, and all are "
                             f"{', '.join(sorted(table))}")
        if value is None:
            continue
        try:
            values[name] = table[name].kind(value)
        except ValueError as why:
            raise ValueError(f"{who}: option {name} is {value!r}: {why}") from None
    found = SimpleNamespace(**values)
    if found.nvme and not found.pool:
        raise ValueError(f"{who}: option nvme needs pool: it is a second tier of this process's pool")
    if found.store:
        for name in ("pool", "rendezvous", "size", "rank", "replicas"):
            if getattr(found, name):
                raise ValueError(f"{who}: option {name} is none of a client of kvcl_serve: leave out store, or {name}")
    elif is_alone(found) and not found.pool:
        raise ValueError(f"{who}: give pool (such as \"4G\"), the memory of a store of this process alone, or "
                         f"rendezvous and size, or store, to use the pools of other ranks")
    return found


def is_alone(found: SimpleNamespace) -> bool:
    """Whether the process is a job of its own, as a client of kvcl_serve is."""
    meets = found.rendezvous or os.environ.get("KVCL_RENDEZVOUS") or os.environ.get("KVCL_BOOT")
    return bool(found.store or not meets)


def block_is_first(who: str, found: SimpleNamespace, what: str) -> bool:
    """Whether the first value that is put gives the size of the pool's blocks. ValueError: option block is needed."""
    first = (found.pool != 0 or found.store is not None) and found.block == 0
    if first and (found.store or found.nvme or not is_alone(found)):
        part = "" if found.store else ", or a part of it"
        raise ValueError(f"{who}: with store or nvme, or in a job of several ranks, block is needed: the bytes of "
                         f"{what}{part}")
    return first
