"""
NIXL over UCX, by its Python API: memory registered once, descriptor lists prepared once per list, posted for each
transfer. "default" is the unchanged agent. "best" runs it without its progress thread, which costs it most, so that the
initiator polls, and over TCP the target too.
"""

import os

import numpy as np

SETTINGS = ("default", "best")
PATHS = ("shm", "tcp")

# Shared memory alone has no failure handler by default, and NIXL requires one.
SHARED = {"UCX_TLS": "sm,self", "UCX_MM_ERROR_HANDLING": "y"}
ENVIRONMENT = {
    ("shm", "default"): SHARED,
    ("shm", "best"): SHARED,
    ("tcp", "default"): {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"},
    ("tcp", "best"): {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"},
}


class Peer:
    def __init__(self, path, setting, role, memory):
        os.environ.update(ENVIRONMENT[(path, setting)])
        from nixl_cu13 import _api

        self.polls = setting == "best"
        self.busy = self.polls and path == "tcp"  # the target must poll while it is read from
        self.most = 1 << 62  # runs of one post
        self.agent = self.make_agent(_api, role, not self.polls)
        self.memory = memory
        self.base = memory.ctypes.data
        self.registered = self.agent.register_memory([(self.base, memory.nbytes, 0, "")], "DRAM")
        self.far = None
        self.handles = []

    @staticmethod
    def make_agent(api, role, progress_thread):
        return api.nixl_agent(role, api.nixl_agent_config(enable_prog_thread=progress_thread))

    def card(self):
        return {"meta": self.agent.get_agent_metadata().hex(), "base": self.base}

    def meet(self, card):
        self.far = self.agent.add_remote_agent(bytes.fromhex(card["meta"]))
        self.far = self.far.decode() if isinstance(self.far, bytes) else self.far
        self.far_base = card["base"]

    def poll(self):
        self.agent.get_new_notifs()

    def prepare(self, here, there, unit):
        """One request for all pieces: local and remote offsets in units."""
        for handle in self.handles:
            handle.release()
        zeros = np.zeros(len(here), dtype=np.int64)
        sizes = np.full(len(here), unit, dtype=np.int64)
        near = np.column_stack((self.base + here * unit, sizes, zeros)).astype(np.uint64)
        far = np.column_stack((self.far_base + there * unit, sizes, zeros)).astype(np.uint64)
        index = np.arange(len(here), dtype=np.int32)
        lists = [self.agent.prep_xfer_dlist("NIXL_INIT_AGENT", near, "DRAM"),
                 self.agent.prep_xfer_dlist(self.far, far, "DRAM")]
        self.request = self.agent.make_prepped_xfer("READ", lists[0], index, lists[1], index)
        self.handles = [self.request, *lists]

    def post(self):
        self.state = self.agent.transfer(self.request)

    def wait(self):
        state, agent, request = self.state, self.agent, self.request
        while state == "PROC":
            state = agent.check_xfer_state(request)
        if state != "DONE":
            raise RuntimeError(f"NIXL: transfer ended as {state}")

    def close(self):
        for handle in self.handles:
            handle.release()
        self.handles = []
