"""Keys: 32 bytes that name the content of a block. An engine's 32-byte block hash can be used unchanged."""

from typing import Any, List, Sequence, Union

from . import _kvcl


def key_root(salt: bytes = b"", model: str = "") -> bytes:
    """The root of all chains of one tenant on one model.

    salt: any bytes that keep tenants apart, a secret if they must not guess each other's keys. model: all that decides
    a block's bytes besides tokens, such as "llama-3-8b/bf16/16/tp8:3".
    """
    return _kvcl.key_root(salt, model)


def key_chain(parent: bytes, tokens: Any, tokens_per_block: int, first_block: int = 0) -> List[bytes]:
    """Keys of the full blocks of a token sequence: equal key, equal prefix.

    To start a prompt, parent is the root. To continue a chain, it is the key of block first_block - 1.

    >>> import kvcl
    >>> root = kvcl.key_root(b"a tenant's secret", "llama-3-8b")
    >>> keys = kvcl.key_chain(root, range(100), 16)
    >>> len(keys), len(keys[0])
    (6, 32)
    >>> kvcl.key_chain(root, range(50), 16) == keys[:3]
    True
    >>> kvcl.key_chain(keys[2], range(48, 100), 16, first_block=3) == keys[3:]
    True
    """
    return _kvcl.key_chain(parent, tokens, tokens_per_block, first_block)


def key_from_bytes(name: Union[str, bytes], salt: bytes = b"") -> bytes:
    """A key from the block name of another program.

    Without a salt, 32 bytes are taken unchanged as a good hash (vLLM's block hashes); any other length is hashed. A
    salt keeps tenants apart: with it, every name is hashed.
    """
    return _kvcl.key_from_bytes(name, salt)


def keys_from_bytes(names: Sequence[Union[str, bytes]], salt: bytes = b"") -> List[bytes]:
    """key_from_bytes() of many names."""
    return _kvcl.keys_from_bytes(names, salt)


def value_key(key: bytes) -> bytes:
    """The key of a value's head, for a value whose length is not exactly a block's: exists(), match(), pin() and events
    identify the value by it."""
    return _kvcl.value_keys([key])[0]


def value_keys(keys: Sequence[bytes]) -> List[bytes]:
    """value_key() of many keys."""
    return _kvcl.value_keys(keys)


def key_from_string(name: Union[str, bytes]) -> bytes:
    """The key of an arbitrary name."""
    return _kvcl.key_from_string(name)
