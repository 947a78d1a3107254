"""What decides the bytes of a block besides its tokens: the fields by which engines know that they may share blocks.

Keys begin with a root made from all fields, the tenant and its secret. So engines that differ in any field find nothing
of each other, and explain() says why. Pure, but for the tenant's secret file.
"""

import hashlib
import json
import struct
from typing import Any, Dict, Iterable, List, Optional, Sequence

import kvcl
from .._client import TEXT_MAX

FORM = "kvcl.vllm/1"
LONG = 64  # characters of a value

Fields = Dict[str, Any]


def text(fields: Fields, tenant: str) -> str:
    """All fields, of which keys are made."""
    return json.dumps({"form": FORM, "tenant": tenant, **fields}, sort_keys=True)


def introduction(fields: Fields, tenant: str) -> str:
    """text() for engines that connect later (StoreClient's text). If it is too long, long values are hashes in it."""
    def short(value: Any) -> Any:
        said = str(value)
        return value if len(said) <= LONG else f"sha256 {hashlib.sha256(said.encode()).hexdigest()[:32]}"

    whole = text(fields, tenant)
    if len(whole) <= TEXT_MAX:
        return whole
    return text({name: short(value) for name, value in fields.items()}, short(tenant))


def root(fields: Fields, tenant: str, secret: bytes = b"") -> bytes:
    """The key of all keys of these fields."""
    return kvcl.key_root(secret, text(fields, tenant))


def root_after(base: bytes, reset: bytes) -> bytes:
    """The key of all keys after a reset of the cache. reset: random bytes."""
    return kvcl.key_from_bytes(b"reset " + reset, base)


def tenant_secret(path: str) -> bytes:
    """The bytes of the file; b"" without one. OSError, or ValueError if it is too short to be a secret."""
    if not path:
        return b""
    with open(path, "rb") as file:
        secret = file.read(65537)
    if not 16 <= len(secret) <= 65536:
        raise ValueError(f"tenant_secret_file {path} has {len(secret)} bytes: 16 to 65536 are needed "
                         "(openssl rand -hex 32)")
    return secret


def keys(base: bytes, hashes: Sequence[bytes], slices: Iterable[int]) -> List[bytes]:
    """The store's keys: for each block hash of vLLM one for each slice (a KV head), in this order."""
    marks = [struct.pack("<I", one) for one in slices]
    return kvcl.keys_from_bytes([name + mark for name in hashes for mark in marks], base)


def explain(own: str, others: Iterable[str]) -> Optional[str]:
    """If no other engine of this tenant has the same fields: what differs from the nearest one. None: nothing to say,
    because there is none, or one has the same."""
    mine = json.loads(own)
    nearest: Optional[List[str]] = None
    for other in others:
        try:
            theirs = json.loads(other)
        except (ValueError, RecursionError):
            continue
        if not isinstance(theirs, dict) or theirs.get("form") != FORM or theirs.get("tenant") != mine["tenant"]:
            continue
        different = [f"{name} is {mine.get(name)!r} here and {theirs.get(name)!r} there"
                     for name in sorted(set(mine) | set(theirs)) if mine.get(name) != theirs.get(name)]
        if not different:
            return None
        if nearest is None or len(different) < len(nearest):
            nearest = different
    return None if nearest is None else "; ".join(nearest)
