"""Messages between two processes of a benchmark, outside of the measured parts."""

import json
import select


class Line:
    """JSON objects, one per line, between the two processes: one at a time, each answered, so none is buffered."""

    def __init__(self, sock):
        self.sock = sock
        self.file = sock.makefile("rw", encoding="ascii")

    def say(self, **what):
        self.file.write(json.dumps(what) + "\n")
        self.file.flush()

    def hear(self):
        line = self.file.readline()
        if not line:
            raise RuntimeError("the other process is gone")
        return json.loads(line)

    def ask(self, **what):
        self.say(**what)
        return self.hear()

    def waiting(self):
        return bool(select.select([self.sock], [], [], 0)[0])
