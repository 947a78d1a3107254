"""
Mooncake's store over TCP, by its Python API: "default" uses put and get, which make bytes objects; "best" uses
registered memory (put_from, get_into) and its pool of connections. Blocks are in the holder's segment; the holder may
copy into its own segment by memcpy.
"""

import ctypes
import mmap
import os

SEGMENT = 1 << 30
BUFFER = 64 << 20


class Store:
    def __init__(self, path, setting, role, address, block, batch):
        os.environ.setdefault("MC_LOG_LEVEL", "ERROR")
        os.environ.setdefault("MC_TCP_BIND_ADDRESS", "127.0.0.1")
        os.environ.setdefault("MC_STORE_MEMCPY", "1")
        if setting == "best":
            os.environ["MC_TCP_ENABLE_CONNECTION_POOL"] = "1"
        from mooncake.store import MooncakeDistributedStore

        self.block_bytes, self.plain = block, setting == "default"
        self.store = MooncakeDistributedStore()
        segment = SEGMENT if role == "holder" else 0
        if self.store.setup("127.0.0.1", "P2PHANDSHAKE", segment, BUFFER, path, "", address) != 0:
            raise RuntimeError("Mooncake: the store does not start")
        self.memory = mmap.mmap(-1, block * batch)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        if self.store.register_buffer(self.base, block * batch) != 0:
            raise RuntimeError("Mooncake: the memory cannot be registered")
        self.got = []

    def keys(self, salt, n):
        return [f"{salt} {number}" for number in range(n)]

    def asked(self, keys):
        return keys

    def _at(self, place):
        return self.base + place * self.block_bytes

    def _slice(self, place):
        return slice(place * self.block_bytes, (place + 1) * self.block_bytes)

    def fill(self, place, data):
        self.memory[self._slice(place)] = data

    def wipe(self, place):
        self.memory[self._slice(place)] = bytes(self.block_bytes)

    def block(self, place):
        return self.got[place] if self.plain else self.memory[self._slice(place)]

    @staticmethod
    def _need(good, what):
        if not good:
            raise RuntimeError(f"Mooncake: {what} failed")

    def put(self, key):
        if self.plain:
            self._need(self.store.put(key, self.memory[: self.block_bytes]) == 0, "put")
        else:
            self._need(self.store.put_from(key, self.base, self.block_bytes) == 0, "put_from")

    def put_many(self, keys):
        done = self.store.batch_put_from(keys, [self._at(i) for i in range(len(keys))], [self.block_bytes] * len(keys))
        self._need(all(one == 0 for one in done), "batch_put_from")

    def put_small(self, salt, n):
        for first in range(0, n, 1024):
            keys = [f"{salt} {number}" for number in range(first, min(first + 1024, n))]
            self._need(self.store.put_batch(keys, [b"x" * 64] * len(keys)) == 0, "put_batch")

    def get(self, key):
        if self.plain:
            self.got = [self.store.get(key)]
        else:
            self._need(self.store.get_into(key, self.base, self.block_bytes) == self.block_bytes, "get_into")

    def get_many(self, keys):
        if self.plain:
            self.got = self.store.get_batch(keys)
        else:
            done = self.store.batch_get_into(keys, [self._at(i) for i in range(len(keys))],
                                             [self.block_bytes] * len(keys))
            self._need(all(one == self.block_bytes for one in done), "batch_get_into")

    def exists(self, keys):
        return sum(one == 1 for one in self.store.batch_is_exist(keys))

    def close(self):
        pass
