"""kvcl.vllm: prompts handed over by engines and routers that lie, without vLLM. A read ends with the prompt's bytes or
with an error, after which the prompt is computed; nothing else of either engine is held up, and memory is bounded.
"""

import logging
import random
import types

import kvcl
import pytest
from kvcl.vllm import _board, _handover
from kvcl.vllm._announce import Board
from kvcl.vllm._board import Header, Rows
from kvcl.vllm._handover import Ahead, Lease, Source
from kvcl.vllm._peers import CACHE, EARLY, READ, SCRATCH, Leases, Peers
from kvcl.vllm._plan import Plan
from kvcl.vllm._seal import Seal

from conftest import LIMIT, chance
from test_vllm_ahead import COUNT, LAYERS, LAYOUT, PAGE, TOKENS, Ends
from test_vllm_handover import BASE, PARTS, SIZE, hashes, wait

NAME, THEIRS, OURS = b"n" * 32, (3, 4), [20, 21]  # of a lease; the blocks of a prompt of 8 tokens
log = logging.getLogger("test")


@pytest.fixture
def three(tmp_path, monkeypatch):
    """Contexts of a decode engine and of the two ranks of a prefill engine."""
    (tmp_path / "secret").write_text("a secret of 24 letters..")
    (tmp_path / "secret").chmod(0o600)
    monkeypatch.setenv("KVCL_SECRET_FILE", str(tmp_path / "secret"))
    with kvcl.Context(boot="self") as one, kvcl.Context(boot="self") as two, kvcl.Context(boot="self") as three:
        yield one, two, three


# ---- which ranks are read ----


def content(rank, layer, block):
    return bytes([100 * rank + 20 * layer + block]) * PAGE


def computed(contexts):
    """The leases of an engine whose ranks have one head each, and have computed a prompt."""
    rows, out = Rows(), []
    assert rows.take("r", "id")
    chunk = rows.chunk("r", "id", NAME, list(THEIRS), 8)
    for rank, context in enumerate(contexts):
        cache = context.cache(CACHE, LAYOUT)
        for layer in range(LAYERS):
            for block in range(20):
                memoryview(cache.bases[layer])[block * PAGE:(block + 1) * PAGE] = content(rank, layer, block)
        leases = Leases(context, 60.0, log, Board(context, LAYERS, COUNT), rank, len(contexts))
        leases.cache = cache  # which lives as long
        leases.announce([chunk], True)
        leases.set(Lease("r", 5, NAME))
        leases.board.step_computed()
        out.append(leases)
    return out


@pytest.mark.parametrize("ahead", [False, True], ids=["computed", "ahead"])
@pytest.mark.parametrize("ranks", [(0, 1), (1, 0), (0, 0), (0,), (1,), (0, 1, 0, 1)], ids=str)
def test_other_ranks_than_the_engines_or_in_another_order_are_not_read(three, ranks, ahead):
    """kv_transfer_params may come from a user. Heads that are missing, or another rank's, would be wrong bytes in the
    decode engine's own cache, for all prompts that begin alike."""
    leases = computed(three[1:])
    ours, peers = three[0].cache(CACHE, LAYOUT), Peers({"timeout": LIMIT, "handover_timeout": LIMIT})
    peers.open(three[0], ours)
    addresses = tuple(leases[rank].address for rank in ranks)
    source = (Source(addresses, (), -1, NAME, Ahead("id", 8, TOKENS)) if ahead else
              Source(addresses, THEIRS, 5, NAME))
    call = peers.read(source, _handover.parts(2, 1, 0, len(ranks)), OURS, 0)
    if ranks == (0, 1):
        assert wait(call, peers) == [kvcl.Status.OK] * 4
        for layer in range(LAYERS):
            for theirs, mine in zip(THEIRS, OURS):
                for head in range(2):
                    at = (2 * mine + head) * PAGE
                    assert bytes(memoryview(ours.bases[layer])[at:at + PAGE]) == content(head, layer, theirs)
    else:
        with pytest.raises(kvcl.Stale):
            wait(call, peers)
    for one in leases:
        one.close()


@pytest.mark.parametrize("heads, theirs", [(8, 3), (8, 6), (4, 1023), (6, 4)])
def test_an_engine_of_a_size_that_the_heads_do_not_allow_is_refused(heads, theirs):
    with pytest.raises(ValueError, match=f"of {theirs} ranks: the model's {heads} KV heads"):
        _handover.parts(heads, 1, 0, theirs)


# ---- addresses ----


def test_an_address_that_no_engine_of_the_job_has_made_is_not_connected_to(tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"the secret {name} of many letters")
    monkeypatch.setenv("KVCL_SECRET_FILE", str(tmp_path / "one"))
    seal, text = Seal(str(tmp_path / "one")), Seal("").put("kvcl1:address")
    mac = text.rpartition("#")[2]
    assert seal.take(text) == "kvcl1:address" and seal.refused == 0
    bad = ["kvcl1:address", "", "#", "kvcl1:address#", text[:-1], text + "0", "x" + text, f"host:80#{mac}", f"#{mac}",
           f"{text}#{mac}", "\ud800#\ud800", f"\ud800#{mac}", "kvcl1:address#" + "0" * 32, "\0" + text]
    assert [seal.take(one) for one in bad] == [None] * len(bad) and seal.refused == len(bad)
    assert Seal(str(tmp_path / "two")).take(text) is None and Seal(str(tmp_path / "none")).take(text) is None
    prefill = Plan(SIZE, "none", 1, BASE)
    prefill.peers[0] = text
    prefill.add("p", 300, hashes(2), {"do_remote_decode": True}, b"t")
    prefill.step([("p", 300)], lambda r: [7, 8, 9])
    params = prefill.finished("p")[1]
    for given in (params, {"do_remote_prefill": True, "kvcl_ahead": True, "kvcl_id": "id", "kvcl_peers": [text]}):
        for peers in ([text], [text, "kvcl1:made up"], ["kvcl1:address"]):
            decode = Plan(SIZE, "none", 1, BASE, False, seal)
            decode.add("d", 300, hashes(2), dict(given, kvcl_peers=peers), b"t")
            assert decode.direct("d") == (peers == [text])
            if decode.direct("d"):
                decode.load("d", 0, 300, [1, 2, 3])
                assert decode.step([], lambda r: []).loads[0].source.peers == ("kvcl1:address",)


# ---- boards ----


class Liar:
    """The board of an engine that writes there what it likes, and a decode engine that reads it."""

    def __init__(self, one, two, timeout):
        self.cache, self.ours = two.cache(CACHE, LAYOUT), one.cache(CACHE, LAYOUT)
        self.headers = two.cache(_board.BOARD, kvcl.Layout.bytes(_board.ROWS, _board.CELL))
        self.cells = two.cache(_board.BLOCKS, kvcl.Layout.bytes(_board.ROWS, _board.CELL))
        for row in range(_board.ROWS):
            self.headers.write(row, bytes(_board.CELL))
        self.row = _board.rows_of("id")[3]
        self.door = two.listen()
        self.peers = Peers({"timeout": LIMIT, "handover_timeout": timeout})
        self.peers.open(one, self.ours)

    def say(self, blocks=(0,), **fields):
        said = {"name": NAME, "mark": _board.mark_of("id"), "turn": 1, "cells": 1, "before": 8, "after": 8, **fields}
        self.cells.write(self.row, _board.pack_blocks(blocks))
        self.headers.write(self.row, Header(**said).pack())

    def read(self):
        source = Source((self.door.address,), (), -1, NAME, Ahead("id", 8, TOKENS))
        return self.peers.read(source, PARTS, OURS, 0)


@pytest.mark.parametrize("said", [{"cells": 0}, {"cells": (1 << 32) - 1}, {"cells": 1 << 24}, {"blocks": [1 << 31, 0]},
                                  {"blocks": [1, (1 << 32) - 1]}], ids=str)
def test_a_board_that_cannot_be_is_no_prompts(three, said):
    liar = Liar(*three[:2], LIMIT)
    liar.say(**said)
    with pytest.raises(kvcl.Stale):
        wait(liar.read(), liar.peers)
    assert len(liar.peers._free_rows) == SCRATCH


def test_random_boards_end_with_an_answer_or_an_error_and_touch_no_other_block(three):
    """The header and the blocks change while they are read."""
    rand = chance()
    liar = Liar(*three[:2], LIMIT)
    for base in liar.ours.bases:
        memoryview(base)[:] = b"o" * len(memoryview(base))
    liar.say([3, 4])
    assert wait(liar.read(), liar.peers) == [kvcl.Status.OK] * 4
    liar.peers._options["handover_timeout"] = 0.05

    def number(most):
        return rand.choice([rand.randrange(most), rand.randrange(1 << 32), 0, (1 << 32) - 1])

    for _ in range(60):
        call = liar.read()
        while not call.done:
            if rand.random() < 0.2:
                liar.say([number(COUNT // 2) for _ in range(_board.PER_CELL)], before=number(10), after=number(10),
                         layers=number(LAYERS + 2), turn=number(2), cells=rand.choice([1, 1, 1, number(3)]))
            liar.peers.progress()
        assert call.error is None or isinstance(call.error, kvcl.KvclError), call.error
        assert len(liar.peers._free_rows) == SCRATCH
    for base in liar.ours.bases:
        page = bytes(memoryview(base))
        assert page[:2 * OURS[0] * PAGE] + page[(2 * OURS[-1] + 2) * PAGE:] == b"o" * ((COUNT - 4) * PAGE)


def test_a_read_that_cannot_be_posted_leaves_none_behind_that_moves_bytes():
    first = object()

    def wrong():
        raise ValueError("blocks is 4294967296: 0 to 4294967295 is possible")

    steps = Peers._all([lambda: first, wrong])
    assert next(steps) is first
    with pytest.raises(ValueError):
        steps.send(None)


def test_prompts_that_are_never_computed_keep_no_other_read_waiting(three):
    """As many as are read at once, and one more: which a step might wait for."""
    ends = Ends(*three[:2])
    ends.leases.set(Lease("r", 5, b"l" * 32))
    calls = [ends.read(4, [20]) for _ in range(SCRATCH)]
    ends.until(lambda: not ends.peers._free_rows)
    calls.append(ends.read(4, [20]))
    source = Source((ends.leases.address,), (9,), 5, b"l" * 32)
    call = ends.peers.read(source, PARTS, [30], 0)
    ends.until(lambda: call.done or any(one.done for one in calls))
    assert call.done and call.result == [kvcl.Status.OK] * 2
    ends.peers._options["handover_timeout"] = 0.2
    ends.until(lambda: all(one.done for one in calls))
    assert all(isinstance(one.error, kvcl.TimedOut) for one in calls)
    assert len(ends.peers._free_rows) == SCRATCH
    ends.peers._free_rows = []
    with pytest.raises(kvcl.TimedOut, match="256 other prompts are read"):
        wait(ends.read(4, [20]), ends.peers)
    ends.leases.close()


# ---- notifications ----


class Flood:
    """In place of a door: notifications without end, of prompts that the engine does not know."""

    def __init__(self):
        self.taken, self.rand = 0, random.Random(1)
        self.names = [self.rand.randbytes(32) for _ in range(16)]

    def notify_recv(self):
        self.taken += 1
        assert self.taken < 1000, "a poll does not end"
        return 0, READ.pack(self.rand.choice(self.names), self.rand.randrange(4096), 4096)


def test_readers_that_tell_without_end_hold_nothing_up_and_take_bounded_memory(three):
    leases, = computed(three[1:2])
    door, leases._door = leases._door, Flood()
    total = 0
    while total < 2 * EARLY:
        leases._door.taken = 0
        leases.poll()
        total += leases._door.taken
    told = [data for one in leases._early.values() for data in one]
    assert 0 < len(told) <= EARLY and len(told) == len(set(told)) == leases._n_early
    leases._door = types.SimpleNamespace(notify_recv=iter([(0, READ.pack(NAME, 0, 1)), None]).__next__)
    leases.ended("r")
    leases.poll()
    assert "r" not in leases and not leases._named and leases.late == 0
    leases._door = door
    leases.close()


# ---- names ----


@pytest.mark.parametrize("name", ["\ud800", "x" * 200 + "\udfff", "x" * (1 << 20), ""],
                         ids=["half", "end", "long", "none"])
@pytest.mark.parametrize("how", [{"kvcl_tokens": 300}, {"kvcl_ahead": True, "kvcl_peers": ["address"]}],
                         ids=["computed", "ahead"])
def test_a_name_that_is_none_costs_its_request_the_handover_and_others_nothing(name, how):
    """A step's work is that of all of its requests: what one of them fails with would lose it."""
    plan = Plan(SIZE, "prompt", 1, BASE, True)
    plan.peers[0] = "address"
    for request, given in (("bad", name), ("good", "id")):
        plan.add(request, 300, hashes(2), {"do_remote_decode": True, "kvcl_id": given})
    work = plan.step([("bad", 300), ("good", 300)], lambda r: [7, 8, 9])
    assert [one.request for one in work.chunks] == ["good"]
    assert [one.request for one in work.leases] == ["bad", "good"] and len(work.saves) == 2
    plan.add("read", 300, hashes(2), {"do_remote_prefill": True, "kvcl_id": name, **how})
    assert not plan.expects("read") and not plan.direct("read")
    first, names = plan.wanted("read", 300, 0)
    plan.load("read", 0, 256, [1, 2])
    assert (first, names) == (0, hashes(2)) and plan.step([], lambda r: []).loads[0].names == names


# ---- through the store ----


def test_a_partial_block_is_looked_for_with_its_own_prompt_alone():
    """It would be wrong bytes for any other one, also in the blocks that are cached and saved after it."""
    plan = Plan(SIZE, "prompt")
    plan.add("p", 300, hashes(2), {"do_remote_decode": True}, b"tail")
    save, = plan.step([("p", 300)], lambda r: [7, 8, 9]).saves
    params = plan.finished("p")[1]

    def wanted(names=None, tail=b"tail", prompt=300, **changes):
        decode = Plan(SIZE, "none")
        decode.add("d", prompt, hashes(2) if names is None else names, dict(params, **changes), tail)
        return decode.wanted("d", prompt, 0)[1]

    assert wanted() == save.names and len(save.names) == 3
    for others in (wanted(tail=b"other"), wanted(hashes(2, "other")), wanted(kvcl_id="x"), wanted(prompt=301),
                   wanted(kvcl_tokens=299), wanted(kvcl_tokens=256)):
        assert save.names[2] not in others
    assert wanted(prompt=301) == wanted(kvcl_tokens=256) == hashes(2)
    assert wanted(kvcl_tokens=100) == hashes(2)  # it expects nothing, and asks as any other
