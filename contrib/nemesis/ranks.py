"""The ranks of a job under attack: processes whose output is read line by line. Waiting is for what they say, never for
time; PATIENCE only ends a run that hangs."""
import json
import os
import queue
import random
import secrets
import signal
import socket
import subprocess
import tempfile
import threading
import time

PATIENCE = 120.0
INIT_MS, OPEN_MS = 60000, 30000  # deadlines of a process that joins: KVCL_BOOT_TIMEOUT, KVCL_TIMEOUT
TRIES = 5                        # of a slot, where the processes that join are refused
DEAF = "hears none of the others, though ranks of its host answer otherwise"  # src/member/silent.c


def free_port():
    """Below those that the kernel gives to connections, which may take it until the ranks listen."""
    for port in random.sample(range(20000, 32000), 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
    raise Stuck("no free port")


class Stuck(Exception):
    """What was awaited did not happen."""


class Rank:
    def __init__(self, slot, life):
        self.slot, self.life, self.process = slot, life, None
        self.said = []        # the lines that the verdict needs, as objects
        self.told = {}        # events by type
        self.suspects = set() # slots that it holds suspected
        self.latest = {}      # the last line of each kind
        self.acked = 0
        self.frail = set()    # acknowledged blocks of which nobody but this rank was known to have a copy
        self.asked = 0        # of its blocks those below this number were last looked for,
        self.missing = set()  # and these were not found
        self.fate = None      # None: alive and well; "killed", "excluded", "refused": it could not join
        self.gone_at = None   # when it had its fate
        self.closed = False   # its output has ended
        self.stderr = None

    def take(self, line):
        self.latest[line["what"]] = line
        if line["what"] == "acked":
            self.acked = line["n"]
            if line["copies"] < 2:
                self.frail.add(line["n"] - 1)
        elif line["what"] == "event":
            self.told.setdefault(line["type"], []).append(line)
            if line["type"] == "SUSPECT":
                self.suspects |= set(line["ranks"])
            elif line["type"] in ("ALIVE_AGAIN", "FAILED"):
                self.suspects -= set(line["ranks"])
        if line["what"] in ("event", "failed", "wrong", "tally"):
            self.said.append(line)

    def events(self, kind):
        return self.told.get(kind, [])

    def has_failed(self, slot, since):
        return any(slot in event["ranks"] and event["at"] >= since for event in self.events("FAILED"))

    def view(self):
        views = self.events("VIEW")
        return views[-1] if views else None

    def last(self, what):
        return self.latest.get(what)

    def command(self, text):
        self.latest.pop(text.split()[0] + "ed", None)
        try:
            self.process.stdin.write(text + "\n")
            self.process.stdin.flush()
        except OSError:  # it has ended, which is noticed by the end of its output
            pass


class Ranks:
    def __init__(self, plan, program, hosts, seed, slack_ms, tell):
        self.plan, self.hosts, self.tell = plan, hosts, tell
        self.lines = queue.Queue()
        self.dir = tempfile.TemporaryDirectory(prefix="nemesis")
        secret = os.path.join(self.dir.name, "secret")
        with open(os.open(secret, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32))
        address = hosts.address(0) if hosts else "127.0.0.1"
        port = free_port()
        self.environment = {**os.environ, "KVCL_VIEWS": "yes", "KVCL_SECRET_FILE": secret, "KVCL_PATH": plan["path"],
                            "KVCL_NET": "kvcl0" if hosts else "lo", "KVCL_BOOT_TIMEOUT": f"{INIT_MS}ms",
                            "KVCL_TIMEOUT": f"{OPEN_MS}ms"}
        self.begins = {"KVCL_SIZE": str(plan["ranks"]), "KVCL_RENDEZVOUS": f"tcp://{address}:{port}"}
        if plan.get("joins"):
            self.environment["KVCL_SLOTS"] = str(plan["slots"])
            self.environment["KVCL_JOIN_WAITS"] = "yes" if plan["waits"] else "no"
        self.rnd = random.Random(seed)
        self.program, self.words = program, [str(plan["replicas"]), "5000", str(slack_ms), str(INIT_MS), str(OPEN_MS)]
        self.seed, self.refusals = seed, 0
        self.newest = {}  # of each slot: its last process
        self.ranks = []   # all processes, also those of before
        for slot in range(plan["ranks"]):
            self._start(slot, self.begins)

    def _start(self, slot, environment):
        rank = Rank(slot, self.newest[slot].life + 1 if slot in self.newest else 0)
        words = [self.program, str(self.seed), str(rank.life), *self.words]
        environment = {**self.environment, **environment, "KVCL_RANK": str(slot)}
        host = next(i for i, slots in enumerate(self.plan["hosts"]) if slot in slots)
        if self.plan.get("joins"):
            environment["KVCL_JOIN_AT"] = f"{self.hosts.address(host) if self.hosts else '127.0.0.1'}:0"
        if self.hosts:
            words = self.hosts.command(host, words)
        rank.stderr = open(os.path.join(self.dir.name, f"stderr.{slot}.{rank.life}"), "w+", encoding="utf-8",
                           errors="replace")
        rank.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=rank.stderr,
                                        text=True, env=environment)
        self.newest[slot] = rank
        self.ranks.append(rank)
        threading.Thread(target=self._read, args=(rank,), daemon=True).start()

    def join(self, slot):
        """A process joins in the slot. It is given the addresses of all that are or were ranks; one of them lives."""
        addresses = [rank.last("ready")["address"] for rank in self.newest.values() if rank.last("ready")]
        self.rnd.shuffle(addresses)
        self._start(slot, {"KVCL_JOIN": ",".join(addresses)})

    def pause(self, ms):
        """Reads what the ranks say for so many milliseconds."""
        end = time.monotonic() + ms / 1e3
        self.until("", lambda: time.monotonic() >= end, end)

    def _read(self, rank):
        for line in rank.process.stdout:
            self.lines.put((rank, line))
        self.lines.put((rank, None))

    def _take(self, rank, line):
        if line is None:
            rank.closed = True
            return
        try:
            said = json.loads(line)
        except ValueError:
            if rank.fate == "killed":
                return # in the middle of a line
            raise Stuck(f"rank {rank.slot} printed no JSON: {line!r}") from None
        said["at"] = time.monotonic()
        rank.take(said)
        if said["what"] in ("event", "failed", "wrong", "ended", "held"):
            self.tell(rank, said)
        if said["what"] == "event" and said["type"] == "WAITING" and rank.fate is None:
            for slot in said["ranks"]:  # each member that is told is to activate it: any of them may be killed
                rank.command(f"activate {slot}")

    def drain(self, seconds=2.0):
        """Reads what the ranks say for so long, after a run has failed."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                self._take(*self.lines.get(timeout=left))
            except (queue.Empty, Stuck):
                pass

    def until(self, what, condition, wake_at=None):
        """Reads what the ranks say until the condition holds. wake_at: when it holds, whatever they say."""
        end = time.monotonic() + PATIENCE
        while not condition():
            try:
                rank, line = self.lines.get(timeout=max(0.001, (wake_at or end) - time.monotonic()))
            except queue.Empty:
                if wake_at is not None:
                    continue
                raise Stuck(f"not within {PATIENCE:.0f} s: {what}") from None
            self._take(rank, line)
            if rank.closed and rank.fate is None and (rank.last("ended") or {}).get("why") != "quit":
                self.excluded(rank)

    def leave(self, rank, fate):
        rank.fate, rank.gone_at = fate, time.monotonic()

    def excluded(self, rank):
        """A rank that ended by itself was excluded, or could not join, or something is wrong."""
        rank.process.wait()
        if rank.process.returncode == 3:
            self.leave(rank, "excluded")
            return
        if rank.process.returncode == 5 and self.refusals < TRIES:
            self.refusals += 1
            self.leave(rank, "refused")
            self.join(rank.slot)
            return
        rank.stderr.seek(0)
        raise Stuck(f"rank {rank.slot} ended with {rank.process.returncode}: {rank.stderr.read()[-2000:]}")

    def alive(self):
        return [rank for rank in self.ranks if rank.fate is None]

    def deaf(self):
        """The slots of those that left since they got no message any more."""
        slots = []
        for rank in self.ranks:
            with open(rank.stderr.name, encoding="utf-8", errors="replace") as text:  # its own offset
                if DEAF in text.read():
                    slots.append(rank.slot)
        return slots

    def signal(self, rank, number):
        # On a host of its own the rank is not the process that was started, but it has taken its place (exec).
        os.kill(rank.process.pid, number)

    def kill(self, rank):
        self.leave(rank, "killed")
        self.signal(rank, signal.SIGKILL)

    def close(self):
        for rank in self.ranks:
            if rank.process.poll() is None:
                rank.process.kill()
            rank.process.wait()
            rank.stderr.close()
        self.dir.cleanup()
