"""The options of the engines that keep a store open (kvcl._job): the table, and what they ask of each other."""

import os
from types import SimpleNamespace
from typing import Any, Mapping, Sequence

from ._options import Option, bytes_of, number, read, text

OPTIONS = (
    Option("rendezvous", None, "tcp://host:port where the ranks of the job meet; without it, and without "
           "KVCL_RENDEZVOUS, the process is a job of its own", kind=text),
    Option("size", None, "the number of ranks of the job, kvcl_serve's included", kind=number, least=1, most=65536),
    Option("rank", None, "this process's rank; without it ranks are given in order of arrival", kind=number,
           most=65535),
    Option("secret_file", None, "a file (mode 0600) with the job's secret", kind=text),
    Option("store", None, "the file that kvcl_serve --clients writes: the process is no rank of its job, and uses its "
           "store through it; instead of rendezvous and pool", kind=text),
    Option("pool", 0, "memory of this process for the store; 0: other ranks have the pools (kvcl_serve)",
           kind=bytes_of),
    Option("block", 0, "bytes of a block of the pool; 0: what the engine stores at first", kind=bytes_of),
    Option("nvme", None, "/path/of/a/file:size, a second tier for the pool", kind=text),
    Option("replicas", 0, "copies of each block; 0: the largest number that a rank of the job gives", most=4),
    Option("salt", "", "engines find each other's blocks only if their salts are equal"),
    Option("timeout", 5.0, "seconds after which a call gives up and answers as if nothing were stored"),
    Option("connect", 10.0, "seconds for which the engine's start waits for the store; later it continues without, and "
           "takes the store up when it opens"),
)


def options(who: str, given: Mapping[str, Any], more: Sequence[Option] = ()) -> SimpleNamespace:
    """The options of one engine, checked. ValueError: a name that does not exist, or a value that makes no sense."""
    found = SimpleNamespace(**read(who, (*OPTIONS, *more), given))
    if found.nvme and not found.pool:
        raise ValueError(f"{who}: option nvme needs pool: it is a second tier of this process's pool")
    if found.rank is not None and found.size is not None and found.rank >= found.size:
        raise ValueError(f"{who}: option rank is {found.rank}: with size {found.size}, ranks are 0 to {found.size - 1}")
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
