"""KVCL's store by its Python package: the holder puts into its pool, the getter gets into its cache, each one request
at a time. Two ranks meet at an address; each is home to half of the keys."""

import hashlib
import os

POOL_KEYS = 1 << 16


class Store:
    def __init__(self, path, setting, role, address, block, batch):
        os.environ.update(KVCL_PATH=path, KVCL_NET="lo", KVCL_RENDEZVOUS=address, KVCL_SIZE="2",
                          KVCL_RANK="0" if role == "getter" else "1")
        import kvcl

        self.context = kvcl.Context()
        layout = kvcl.Layout(layers=1, blocks=batch, tokens=16, heads=2, head_dim=block // 128, elem_bytes=2)
        assert layout.block_bytes == block
        self.block_bytes = block
        self.cache = self.context.cache("blocks", layout)
        pool = POOL_KEYS * block if role == "holder" else 0
        self.store = kvcl.Store(self.context.world, dram_bytes=pool, block_bytes=block if pool else 0)
        self.places = list(range(batch))

    def keys(self, salt, n):
        return [hashlib.sha256(f"{salt} {number}".encode()).digest() for number in range(n)]

    def asked(self, keys):
        return b"".join(keys)

    def fill(self, place, data):
        self.cache.write(place, data)

    def wipe(self, place):
        self.cache.write(place, bytes(self.block_bytes))

    def block(self, place):
        return bytes(self.cache.read(place))

    def put(self, key):
        self.store.put(key, self.cache, [0]).wait(60)

    def put_many(self, keys):
        self.store.put(b"".join(keys), self.cache, self.places[: len(keys)]).wait(60)

    def get(self, key):
        self.store.get(key, self.cache, [0]).wait(60)

    def get_many(self, keys):
        self.store.get(keys, self.cache, self.places).wait(60)

    def exists(self, keys):
        return sum(self.store.exists(keys))

    def close(self):
        pass
