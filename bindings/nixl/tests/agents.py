"""Agents of NIXL's Python package over the KVCL plugin, in one process and in two: transfers, notifications, agents
that die or stop, metadata that were changed. One line a check; the last line counts.
"""

import faulthandler
import os
import random
import signal
import struct
import sys
import tempfile
import time

import agent as agents
from agent import Agent, Other, noise

checks = []
seed = int(os.environ.get("TEST_SEED") or random.SystemRandom().randrange(1 << 32))
dice = random.Random(seed)
MIXED = [(0, 1, 70001), (1, 100, 900), (2, 3, 200000), (0, 500000, 65536), (1, 2000, 1), (2, 250001, 4096)]


def check(what, good, more=""):
    checks.append(bool(good))
    print(("ok   " if good else "FAIL ") + what + (f": {more}" if not good and more != "" else ""), flush=True)


def meet(me, other):
    """Each loads the other's metadata. The other's places."""
    text, places = other("metadata")
    me.load(bytes.fromhex(text))
    other("load", me.nixl.get_agent_metadata().hex())
    return places


def mine_of(me, pieces):
    return b"".join(me.memory[r][at:at + n].tobytes() for r, at, n in pieces)


def theirs_of(other, pieces):
    return b"".join(bytes.fromhex(other("bytes", r, at, n)) for r, at, n in pieces)


def fill(me, number):
    for i, one in enumerate(me.memory):
        one[:] = noise(number + i, one.nbytes)


def transfers(me, other, places):
    fill(me, 1)
    there = MIXED[::-1]
    state = me.move("WRITE", MIXED, other.name, places, MIXED, b"written")
    check("a write ends", state == "DONE", state)
    told = other("notifs", me.name, 1)
    check("its notification arrives, with the writer's name", told == [b"written".hex()], told)
    check("the bytes of all regions are in place", theirs_of(other, MIXED) == mine_of(me, MIXED))
    other("fill", 77)
    state = me.move("READ", there, other.name, places, there, b"read")
    check("a read ends", state == "DONE", state)
    check("it has the other's bytes", mine_of(me, there) == theirs_of(other, there))
    check("the other learns of it", other("notifs", me.name, 1) == [b"read".hex()])
    one = [(0, 4096, 8192)]
    state = me.move("WRITE", one, other.name, places, one, b"z" * 100000)
    check("a write with a notification of many parts ends", state == "DONE", state)
    check("it arrives whole", other("notifs", me.name, 1) == [(b"z" * 100000).hex()])
    state = other("move", "READ", one, me.name, me.places, one, b"back".hex())
    check("the other reads, too", (state == "DONE") and (theirs_of(other, one) == mine_of(me, one)), state)
    check("and tells", me.notifs(other.name, 1) == [b"back"])


def prepared(me, other, places):
    """What an engine does: all blocks once, then lists of their numbers, posted again and again."""
    n, size = 256, 4096
    blocks = [(0, i * size, size) for i in range(n)]
    local = me.nixl.prep_xfer_dlist("NIXL_INIT_AGENT", me.descs(me.places, blocks))
    remote = me.nixl.prep_xfer_dlist(other.name, me.descs(places, blocks))
    here, there = dice.sample(range(n), 100), dice.sample(range(n), 100)
    handle = me.nixl.make_prepped_xfer("READ", local, here, remote, there, b"taken")
    good = True
    for number in (5, 6):
        other("fill", number)
        state = me.nixl.transfer(handle)
        while state == "PROC":
            state = me.nixl.check_xfer_state(handle)
        good = good and state == "DONE" and other("notifs", me.name, 1) == [b"taken".hex()]
        good = good and all(me.memory[0][i * size:(i + 1) * size].tobytes().hex() == other("bytes", 0, j * size, size)
                            for i, j in zip(here, there))
    check("a prepared read of blocks in any order, posted twice", good)
    me.nixl.release_xfer_handle(handle)


def notifications(me, other):
    room = 8192 - 20 - len(me.name)
    texts = [b"", b"\0\xff|", *(dice.randbytes(n) for n in (room - 1, room, room + 1, 3 * room + 5, 1 << 20))]
    good = True
    for text in texts:
        me.nixl.send_notif(other.name, text)
        good = good and other("notifs", me.name, 1) == [text.hex()]
    check("notifications of any length arrive", good)
    many = [b"%d" % i for i in range(2000)]
    for text in many:
        me.nixl.send_notif(other.name, text)
    got = other("notifs", me.name, len(many))
    check("two thousand arrive, each once", sorted(got) == sorted(one.hex() for one in many), len(got))
    try:
        me.nixl.send_notif(other.name, b"x" * ((1 << 20) + 1))
        check("a longer one is refused", False)
    except Exception as error:
        check("a longer one is refused", "InvalidParam" in type(error).__name__, type(error).__name__)


def to_itself(me):
    fill(me, 9)
    state = me.move("WRITE", [(0, 0, 5000)], me.name, me.places, [(2, 100, 5000)], b"own")
    check("an agent writes to itself", state == "DONE", state)
    check("the bytes are there", (me.memory[2][100:5100] == me.memory[0][:5000]).all())
    check("it takes its own notification", me.notifs(me.name, 1) == [b"own"])


def in_one_process(me):
    other = Agent("sibling")
    me.load(other.nixl.get_agent_metadata())
    other.load(me.nixl.get_agent_metadata())
    fill(me, 11)
    state = me.move("WRITE", MIXED, other.name, other.places, MIXED, b"next door")
    check("agents of one process reach each other", state == "DONE", state)
    check("the bytes are in place", mine_of(me, MIXED) == mine_of(other, MIXED))
    check("the notification is there", other.notifs(me.name, 1) == [b"next door"])
    me.nixl.remove_remote_agent(other.name)


def comes_and_goes(me, other):
    text, places = other("metadata")
    good = True
    for i in range(30):
        me.nixl.remove_remote_agent(other.name)
        me.load(bytes.fromhex(text))
        good = good and me.move("READ", [(0, i, 4096)], other.name, places, [(0, i, 4096)]) == "DONE"
    check("an agent is dropped and loaded again, thirty times", good)
    me.nixl.remove_remote_agent(other.name)
    state = me.move("READ", [(0, 0, 4096)], other.name, places, [(0, 0, 4096)])
    check("after that it is not known", state not in ("DONE", "ERR", "PROC"), state)
    me.load(bytes.fromhex(text))


def loads(agent, data, places, region=0):
    """Whether metadata lead to memory: the first transfer finds out at the latest. They are dropped again."""
    try:
        name = agent.load(bytes(data))
    except Exception:
        return False
    state = agent.move("READ", [(region, 0, 1000)], name, places, [(region, 0, 1000)])
    try:
        agent.nixl.remove_remote_agent(name)
    except Exception:
        pass  # NIXL drops those of an agent that is not reached
    return state == "DONE"


def changed_metadata(other):
    """Bytes of KVCL's own parts of the metadata: NIXL itself parses the rest."""
    me = Agent("careful", {"connect_timeout": "0.3"})
    text, places = other("metadata")
    data = bytes.fromhex(text)
    start = data.index(b"kvcl1:")
    end = data.index(b"MemSection", start) - 9
    outcome = {True: 0, False: 0}
    for _ in range(40):
        bad = bytearray(data)
        at = dice.randrange(start, end)
        bad[at] = dice.choice([bad[at] ^ (1 << dice.randrange(8)), 0, 255, dice.randrange(256)])
        outcome[loads(me, bad, places)] += 1
    check("changed addresses do no harm, most are refused", outcome[False] > outcome[True], outcome)
    outcome = {True: 0, False: 0}
    for _ in range(100):
        bad = bytearray(data)
        region = dice.randrange(len(places))
        head = data.index(struct.pack("<QQQ", *places[region], 0))
        n = struct.unpack("<Q", data[head - 8:head])[0] - 24
        bad[head + 24 + dice.randrange(n)] ^= 1 << dice.randrange(8)
        outcome[loads(me, bad, places, region)] += 1
    check("every changed description of memory is refused", outcome[True] == 0, outcome)
    bad = bytearray(data)
    head = data.index(struct.pack("<QQQ", *places[0], 0))
    bad[head + 8:head + 16] = struct.pack("<Q", 1 << 40)
    longer = [(places[0][0], 1 << 40), *places[1:]]
    check("memory that claims to be longer is refused", not loads(me, bad, longer))
    check("the same metadata unchanged are good", loads(me, data, places))


def revoked(me, other, places):
    other("deregister")
    state = me.move("READ", [(0, 0, 4096)], other.name, places, [(0, 0, 4096)])
    check("memory that its agent has deregistered is not read", state != "DONE", state)


def stop(other):
    """All its threads have stopped on return."""
    os.kill(other.process.pid, signal.SIGSTOP)
    os.waitpid(other.process.pid, os.WUNTRACED)


def stopped(me):
    other = Other("stopped")
    places = meet(me, other)
    one = [(0, 0, 65536)]
    check("before the stop it answers", me.move("READ", one, other.name, places, one, b"1") == "DONE")
    stop(other)
    began = time.monotonic()
    state = me.move("READ", one, other.name, places, one, b"2")
    check("a transfer with an agent that has stopped ends by its deadline", state not in ("DONE", "PROC"), state)
    print(f"     ({time.monotonic() - began:.1f} s)")
    handle, state = me.begin("READ", one, other.name, places, one, b"3")
    check("one that is under way is released", state == "PROC" and me.nixl.release_xfer_handle(handle) is None, state)
    os.kill(other.process.pid, signal.SIGCONT)
    state = me.move("READ", one, other.name, places, one, b"4")
    check("when it goes on it answers again", state == "DONE", state)
    check("and has what was sent to it", b"4".hex() in other("notifs", me.name, 4, 5))
    other.end()


def silent(me):
    """Loading waits for nobody; what is begun meanwhile goes out when the agent answers, or fails when it does not."""
    patient, hasty = Agent("patient", {"connect_timeout": "300"}), Agent("hasty", {"connect_timeout": "0.3"})
    other = Other("silent")
    text, places = other("metadata")
    one = [(0, 0, 65536)]
    stop(other)
    began = time.monotonic()
    patient.load(bytes.fromhex(text))
    handle, state = patient.begin("WRITE", one, other.name, places, one, b"begun")
    left, other_state = patient.begin("WRITE", one, other.name, places, one, b"left")
    patient.nixl.release_xfer_handle(left)
    patient.nixl.send_notif(other.name, b"told")
    took = time.monotonic() - began
    check("nobody waits for a silent agent", (state, other_state) == ("PROC", "PROC") and took < 150, (state, took))
    hasty.load(bytes.fromhex(text))
    ended = hasty.move("READ", one, other.name, places, one)
    check("a transfer ends when the agent has not answered in time", ended not in ("DONE", "PROC"), ended)
    check("while it is silent the other goes on", patient.nixl.check_xfer_state(handle) == "PROC")
    fill(patient, 21)
    os.kill(other.process.pid, signal.SIGCONT)
    state = patient.finish(handle, "PROC")
    check("it ends when the agent answers", state == "DONE", state)
    check("its bytes are in place", theirs_of(other, one) == mine_of(patient, one))
    got = other("notifs", patient.name, 2)
    check("and all that was told", sorted(got) == sorted([b"begun".hex(), b"told".hex()]), got)
    other("load", me.nixl.get_agent_metadata().hex())
    other("tell", me.name, b"at once".hex())
    check("a notification right after loading arrives", me.notifs(other.name, 1) == [b"at once"])
    other.end()


def killed(me):
    other = Other("mortal")
    places = meet(me, other)
    one = [(0, 0, 65536)]
    check("before its death it answers", me.move("READ", one, other.name, places, one, b"1") == "DONE")
    other.process.kill()
    other.process.wait()
    state = me.move("READ", one, other.name, places, one, b"2")
    check("a transfer with a dead agent fails", state not in ("DONE", "PROC"), state)
    try:
        me.nixl.remove_remote_agent(other.name)
    except Exception:
        pass
    other = Other("mortal")
    places = meet(me, other)
    state = me.move("READ", one, other.name, places, one, b"3")
    check("its successor of the same name is reached", state == "DONE", state)
    check("and is told", other("notifs", me.name, 1) == [b"3".hex()])
    other.end()


def refused(me):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "secret")
        with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
            file.write(os.urandom(32))
        with open(os.path.join(folder, "err"), "w+", encoding="utf-8", errors="replace") as err:
            other = Other("stranger", {"secret_file": path}, stderr=err)
            other("load", me.nixl.get_agent_metadata().hex())
            one = [(0, 0, 4096)]
            state = other("move", "READ", one, me.name, me.places, one)
            check("an agent with another secret is not connected", state not in ("DONE", "PROC"), state)
            other.end()
            err.seek(0)
            lines = err.read()
            check("the line says why", "secret" in lines, lines[-500:])
        with open(os.path.join(folder, "err"), "w+", encoding="utf-8", errors="replace") as err:
            other = Other("wrong", {"tiemout": "1"}, stderr=err)
            answer = other.answer()
            other.process.wait()
            err.seek(0)
            lines = err.read()
            check("an option that does not exist is refused by name", '"tiemout"' in lines and "Error" in answer,
                  lines[-500:])


def main():
    faulthandler.dump_traceback_later(agents.LIMIT * 2, exit=True)
    print(f"TEST_SEED={seed}", flush=True)
    me = Agent("me", {"timeout": "3"})
    other = Other("other")
    places = meet(me, other)
    transfers(me, other, places)
    prepared(me, other, places)
    notifications(me, other)
    to_itself(me)
    in_one_process(me)
    comes_and_goes(me, other)
    changed_metadata(other)
    revoked(me, other, places)
    check("the other ends well", other.end() == 0)
    stopped(me)
    silent(me)
    killed(me)
    refused(me)
    print(f"{checks.count(True)} passed, {checks.count(False)} failed, 0 skipped", flush=True)
    del me
    sys.stdout.flush()
    sys.exit(0 if all(checks) else 1)


if __name__ == "__main__":
    main()
