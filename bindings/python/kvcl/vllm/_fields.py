"""What decides the bytes of a block besides its tokens: the fields by which engines know that they may share blocks.

Keys begin with a root made from all fields, the tenant and its secret. So engines that differ in any field find nothing
of each other, and kvcl._introduce says why. Pure, but for the tenant's secret file.
"""

import struct
from typing import Iterable, List, Sequence

import kvcl
from .. import _introduce
from .._introduce import Fields

FORM = "kvcl.vllm/1"


def text(fields: Fields, tenant: str) -> str:
    """All fields, of which keys are made."""
    return _introduce.text(FORM, fields, tenant)


def introduction(fields: Fields, tenant: str) -> str:
    """text() for engines that connect later (StoreClient's text)."""
    return _introduce.introduction(FORM, fields, tenant)


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
