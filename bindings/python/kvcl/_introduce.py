"""How engines that share a store introduce themselves. What decides the bytes of a block besides its tokens is part of
its key, so engines that differ in a field find nothing of each other; the one that comes later says in which field.

A text is the JSON of an engine's fields; text(), introduction() and explain() are pure. A kvcl_serve keeps the texts of
its clients. A rank of a job keeps its own in a cache of a known name, which the other ranks read (Board).
"""

import contextlib
import hashlib
import json
from typing import Any, Dict, Iterable, List, Optional, Tuple

from ._cache import Layout
from ._client import TEXT_MAX
from ._context import Context
from ._errors import KvclError
from ._request import Request

SAYS = "no other engine of this store shares blocks with this one"
LONG = 64    # characters of a value
TEXTS = 4    # of one engine: LMCache's server may have several models
PEERS = 32   # ranks that are read
BOARD = "kvcl introductions"

Fields = Dict[str, Any]


def text(form: str, fields: Fields, group: Any) -> str:
    """All fields, of which keys are made. form: the kind of engine, and the version of its fields. group: only engines
    of equal groups are compared."""
    return json.dumps({"form": form, "tenant": group, **fields}, sort_keys=True)


def introduction(form: str, fields: Fields, group: Any) -> str:
    """text() for other engines. If it is too long, long values are hashes in it."""
    def short(value: Any) -> Any:
        said = str(value)
        return value if len(said) <= LONG else f"sha256 {hashlib.sha256(said.encode()).hexdigest()[:32]}"

    whole = text(form, fields, group)
    if len(whole) <= TEXT_MAX:
        return whole
    return text(form, {name: short(value) for name, value in fields.items()}, short(group))


def explain(own: str, others: Iterable[str]) -> Optional[str]:
    """If no other engine of this group has the same fields: in which it differs from the nearest one. None: there is no
    other one, or one has the same fields."""
    mine = json.loads(own)
    nearest: Optional[List[str]] = None
    for other in others:
        try:
            theirs = json.loads(other)
        except (ValueError, RecursionError):
            continue
        if not isinstance(theirs, dict) or any(theirs.get(name) != mine[name] for name in ("form", "tenant")):
            continue
        different = [f"{name if name in mine else repr(name)} is {mine.get(name)!r} here and {theirs.get(name)!r} there"
                     for name in sorted(set(mine) | set(theirs)) if mine.get(name) != theirs.get(name)]
        if not different:
            return None
        if nearest is None or len(different) < len(nearest):
            nearest = different
    return None if nearest is None else "; ".join(nearest)


def salt_mark(salt: str) -> str:
    """A mark that tells salts apart, and is too short to find a salt by."""
    return hashlib.sha256(salt.encode()).hexdigest()[:4] if salt else ""


class Board:
    """The texts of this rank, where the other ranks of its job read them. Made before the store is opened, so that all
    ranks have one when it is open."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._own = context.cache(BOARD, Layout.bytes(TEXTS, TEXT_MAX))
        self._said = 0

    def introduce(self, text: str, timeout: float) -> List[str]:
        """Add a text, and return those of the other ranks (PEERS at most). Each rank writes before it reads, so at
        least one of two knows of the other. timeout: seconds of each read. Blocks. One thread at a time."""
        if self._said < TEXTS:
            self._own.write(self._said, text.encode().ljust(TEXT_MAX, b"\0"))
            self._said += 1
        world = self._context.world
        ranks = [rank for rank in range(world.size) if rank != world.rank][:PEERS]
        others: List[str] = []
        with self._context.cache(BOARD + " of others", Layout.bytes(TEXTS * len(ranks), TEXT_MAX)) as cache:
            asked: List[Tuple[int, Request[None]]] = []
            for i, rank in enumerate(ranks):  # all at once: those that are silent are waited for together
                with contextlib.suppress(KvclError):
                    asked.append((i, world.get(rank, cache, range(TEXTS), range(i * TEXTS, (i + 1) * TEXTS),
                                               remote_cache=BOARD, timeout=timeout)))
            for i, request in asked:
                try:
                    request.wait()
                except KvclError:  # a rank that is no engine has none
                    continue
                others += [cache.read(i * TEXTS + j).rstrip(b"\0").decode(errors="replace") for j in range(TEXTS)]
        return [one for one in others if one]
