"""A NIXL agent over the KVCL plugin. As a program: an agent of its own process, which does what lines of JSON on its
standard input say, and answers each with one; agents.py directs it by the class Other.
"""

import json
import os
import random
import subprocess
import sys
import time

import numpy as np

REGIONS = (1 << 20, 4096, 300000)  # bytes of the memories that each agent registers
LIMIT = 600                        # seconds until a test that hangs is ended


class Agent:
    """An agent of this process."""

    def __init__(self, name, params=None):
        from nixl._api import nixl_agent, nixl_agent_config
        self.name = name
        self.nixl = nixl_agent(name, nixl_agent_config(backends=[]))
        self.nixl.create_backend("KVCL", params or {})
        self.memory = [np.zeros(n, np.uint8) for n in REGIONS]
        self.places = [(one.ctypes.data, one.nbytes) for one in self.memory]
        self.registered = self.register()
        self.held = {}  # notifications that nobody has asked for yet

    def register(self):
        descs = self.nixl.get_reg_descs([(addr, n, 0, "") for addr, n in self.places], "DRAM")
        return self.nixl.register_memory(descs, backends=["KVCL"])

    def load(self, metadata):
        """The name of the agent whose metadata they are."""
        name = self.nixl.add_remote_agent(metadata)
        return name.decode() if isinstance(name, bytes) else name

    def descs(self, places, pieces):
        """pieces: (region, offset, bytes) of these places."""
        return self.nixl.get_xfer_descs([(places[r][0] + at, n, 0) for r, at, n in pieces], "DRAM")

    def begin(self, op, mine, name, places, theirs, notif=b""):
        handle = self.nixl.initialize_xfer(op, self.descs(self.places, mine), self.descs(places, theirs), name, notif)
        return handle, self.nixl.transfer(handle)

    def finish(self, handle, state):
        """The final state: "DONE", "ERR", or the name of the exception."""
        until = time.monotonic() + LIMIT
        try:
            while state == "PROC":
                assert time.monotonic() < until, "the transfer does not end"
                time.sleep(0.0005)
                state = self.nixl.check_xfer_state(handle)
        except AssertionError:
            raise
        except Exception as error:
            state = type(error).__name__
        self.nixl.release_xfer_handle(handle)
        return state

    def move(self, op, mine, name, places, theirs, notif=b""):
        try:
            handle, state = self.begin(op, mine, name, places, theirs, notif)
        except Exception as error:
            return type(error).__name__
        return self.finish(handle, state)

    def notifs(self, name, n, seconds=LIMIT):
        """The next n notifications of an agent, or those that come in that time."""
        until = time.monotonic() + seconds
        got = self.held.setdefault(name, [])
        while len(got) < n and time.monotonic() < until:
            for sender, texts in self.nixl.get_new_notifs().items():
                self.held.setdefault(sender, []).extend(texts)
            time.sleep(0.001)
        self.held[name] = got[n:]
        return got[:n]


def noise(seed, n):
    return np.frombuffer(random.Random(seed).randbytes(n), np.uint8)


class Other:
    """An agent of another process."""

    def __init__(self, name, params=None, env=None, stderr=None):
        self.name = name
        self.process = subprocess.Popen([sys.executable, __file__, name, json.dumps(params or {})], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
                                        env=dict(os.environ, **(env or {})))

    def post(self, what, *args):
        self.process.stdin.write(json.dumps([what, args]) + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        assert line, f"{self.name} has ended"
        return json.loads(line)

    def __call__(self, what, *args):
        self.post(what, *args)
        return self.answer()

    def end(self):
        self.process.stdin.close()
        self.process.stdout.read()
        return self.process.wait(LIMIT)


def main():
    out = os.fdopen(os.dup(1), "w")  # NIXL prints to the standard output
    os.dup2(2, 1)
    try:
        agent = Agent(sys.argv[1], json.loads(sys.argv[2]))
    except Exception as error:
        print(json.dumps(type(error).__name__), file=out, flush=True)
        return
    calls = {
        "metadata": lambda: [agent.nixl.get_agent_metadata().hex(), agent.places],
        "load": lambda text: agent.load(bytes.fromhex(text)),
        "fill": lambda seed: [one.__setitem__(slice(None), noise(seed + i, one.nbytes))
                              for i, one in enumerate(agent.memory)] and True,
        "bytes": lambda r, at, n: agent.memory[r][at:at + n].tobytes().hex(),
        "notifs": lambda name, n, seconds=LIMIT: [one.hex() for one in agent.notifs(name, n, seconds)],
        "tell": lambda name, text: agent.nixl.send_notif(name, bytes.fromhex(text)),
        "move": lambda op, mine, name, places, theirs, text="": agent.move(op, mine, name, places, theirs,
                                                                          bytes.fromhex(text)),
        "deregister": lambda: agent.nixl.deregister_memory(agent.registered, backends=["KVCL"]),
    }
    for line in sys.stdin:
        what, args = json.loads(line)
        try:
            answer = calls[what](*args)
        except Exception as error:
            answer = type(error).__name__
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
