"""kvcl.vllm: prompts handed over from one engine's memory to another's, without vLLM: the shares of ranks, the plan's
parameters, and both ends of a handover over contexts of this process.
"""

import contextlib
import dataclasses
import json
import logging
import subprocess
import sys
import time
import types

import kvcl
import pytest
from kvcl.vllm import _handover
from kvcl.vllm._handover import Lease, Part, Source
from kvcl.vllm._peers import CACHE, Leases, Peers
from kvcl.vllm._plan import Plan

from conftest import LIMIT, chance

SIZE, BASE = 128, b"b" * 32
BLOCK = 1024
log = logging.getLogger("test")


def hashes(n, salt="h"):
    return [kvcl.key_from_string(f"{salt} {i}") for i in range(n)]


# ---- the shares of ranks ----


@pytest.mark.parametrize("heads, theirs, ours", [
    (8, 1, 1), (8, 2, 1), (8, 1, 4), (8, 4, 2), (2, 8, 1), (2, 1, 8), (2, 8, 4), (1, 4, 2), (1, 2, 4), (4, 8, 8)])
def test_each_head_comes_from_a_rank_that_has_it(heads, theirs, ours):
    told = {peer: [] for peer in range(theirs)}
    for rank in range(ours):
        mine = _handover._held(heads, ours, rank)
        got = {}
        for part in _handover.parts(heads, ours, rank, theirs):
            held = _handover._held(heads, theirs, part.peer)
            if part.ours:
                assert part.their_parts == len(held)
            for a, b in zip(part.theirs, part.ours):
                got[b] = held[a]
            told[part.peer].append((part.reader, part.readers))
        assert [got[i] for i in range(len(mine))] == mine
    for readers in told.values():  # each rank knows when all have read
        assert readers and sorted(readers) == [(number, len(readers)) for number in range(len(readers))]


# ---- the plan ----


def handed(prompt=300, tail=b"t", tp=1, **changes):
    """A prefill engine's plan with a request, which has been computed: (plan, lease, params)."""
    plan = Plan(SIZE, "none", tp, BASE)
    plan.peers.update({rank: f"address {rank}" for rank in range(tp)})
    plan.add("p", prompt, hashes(prompt // SIZE), {"do_remote_decode": True}, tail)
    lease, = plan.step([("p", prompt)], lambda r: [7, 8, 9]).leases
    keep, params = plan.finished("p")
    assert keep and plan.step([], lambda r: []).kept == ["p"]
    return plan, lease, json.loads(json.dumps(dict(params, **changes)))


def taken(params, prompt=300, names=None, tail=b"t"):
    """What a decode engine's plan reads for these parameters."""
    plan = Plan(SIZE, "none", 1, BASE)
    plan.add("d", prompt, hashes(prompt // SIZE) if names is None else names, params, tail)
    return plan


def test_both_engines_name_a_handover_alike():
    plan, lease, params = handed(tp=2)
    decode = taken(params)
    assert decode.direct("d") and decode.wanted("d", 300, 128)[0] == 1
    decode.load("d", 128, 172, [20, 21, 22])
    load, = decode.step([], lambda r: []).loads
    assert load.source == Source(("address 0", "address 1"), (7, 8, 9), lease.slot, lease.name)
    assert load.first == 1 and load.blocks == [21, 22] and load.parts == [] and not decode.direct("d")
    plan.freed(["p"])
    assert lease.slot in plan._slots


def test_another_prompt_or_other_blocks_are_another_name():
    _, lease, params = handed()
    names = {lease.name}
    for plan in (taken(params, tail=b"u"), taken(params, names=hashes(2, "other")),
                 taken(dict(params, kvcl_blocks=[7, 8, 10])), taken(dict(params, kvcl_id="x"))):
        name = plan._entries["d"].source.name
        assert name not in names
        names.add(name)


@pytest.mark.parametrize("changes", [
    {"kvcl_blocks": [7, 8]}, {"kvcl_blocks": None}, {"kvcl_blocks": [7, 8, -1]}, {"kvcl_blocks": [7, 8, 1 << 40]},
    {"kvcl_blocks": [7, 8, True]}, {"kvcl_slot": -1}, {"kvcl_slot": _handover.SLOTS}, {"kvcl_slot": "0"},
    {"kvcl_peers": []}, {"kvcl_peers": [5]}, {"kvcl_peers": "address"}, {"kvcl_peers": ["x"] * 5000},
    {"kvcl_tokens": 299}])
def test_parameters_of_another_form_name_no_source(changes):
    assert not taken(handed(**changes)[2]).direct("d")


def test_a_request_without_its_addresses_or_a_slot_goes_through_the_store():
    plan = Plan(SIZE, "prompt", 2, BASE)
    plan.peers[0] = "address 0"  # the other rank has not told its own
    plan.add("p", 300, hashes(2), {"do_remote_decode": True})
    assert plan.step([("p", 300)], lambda r: [1, 2, 3]).leases == []
    assert "kvcl_peers" not in plan.finished("p")[1]
    plan = Plan(SIZE, "none", 1, BASE)
    plan.peers[0] = "a"
    plan._slots.clear()
    plan.add("p", 300, hashes(2), {"do_remote_decode": True})
    assert plan.step([("p", 300)], lambda r: [1, 2, 3]).leases == [] and plan.finished("p")[0] is False


def test_a_lease_ends_with_an_abort_or_a_preemption():
    for early in ("abort", "preemption"):
        plan = Plan(SIZE, "none", 1, BASE)
        plan.peers[0] = "a"
        free = len(plan._slots)
        plan.add("p", 300, hashes(2), {"do_remote_decode": True})
        plan.step([("p", 200)], lambda r: [1, 2])
        assert plan.step([("p", 300)], lambda r: [1, 2, 3]).leases
        if early == "abort":
            assert plan.finished("p", aborted=True) == (False, None)
            assert plan.step([], lambda r: []).dropped == ["p"]
        else:
            assert plan.step([], lambda r: [], ["p"]).dropped == ["p"]
            work = plan.step([("p", 300)], lambda r: [4, 5, 6])
            assert work.leases and not work.dropped and plan.finished("p")[1]["kvcl_blocks"] == [4, 5, 6]
            plan.freed(["p"])
        assert len(plan._slots) == free


def test_a_handover_that_is_not_needed_is_told():
    params = handed()[2]
    for how in ("local hit", "end"):
        plan = taken(params)
        plan.not_read("d") if how == "local hit" else plan.finished("d", aborted=True)
        assert [one.blocks for one in plan.step([], lambda r: []).unread] == [(7, 8, 9)]
        assert plan.step([], lambda r: []).unread == []


def test_a_step_waits_only_for_an_engine_that_was_read_before():
    params = handed(tp=2)[2]
    plan = taken(params)
    other = dict(params, kvcl_peers=["x", "y"])
    for request, given in (("again", params), ("other", other)):
        plan.add(request, 300, hashes(2), given, b"t")
    assert not plan.answers("d")
    plan.load("d", 0, 300, [20, 21, 22])
    assert not plan.answers("d") and not plan.answers("again")
    plan.loaded(["d", "unknown"])
    assert plan.answers("again") and not plan.answers("other")
    plan.load("again", 0, 299, [30, 31, 32], waited=True)
    load = plan.step([], lambda r: []).loads[1]
    assert load.waited and load.blocks == [30, 31, 32] and load.parts == []
    plan.add("third", 300, hashes(2), params, b"t")
    assert plan.answers("third") and plan.load_failed([31]) == ["again"] and not plan.answers("third")
    plan.loaded(["again"])  # it has failed
    assert not plan.answers("third")


# ---- both ends ----


@pytest.fixture
def ends(tmp_path, monkeypatch):
    """Contexts of a prefill and a decode engine, with caches of 2 parts a block."""
    (tmp_path / "secret").write_text("a secret of 24 letters..")
    (tmp_path / "secret").chmod(0o600)
    monkeypatch.setenv("KVCL_SECRET_FILE", str(tmp_path / "secret"))
    with kvcl.Context(boot="self") as one, kvcl.Context(boot="self") as two:
        theirs = one.cache(CACHE, kvcl.Layout.bytes(64, BLOCK))
        ours = two.cache(CACHE, kvcl.Layout.bytes(64, BLOCK))
        for i in range(64):
            theirs.write(i, bytes([i + 1]) * BLOCK)
        leases = Leases(one, 60.0, log)
        peers = Peers({"timeout": 10.0, "handover_timeout": 10.0})
        peers.open(two, ours)
        yield leases, peers, ours, theirs
        leases.close()


PARTS = [Part(0, (0, 1), (0, 1), 2, 1)]


def wait(call, peers):
    until = time.monotonic() + LIMIT
    while not call.done:
        assert time.monotonic() < until, "the read does not end"
        peers.progress()
        time.sleep(0.0005)
    return call.result


def poll_until(leases, what):
    until = time.monotonic() + LIMIT
    while not what():
        assert time.monotonic() < until, "nothing happens"
        leases.poll()
        time.sleep(0.001)


def test_blocks_are_read_and_their_lease_ends(ends):
    leases, peers, ours, _ = ends
    leases.set(Lease("r", 5, b"n" * 32))
    source = Source((leases.address,), (3, 9, 4), 5, b"n" * 32)
    assert wait(peers.read(source, PARTS, [10, 11], 1), peers) == [kvcl.Status.OK] * 4
    assert [ours.read(20 + i)[0] for i in range(4)] == [19, 20, 9, 10]
    poll_until(leases, lambda: leases._open["r"].read)
    assert "r" in leases  # until its request has ended
    leases.ended("r")
    leases.poll()
    assert "r" not in leases and leases.late == 0


def test_blocks_whose_lease_has_ended_are_not_read(ends):
    leases, peers, _, _ = ends
    leases.set(Lease("r", 5, b"n" * 32))
    for source in (Source((leases.address,), (3,), 5, b"m" * 32), Source((leases.address,), (3,), 6, b"n" * 32)):
        with pytest.raises(kvcl.Stale, match="given these blocks to others"):
            wait(peers.read(source, PARTS, [10], 0), peers)
    leases.drop(["r"])
    with pytest.raises(kvcl.Stale):
        wait(peers.read(Source((leases.address,), (3,), 5, b"n" * 32), PARTS, [10], 0), peers)
    leases.set(Lease("r", 5, b"n" * 32))
    assert wait(peers.read(Source((leases.address,), (3,), 5, b"n" * 32), PARTS, [10], 0), peers)


def test_a_read_waits_until_its_engine_is_open(ends, tmp_path):
    leases, peers, ours, _ = ends
    leases.set(Lease("r", 5, b"n" * 32))
    source = Source((leases.address,), (3,), 5, b"n" * 32)
    early = Peers({"timeout": 10.0, "handover_timeout": 10.0})
    call = early.read(source, PARTS, [10], 0)
    early.progress()
    assert not call.done
    late = Peers({"timeout": 10.0, "handover_timeout": 0.05})
    with pytest.raises(kvcl.TimedOut, match="did not answer"):
        wait(late.read(source, PARTS, [10], 0), late)
    with pytest.raises(kvcl.TimedOut, match="did not answer"):
        wait(early.read(source, PARTS, [10], 0, 0.05), early)
    with kvcl.Context(boot="self") as context:
        early.open(context, context.cache(CACHE, kvcl.Layout.bytes(64, BLOCK)))
        assert wait(call, early) == [kvcl.Status.OK] * 2


@pytest.mark.parametrize("heads, theirs, ours", [(2, 2, 1), (2, 1, 2), (4, 2, 2), (1, 2, 2), (2, 4, 2), (4, 4, 1)])
def test_engines_of_any_sizes_hand_over_each_head(tmp_path, monkeypatch, heads, theirs, ours):
    """One context for each rank. heads 1: MLA's latent, which all ranks have."""
    (tmp_path / "secret").write_text("a secret of 24 letters..")
    (tmp_path / "secret").chmod(0o600)
    monkeypatch.setenv("KVCL_SECRET_FILE", str(tmp_path / "secret"))
    with contextlib.ExitStack() as stack:
        first, second = ([stack.enter_context(kvcl.Context(boot="self")) for _ in range(n)] for n in (theirs, ours))
        leases, reads, caches = [], [], []
        for rank, context in enumerate(first):
            held = _handover._held(heads, theirs, rank)
            cache = context.cache(CACHE, kvcl.Layout.bytes(16 * len(held), BLOCK))
            for block in range(16):
                for part, head in enumerate(held):
                    cache.write(block * len(held) + part, bytes([16 * head + block]) * BLOCK)
            caches.append(cache)
            leases.append(Leases(context, 60.0, log, None, rank, theirs))
            leases[-1].set(Lease("r", 5, b"n" * 32))
            leases[-1].ended("r")
        source = Source(tuple(one.address for one in leases), (9, 3, 4), 5, b"n" * 32)
        for rank, context in enumerate(second):
            held = _handover._held(heads, ours, rank)
            cache = context.cache(CACHE, kvcl.Layout.bytes(16 * len(held), BLOCK))
            peers = Peers({"timeout": 10.0, "handover_timeout": 10.0})
            peers.open(context, cache)
            parts = _handover.parts(heads, ours, rank, theirs)
            reads.append((held, cache, peers, peers.read(source, parts, [1, 2], 1)))
        for held, cache, peers, call in reads:
            assert wait(call, peers) == [kvcl.Status.OK] * 2 * len(held)
            for i, block in enumerate((3, 4)):
                for part, head in enumerate(held):
                    assert cache.read((1 + i) * len(held) + part) == bytes([16 * head + block]) * BLOCK
        for one in leases:  # each rank knows when all have read it
            poll_until(one, lambda one=one: "r" not in one)
            assert one.late == 0
        for one in leases:
            one.close()


def test_all_readers_are_waited_for_and_one_may_say_that_it_will_not_read(ends):
    leases, peers, _, _ = ends
    leases.set(Lease("r", 0, b"n" * 32))
    leases.ended("r")
    source = Source((leases.address,), (3,), 0, b"n" * 32)
    two, other = ([dataclasses.replace(PARTS[0], readers=2, reader=one)] for one in (1, 0))
    wait(peers.read(source, two, [1], 0), peers)
    wait(peers.read(source, two, [1], 0), peers)  # the same reader again
    poll_until(leases, lambda: leases._open["r"].readers == {1})
    assert "r" in leases
    wait(peers.read(source, other, [], 0), peers)
    poll_until(leases, lambda: "r" not in leases)


def test_blocks_that_nobody_reads_are_freed_at_the_deadline(ends):
    leases = ends[0]
    leases._seconds = 0.05
    leases.set(Lease("r", 0, b"n" * 32))
    time.sleep(0.1)
    leases.poll()
    assert "r" in leases  # its request has not ended
    leases.ended("r")
    poll_until(leases, lambda: "r" not in leases)
    assert leases.late == 1


def test_an_engine_that_is_gone_or_answers_nothing_fails_the_read_alone(ends, tmp_path):
    leases, peers, _, _ = ends
    leases.set(Lease("r", 0, b"n" * 32))
    with kvcl.Context(boot="self") as gone:
        address = gone.address
    peers._options["handover_timeout"] = 1.0
    for wrong in (address, "no address"):
        with pytest.raises(kvcl.KvclError):
            wait(peers.read(Source((wrong,), (3,), 0, b"n" * 32), PARTS, [1], 0), peers)
    peers._options["handover_timeout"] = LIMIT
    with kvcl.Context(boot="self") as silent:  # it does not listen
        with pytest.raises(kvcl.NotFound):
            wait(peers.read(Source((silent.address,), (3,), 0, b"n" * 32), PARTS, [1], 0), peers)
    assert wait(peers.read(Source((leases.address,), (3,), 0, b"n" * 32), PARTS, [1], 0), peers)


def test_connecting_has_the_whole_time_of_a_handover_and_is_begun_again_if_an_earlier_one_was_too_late(ends):
    leases, peers, _, _ = ends
    leases.set(Lease("r", 0, b"n" * 32))
    source, given = Source((leases.address,), (3,), 0, b"n" * 32), []

    class Late:
        def done(self):
            return True

        def result(self):
            raise kvcl.TimedOut("nobody answered in the time given")

    def connect_post(address, seconds):
        given.append(seconds)
        return Late()

    context, peers._context = peers._context, types.SimpleNamespace(connect_post=connect_post)
    call = peers.read(source, PARTS, [1], 0)
    until = time.monotonic() + LIMIT
    while len(given) < 3 and time.monotonic() < until:
        peers.progress()
    peers._context = context
    assert len(given) >= 3 and set(given) == {10.0} and not call.done
    assert wait(call, peers) == [kvcl.Status.OK] * 2


HELD = f"""
import ctypes, logging, sys, time, kvcl
from kvcl.vllm._handover import Lease
from kvcl.vllm._peers import CACHE, Leases

with kvcl.Context(boot="self") as context:
    cache = context.cache(CACHE, kvcl.Layout.bytes(64, {BLOCK}))
    cache.write(6, b"6" * {BLOCK})
    leases = Leases(context, 60.0, logging.getLogger("test"))
    leases.set(Lease("r", 5, b"n" * 32))
    leases.ended("r")
    print(leases.address, flush=True)
    byte = ctypes.create_string_buffer(1)
    assert ctypes.PyDLL(None).read(0, byte, 1) == 1  # with the GIL, until the readers have read
    until = time.monotonic() + {LIMIT}
    while "r" in leases:
        assert time.monotonic() < until
        leases.poll()
    print("late", leases.late, flush=True)
"""


def test_readers_connect_while_a_thread_of_the_other_engine_holds_the_gil(ends):
    child = subprocess.Popen([sys.executable, "-c", HELD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        source = Source((child.stdout.readline().strip(),), (3,), 5, b"n" * 32)
        with contextlib.ExitStack() as stack:
            for reader in range(3):
                context = stack.enter_context(kvcl.Context(boot="self"))
                cache = context.cache(CACHE, kvcl.Layout.bytes(64, BLOCK))
                peers = Peers({"timeout": LIMIT, "handover_timeout": LIMIT})
                peers.open(context, cache)
                parts = [dataclasses.replace(PARTS[0], readers=3, reader=reader)]
                assert wait(peers.read(source, parts, [10], 0), peers) == [kvcl.Status.OK] * 2
                assert cache.read(20) == b"6" * BLOCK
            assert child.communicate("x", timeout=LIMIT)[0].strip() == "late 0"
    finally:
        child.kill()
        child.wait()


def test_wrong_ids_and_notifications_harm_nobody(ends):
    leases, peers, _, _ = ends
    leases.set(Lease("r", 0, b"n" * 32))
    with pytest.raises(kvcl.KvclError):
        wait(peers.read(Source((leases.address,), (9999,), 0, b"n" * 32), PARTS, [1], 0), peers)
    comm = peers._peers[leases.address].result()
    for bad in (b"", b"x" * 7, b"n" * 32 + b"\xff" * 8, b"n" * 32 + bytes(8)):
        comm.notify(0, bad).wait()
    leases.poll()
    assert "r" in leases and not leases._open["r"].readers
    assert wait(peers.read(Source((leases.address,), (3,), 0, b"n" * 32), PARTS, [1], 0), peers)


def test_random_handovers_end_with_their_bytes_or_an_error(ends):
    leases, peers, ours, theirs = ends
    rand = chance()
    for turn in range(60):
        name, slot, blocks = rand.randbytes(32), rand.randrange(_handover.SLOTS), rand.sample(range(32), 4)
        leases.set(Lease("r", slot, name))
        call = peers.read(Source((leases.address,), tuple(blocks), slot, name), PARTS, [0, 1, 2, 3], 0)
        if rand.random() < 0.5:  # the blocks are given to others meanwhile
            leases.drop(["r"])
            for block in blocks:
                theirs.write(2 * block, bytes([200]) * BLOCK)
        try:
            wait(call, peers)
            for i, block in enumerate(blocks):
                assert ours.read(2 * i) == bytes([2 * block + 1]) * BLOCK
        except kvcl.Stale:
            pass
        for block in blocks:
            theirs.write(2 * block, bytes([2 * block + 1]) * BLOCK)
