"""
Mooncake's transfer engine over TCP, by its Python API: memory registered once, a batch of reads for each transfer.
"best" turns on its pool of connections, which is off by default. This API has no transport over shared memory.
"""

import os

SETTINGS = ("default", "best")
PATHS = ("tcp",)

# With a smaller queue a batch of some thousand reads is refused; a larger queue than this is not possible.
ROOM = {"MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER": "16384"}
BATCH = 8192
ENVIRONMENT = {
    "default": ROOM,
    "best": {**ROOM, "MC_TCP_ENABLE_CONNECTION_POOL": "1"},
}


class Peer:
    def __init__(self, path, setting, role, memory):
        os.environ.update(ENVIRONMENT[setting])
        os.environ.setdefault("MC_LOG_LEVEL", "ERROR")
        os.environ.setdefault("MC_TCP_BIND_ADDRESS", "127.0.0.1")
        from mooncake.engine import TransferEngine

        self.busy = False
        self.most = BATCH  # runs of one post
        self.engine = TransferEngine()
        if self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", path, "") != 0:
            raise RuntimeError("Mooncake: the engine does not start")
        self.base = memory.ctypes.data
        if self.engine.register_memory(self.base, memory.nbytes) != 0:
            raise RuntimeError("Mooncake: the memory cannot be registered")

    def card(self):
        return {"name": f"127.0.0.1:{self.engine.get_rpc_port()}", "base": self.base}

    def meet(self, card):
        self.far = card["name"]
        self.far_base = card["base"]

    def poll(self):
        pass

    def prepare(self, here, there, unit):
        self.near_addresses = (self.base + here * unit).tolist()
        self.far_addresses = (self.far_base + there * unit).tolist()
        self.lengths = [unit] * len(here)

    def _submit(self, first):
        part = slice(first, first + BATCH)
        batch = self.engine.batch_transfer_async_read(self.far, self.near_addresses[part], self.far_addresses[part],
                                                      self.lengths[part])
        if batch == 0:
            raise RuntimeError("Mooncake: the batch was not taken")
        return batch

    def post(self):
        self.batch = self._submit(0)

    def wait(self):
        for first in range(BATCH, len(self.lengths) + BATCH, BATCH):
            if self.engine.get_batch_transfer_status([self.batch]) != 0:
                raise RuntimeError("Mooncake: the batch failed")
            if first < len(self.lengths):
                self.batch = self._submit(first)

    def close(self):
        self.engine.unregister_memory(self.base)
