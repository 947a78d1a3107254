"""kvcl.vllm: prompts that a decode engine reads layer by layer while a prefill engine computes them, without vLLM: the
board's form, the plan's side of it, and both ends over contexts of this process.
"""

import dataclasses
import json
import logging
import random
import threading
import time
import types

import kvcl
import pytest
from kvcl.vllm import _board, _handover
from kvcl.vllm._announce import Board
from kvcl.vllm._board import Header, Rows
from kvcl.vllm._handover import Ahead, Part, Source
from kvcl.vllm._peers import CACHE, Leases, Peers
from kvcl.vllm._plan import Load, Plan
from kvcl.vllm._transfers import Transfers

from conftest import LIMIT, chance
from test_vllm_handover import BASE, PARTS, SIZE, hashes, poll_until, wait

LAYERS, PAGE, COUNT = 3, 64, 700  # of a cache: layers, bytes of a part of a block in one, parts
LAYOUT = kvcl.Layout(layers=LAYERS, kv=1, blocks=COUNT, head_dim=PAGE, elem_bytes=1, base="layer")
TOKENS = 4                        # of a block
log = logging.getLogger("test")


# ---- the board's form ----


def test_a_header_that_is_half_written_tells_nothing():
    one = Header(b"n" * 32, b"m" * 8, 7, 4, 0, 512, 3)
    data = one.pack()
    assert len(data) == _board.CELL and _board.header(data) == one and _board.header(bytes(_board.CELL)) is None
    other = dataclasses.replace(one, before=512, after=700, layers=9).pack()
    for cut in range(1, _board.CELL):
        mixed = other[:cut] + data[cut:]
        assert _board.header(mixed) in (one, None) or mixed == other
        assert _board.same(mixed, one)
    assert not _board.same(dataclasses.replace(one, turn=8).pack(), one) and not _board.same(bytes(_board.CELL), one)


def test_layers_are_due_when_they_are_announced_and_blocks_when_they_are_full():
    def due(got, **said):
        return _board.due(got, Header(b"", b"", 0, 0, **said), 4, 10, 3)

    assert due([0, 0, 0]) == []
    assert due([0, 0, 0], after=6, layers=2) == [(0, 2, 0, 1)]
    assert due([1, 1, 0], before=6, after=10, layers=1) == [(0, 1, 1, 3), (2, 3, 0, 1)]
    assert due([3, 1, 1], before=10, after=10) == [(1, 3, 1, 3)] and due([3, 3, 3], before=10, after=10) == []
    assert due([2, 2, 2], before=6, after=9, layers=3) == []  # blocks of this engine's own


def test_rows_are_those_that_a_name_gives_and_each_lease_has_a_turn_of_its_own():
    rows = Rows()
    turns = set()
    for i in range(_board.WINDOW):
        assert rows.take(f"r{i}", "id")
        chunk = rows.chunk(f"r{i}", "id", b"n" * 32, [1, 2], 200)
        assert chunk.row == _board.rows_of("id")[i] and (chunk.first, chunk.blocks) == (0, (1, 2))
        turns.add(chunk.turn)
    assert len(turns) == _board.WINDOW and not rows.take("one more", "id") and "one more" not in rows
    assert rows.chunk("r0", "id", b"n" * 32, [1, 2, 3], 300).blocks == (3,)
    rows.free("r5")
    rows.free("r5")
    assert rows.take("one more", "id") and rows.chunk("one more", "id", b"n" * 32, [], 0).row == _board.rows_of("id")[5]
    assert set(rows) == {f"r{i}" for i in range(_board.WINDOW) if i != 5} | {"one more"}


# ---- the plan ----


def prefill(announces=True, params=None, prompt=300, tail=b"t"):
    plan = Plan(SIZE, "none", 1, BASE, announces)
    plan.peers[0] = "address"
    plan.add("p", prompt, hashes(prompt // SIZE), {"do_remote_decode": True, "kvcl_id": "id", **(params or {})}, tail)
    return plan


def decode(params=None, prompt=300, names=None, tail=b"t", base=BASE):
    plan = Plan(SIZE, "none", 1, base)
    given = {"do_remote_prefill": True, "kvcl_id": "id", "kvcl_peers": ["address"], "kvcl_ahead": True}
    plan.add("d", prompt, hashes(prompt // SIZE) if names is None else names, {**given, **(params or {})}, tail)
    return plan


def test_both_engines_find_a_prompt_that_a_router_has_named():
    plan = prefill()
    one, = plan.step([("p", 200)], lambda r: [7, 8]).chunks
    two, = plan.step([("p", 300)], lambda r: [7, 8, 9]).chunks
    assert (one.first, one.blocks, one.after) == (0, (7, 8), 200)
    assert (two.first, two.blocks, two.after) == (2, (9,), 300)
    assert (one.row, one.turn, one.name) == (two.row, two.turn, two.name) and one.row == _board.rows_of("id")[0]
    assert plan.step([("p", 301)], lambda r: [7, 8, 9]).chunks == []
    keep, params = plan.finished("p")
    assert keep and params["kvcl_ahead"] is True and params["kvcl_id"] == "id"
    engine = decode()
    assert engine.direct("d") and engine.wanted("d", 300, 128)[0] == 1 and engine.tokens("d", 128, 1, 2) == 172
    engine.load("d", 128, 172, [20, 21, 22])
    load, = engine.step([], lambda r: []).loads
    assert load.source == Source(("address",), (), -1, one.name, Ahead("id", 300, SIZE))
    assert load.first == 1 and load.blocks == [21, 22] and load.parts == []
    late = decode(json.loads(json.dumps(params)))  # after the answer, as without a name
    assert late._entries["d"].source.blocks == (7, 8, 9) and late._entries["d"].source.ahead is None


def test_another_prompt_or_model_is_another_name_on_the_board():
    names = {prefill().step([("p", 300)], lambda r: [7, 8, 9]).chunks[0].name}
    for plan in (decode(tail=b"u"), decode(names=hashes(2, "other")), decode(prompt=299), decode(base=b"c" * 32),
                 decode({"kvcl_id": "x"})):
        assert plan._entries["d"].source.name not in names
        names.add(plan._entries["d"].source.name)


@pytest.mark.parametrize("changes", [
    {"kvcl_ahead": 1}, {"kvcl_ahead": False}, {"kvcl_id": ""}, {"kvcl_id": 5}, {"kvcl_id": "x" * 257},
    {"kvcl_peers": []}, {"kvcl_peers": [5]}, {"kvcl_peers": "address"}, {"kvcl_peers": ["x"] * 5000}])
def test_parameters_of_another_form_name_nothing_on_a_board(changes):
    plan = decode(changes)
    assert not plan.direct("d") and not plan.expects("d")


def test_what_is_not_announced_is_handed_over_as_before():
    plan = prefill(announces=False)
    assert plan.step([("p", 300)], lambda r: [7, 8, 9]).chunks == []
    params = plan.finished("p")[1]
    assert "kvcl_ahead" not in params and params["kvcl_id"] != "id"
    for name in (None, "", "x" * 257, 5):
        plan = prefill(params={"kvcl_id": name})
        work = plan.step([("p", 300)], lambda r: [7, 8, 9])
        params = plan.finished("p")[1]
        assert work.chunks == [] and work.leases and params["kvcl_ahead"] is True and params["kvcl_id"] != name
    assert not Plan(SIZE, "none", 1, b"", True)._announces


def test_a_step_waits_for_no_prompt_that_is_being_computed():
    plan = decode()
    plan._answer.add(("address",))
    assert plan.expects("d") and not plan.answers("d")


def test_a_prompt_that_loses_its_blocks_is_announced_anew():
    for early in ("abort", "preemption", "reset"):
        plan = prefill()
        one, = plan.step([("p", 200)], lambda r: [7, 8]).chunks
        if early == "abort":
            assert plan.finished("p", aborted=True) == (False, None)
            assert plan.step([], lambda r: []).dropped == ["p"]
        elif early == "preemption":
            work = plan.step([("p", 128)], lambda r: [3], ["p"])
            assert work.dropped == ["p"]
            two, = work.chunks
            assert (two.first, two.blocks, two.row) == (0, (3,), one.row) and two.turn != one.turn
            plan.step([("p", 300)], lambda r: [3, 4, 5])
            assert plan.finished("p")[0] and list(plan._rows) == ["p"]
            plan.freed(["p"])
        else:
            plan.reset(b"mark")
            work = plan.step([("p", 300)], lambda r: [7, 8, 9])
            assert work.dropped == ["p"] and work.chunks == []  # it was computed with the old weights
        assert list(plan._rows) == []
    plan = prefill()
    plan.step([("p", 300)], lambda r: [7, 8, 9])
    plan.finished("p")
    plan.reset(b"mark")
    assert plan.step([], lambda r: []).dropped == ["p"] and "p" in plan._rows  # until the workers name it


def test_a_step_that_is_computed_again_is_told_again():
    plan = prefill()
    plan.step([("p", 300)], lambda r: [7, 8, 9])
    again, = plan.step([("p", 300)], lambda r: [7, 8, 9]).chunks
    assert (again.first, again.blocks, again.after) == (3, (), 300)


def test_blocks_that_are_not_those_that_were_told_are_a_new_lease():
    plan = prefill()
    one, = plan.step([("p", 200)], lambda r: [7, 8]).chunks
    work = plan.step([("p", 300)], lambda r: [7, 6, 9])
    two, = work.chunks
    assert work.dropped == ["p"] and (two.first, two.blocks) == (0, (7, 6, 9)) and two.turn != one.turn


def test_without_a_row_or_blocks_a_prompt_is_not_announced():
    plan = prefill()
    assert plan.step([("p", 200)], lambda r: []).chunks == [] and list(plan._rows) == []
    for i in range(_board.WINDOW):
        plan._rows.take(f"other {i}", "id")
    work = plan.step([("p", 300)], lambda r: [7, 8, 9])
    assert work.chunks == [] and work.leases  # it is handed over when it has been computed


# ---- both ends ----


def content(layer, part):
    return bytes([(layer * 97 + part * 13 + i) % 251 for i in range(PAGE)])


class Ends:
    """A prefill engine's context, of the first of its ranks, and a decode engine's; both have caches of 2 parts a
    block. prompt: of `tokens`."""

    def __init__(self, one, two, ranks=1):
        self.theirs, self.ours = one.cache(CACHE, LAYOUT), two.cache(CACHE, LAYOUT)
        self.board = Board(one, LAYERS, COUNT // 2)
        self.leases = Leases(one, 60.0, log, self.board, 0, ranks)
        self.peers = Peers({"timeout": LIMIT, "handover_timeout": LIMIT})
        self.peers.open(two, self.ours)
        self.rows, self.name = Rows(), b"n" * 32

    def source(self, tokens, **changes):
        return Source((self.leases.address,), (), -1, self.name, Ahead("id", tokens, TOKENS), **changes)

    def read(self, tokens, into, first=0, parts=PARTS):
        return self.peers.read(self.source(tokens), parts, into, first)

    def step(self, blocks, after, request="r", name=None, good=True):
        """A step that computes up to `after` tokens of a prompt begins."""
        if request not in self.rows:
            assert self.rows.take(request, "id")
        chunk = self.rows.chunk(request, "id", name or self.name, blocks, after)
        self.leases.announce([chunk], good)
        return chunk

    def compute(self, layer, blocks):
        """Write a layer's bytes of these blocks."""
        page = memoryview(self.theirs.bases[layer])
        for block in blocks:
            for part in (2 * block, 2 * block + 1):
                page[part * PAGE:(part + 1) * PAGE] = content(layer, part)

    def has(self, layer, theirs, ours):
        """Whether our block has the bytes of a layer of theirs."""
        page = memoryview(self.ours.bases[layer])
        return all(page[(2 * ours + i) * PAGE:(2 * ours + i + 1) * PAGE] == content(layer, 2 * theirs + i)
                   for i in range(2))

    def until(self, what):
        last = time.monotonic() + LIMIT
        while not what():
            assert time.monotonic() < last, "nothing happens"
            self.peers.progress()
            time.sleep(0.0002)


@pytest.fixture
def contexts(tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("a secret of 24 letters..")
    (tmp_path / "secret").chmod(0o600)
    monkeypatch.setenv("KVCL_SECRET_FILE", str(tmp_path / "secret"))
    with kvcl.Context(boot="self") as one, kvcl.Context(boot="self") as two:
        yield one, two


@pytest.fixture
def ends(contexts):
    out = Ends(*contexts)
    yield out
    out.leases.close()


def test_each_layer_is_read_when_it_is_announced_while_the_others_are_computed(ends):
    """Two steps of a prompt of 10 tokens, whose second block is begun by the first step and filled by the second."""
    call = ends.read(10, [20, 21, 22])  # before the prefill engine has begun
    ends.until(lambda: not call.done)
    table, mine = [9, 4, 7], [20, 21, 22]
    for blocks, after, full in ((table[:2], 6, 1), (table, 10, 3)):
        ends.step(blocks, after)
        for layer in range(LAYERS):
            ends.compute(layer, blocks)
            assert not any(ends.has(layer, theirs, ours) for theirs, ours in list(zip(table, mine))[full - 1:full])
            ends.board.layer_ready(layer)
            last = after == 10 and layer == LAYERS - 1
            ends.until(lambda: all(ends.has(layer, theirs, ours) for theirs, ours in list(zip(table, mine))[:full])
                       and (last or not call.done))
            assert last or not call.done
        ends.board.step_computed()
    assert wait(call, ends.peers) == [kvcl.Status.OK] * 6
    assert all(ends.has(layer, a, b) for layer in range(LAYERS) for a, b in zip(table, mine))
    assert call.ahead == (LAYERS * 3 - 2) * 2 * PAGE  # all but the last layer of the last two blocks
    poll_until(ends.leases, lambda: ends.leases._open["r"].read)
    ends.leases.ended("r")
    ends.leases.poll()
    assert "r" not in ends.leases and ends.leases.late == 0


def test_layers_that_are_announced_out_of_order_wait_for_those_before_them(ends):
    call = ends.read(4, [20])
    ends.step([9], 4)
    for layer in (2, 1):
        ends.compute(layer, [9])
        ends.board.layer_ready(layer)
        assert ends.board._rows["r"].header.layers == 0
    ends.compute(0, [9])
    ends.board.layer_ready(0)
    assert wait(call, ends.peers) == [kvcl.Status.OK] * 2 and all(ends.has(layer, 9, 20) for layer in range(LAYERS))


def test_a_prompt_whose_first_blocks_the_decode_engine_has_is_read_from_the_next_one_on(ends):
    """Blocks in several cells, more than one look takes."""
    table = random.Random(1).sample(range(COUNT // 2), 300)
    into, first = list(range(COUNT // 2))[::-1][:280], 20
    ends.step(table, 1200)
    for layer in range(LAYERS):
        ends.compute(layer, table)
    ends.board.step_computed()
    assert wait(ends.read(1200, into, first), ends.peers) == [kvcl.Status.OK] * 560
    assert all(ends.has(layer, a, b) for layer in range(LAYERS) for a, b in zip(table[first:], into))


def test_many_steps_tell_their_blocks_one_after_the_other(ends):
    table = random.Random(2).sample(range(COUNT // 2), 100)
    into = list(range(100))
    call, done = ends.read(397, into), 0
    for after in (30, 64, 65, 200, 201, 397):
        ends.step(table[:-(-after // TOKENS)], after)
        for layer in range(LAYERS):
            ends.compute(layer, table[:-(-after // TOKENS)])
        ends.board.step_computed()
        done = after // TOKENS if after < 397 else 100
        ends.until(lambda: all(ends.has(layer, a, b) for layer in range(LAYERS)
                               for a, b in list(zip(table, into))[:done]))
    assert wait(call, ends.peers) == [kvcl.Status.OK] * 200


def gone(ends, call):
    with pytest.raises(kvcl.Stale, match="given these blocks to others"):
        wait(call, ends.peers)


@pytest.mark.parametrize("how", ["dropped", "to another", "anew", "closed"])
def test_a_prompt_that_loses_its_blocks_in_the_middle_is_not_read(ends, how):
    call = ends.read(8, [20, 21])
    ends.step([9, 10], 8)
    ends.compute(0, [9, 10])
    ends.board.layer_ready(0)
    ends.until(lambda: ends.has(0, 10, 21))
    if how == "closed":
        ends.board.close()
    else:
        ends.leases.drop(["r"])
        ends.rows.free("r")
    if how == "to another":  # in the same row, and computed
        chunk = ends.step([9, 10], 8, "other", b"o" * 32)
        ends.board.step_computed()
        assert chunk.row == _board.rows_of("id")[0]
    elif how == "anew":      # as after a preemption: the same prompt, in other blocks
        ends.step([11, 12], 8)
        for layer in range(LAYERS):
            ends.compute(layer, [11, 12])
        ends.board.step_computed()
    gone(ends, call)
    if how == "dropped":  # who has not read it will not: computed again, it is not kept
        poll_until(ends.leases, lambda: ends.name in ends.leases._early)
        ends.step([11, 12], 8)
        assert ends.leases._open["r"].read


def test_blocks_that_are_given_to_others_after_the_last_read_are_noticed(ends, monkeypatch):
    ends.step([9], 4)
    for layer in range(LAYERS):
        ends.compute(layer, [9])
    ends.board.step_computed()
    get = ends.peers._get

    def lost(*args, **more):
        request = get(*args, **more)
        request.wait(LIMIT)
        ends.leases.drop(["r"])
        return request

    monkeypatch.setattr(ends.peers, "_get", lost)
    gone(ends, ends.read(4, [20]))


def test_another_prompt_of_the_same_name_fails_at_once(ends):
    ends.step([9], 4, name=b"o" * 32)
    gone(ends, ends.read(4, [20]))


def test_a_prompt_of_which_a_step_was_lost_is_not_announced_any_further(ends):
    call = ends.read(12, [20, 21, 22])
    ends.step([9], 4)
    ends.compute(0, [9])
    ends.board.layer_ready(0)
    ends.until(lambda: ends.has(0, 9, 20))
    ends.rows.chunk("r", "id", ends.name, [9, 10], 8)  # which the workers never see
    ends.step([9, 10, 11], 12)
    ends.board.step_computed()
    gone(ends, call)
    ends.step([9, 10, 11, 12], 16)
    assert not ends.board._rows


def test_what_a_step_computes_out_of_wrong_blocks_is_announced_when_it_is_computed_again(ends):
    call = ends.read(8, [20, 21])
    ends.step([9], 4)
    ends.board.step_lost()  # a load that the step waited for has failed
    ends.board.layer_ready(0)
    ends.board.step_computed()
    ends.step([9, 10], 8, good=False)
    ends.board.layer_ready(0)
    ends.board.step_computed()
    assert ends.board._rows["r"].header.before == 0
    ends.step([9, 10], 8)
    for layer in range(LAYERS):
        ends.compute(layer, [9, 10])
    ends.board.step_computed()
    assert wait(call, ends.peers) == [kvcl.Status.OK] * 4
    assert all(ends.has(layer, a, b) for layer in range(LAYERS) for a, b in ((9, 20), (10, 21)))


def test_two_readers_are_waited_for(contexts):
    """The ranks of a decode engine of two, each of one head."""
    ends = Ends(*contexts)
    with kvcl.Context(boot="self") as third:
        one = Part(0, (0,), (0,), 2, 2, 0)
        cache, peers = third.cache(CACHE, LAYOUT), Peers({"timeout": LIMIT, "handover_timeout": LIMIT})
        peers.open(third, cache)
        first = ends.peers.read(ends.source(8), [one], [20, 21], 0)
        second = peers.read(ends.source(8), [dataclasses.replace(one, theirs=(1,), reader=1)], [30, 31], 0)
        for layer in range(LAYERS):
            ends.compute(layer, [9, 4])
        ends.step([9, 4], 8)
        ends.board.layer_ready(0)
        ends.until(lambda: bytes(ends.ours.bases[0][21 * PAGE:22 * PAGE]) == content(0, 8))
        assert not second.done
        ends.board.step_computed()
        ends.leases.ended("r")
        assert wait(first, ends.peers) == [kvcl.Status.OK] * 2
        poll_until(ends.leases, lambda: ends.leases._open["r"].readers == {0})
        assert "r" in ends.leases
        assert wait(second, peers) == [kvcl.Status.OK] * 2
        for layer in range(LAYERS):
            for head, base, at in ((0, ends.ours.bases[layer], 20), (1, cache.bases[layer], 30)):
                assert bytes(base[at * PAGE:(at + 2) * PAGE]) == content(layer, 18 + head) + content(layer, 8 + head)
        poll_until(ends.leases, lambda: "r" not in ends.leases)
        ends.leases.close()


def test_ranks_that_are_read_need_not_be_equally_far(contexts):
    """One rank reads two, each of one head, in turns."""
    ends = Ends(*contexts, ranks=2)
    with kvcl.Context(boot="self") as third:
        cache, board = third.cache(CACHE, LAYOUT), Board(third, LAYERS, COUNT // 2)
        other = Leases(third, 60.0, log, board, 1, 2)
        call = ends.peers.read(dataclasses.replace(ends.source(4), peers=(ends.leases.address, other.address)),
                               [Part(0, (0,), (0,), 1, 1), Part(1, (0,), (1,), 1, 1)], [20], 0)
        chunk = ends.step([5], 4)
        for layer in range(LAYERS):
            memoryview(ends.theirs.bases[layer])[5 * PAGE:6 * PAGE] = content(layer, 5)
            memoryview(cache.bases[layer])[5 * PAGE:6 * PAGE] = content(layer, 6)
        ends.board.step_computed()
        ends.until(lambda: bytes(ends.ours.bases[2][40 * PAGE:41 * PAGE]) == content(2, 5))
        assert not call.done
        other.announce([chunk], True)
        board.step_computed()
        assert wait(call, ends.peers) == [kvcl.Status.OK] * 2
        assert all(bytes(ends.ours.bases[layer][41 * PAGE:42 * PAGE]) == content(layer, 6) for layer in range(LAYERS))
        other.close()
    ends.leases.close()


def test_a_prompt_that_never_appears_and_one_that_stops_are_given_up(contexts):
    ends = Ends(*contexts)
    wait(ends.peers.read(ends.source(4), PARTS, [], 0), ends.peers)  # it has connected
    ends.peers._options["handover_timeout"] = 0.3
    with pytest.raises(kvcl.TimedOut, match="computes nothing of the prompt"):
        wait(ends.read(4, [20]), ends.peers)
    ends.step([9, 10], 8)
    ends.board.layer_ready(0)
    with pytest.raises(kvcl.TimedOut):
        wait(ends.read(8, [20, 21]), ends.peers)
    ends.peers._options["handover_timeout"] = LIMIT
    call = ends.read(8, [20, 21])
    ends.board.step_computed()
    assert wait(call, ends.peers) == [kvcl.Status.OK] * 4
    assert len(ends.peers._free_rows) == 256  # no read keeps its cells
    ends.leases.close()


def test_who_will_not_read_may_say_so_before_the_prompt_is_computed(ends):
    wait(ends.peers.read(ends.source(4), PARTS, [], 0), ends.peers)
    poll_until(ends.leases, lambda: ends.leases._early)
    ends.step([9], 4)
    ends.board.step_computed()
    assert not ends.leases._early and "r" in ends.leases
    ends.leases.ended("r")
    ends.leases.poll()
    assert "r" not in ends.leases and ends.leases.late == 0
    comm = ends.peers._peers[ends.leases.address].result()
    for i in range(3):
        comm.notify(0, bytes([i]) * 32 + b"\x00\x00\x00\x00\x01\x00\x00\x00").wait(LIMIT)
    poll_until(ends.leases, lambda: len(ends.leases._early) == 3)
    ends.leases.close()
    ends.leases.poll()  # while saves under way end


def test_a_lease_of_the_board_and_one_of_the_table_end_together(ends):
    ends.step([9], 4)
    ends.leases.set(_handover.Lease("r", 5, b"l" * 32))
    ends.board.step_computed()
    assert ends.board._rows and ends.leases._open["r"].names == {ends.name, b"l" * 32}
    source = Source((ends.leases.address,), (9,), 5, b"l" * 32)  # of the answer's parameters
    assert wait(ends.peers.read(source, PARTS, [20], 0), ends.peers) == [kvcl.Status.OK] * 2
    ends.leases.ended("r")
    poll_until(ends.leases, lambda: "r" not in ends.leases)
    assert not ends.board._rows and ends.leases._table.read(5) == bytes(32)


def test_wrong_blocks_on_a_board_harm_nobody(ends):
    """Of an engine of another version, or one that is gone wrong."""
    ends.step([1 << 31], 4)
    ends.board.step_computed()
    gone(ends, ends.read(4, [20]))
    ends.leases.drop(["r"])
    ends.rows.free("r")
    ends.step([COUNT], 4)
    ends.board.step_computed()
    with pytest.raises(kvcl.OutOfRange):
        wait(ends.read(4, [20]), ends.peers)


def test_random_prompts_end_with_their_bytes_or_an_error(ends):
    rand = chance()
    good = 0
    for turn in range(40):
        ends.name, tokens = rand.randbytes(32), rand.randrange(1, 80)
        n = -(-tokens // TOKENS)
        table, into, first = rand.sample(range(100), n), list(range(n)), rand.randrange(n)
        ends.peers._options["handover_timeout"] = LIMIT
        call, after, ended = ends.read(tokens, into[first:], first), 0, False
        while after < tokens and not ended:
            after = rand.randint(after + 1, tokens)
            blocks = table[:-(-after // TOKENS)]
            ends.step(blocks, after)
            for layer in range(LAYERS):
                ends.compute(layer, blocks)
                ends.board.layer_ready(layer)
                for _ in range(rand.randrange(4)):
                    ends.peers.progress()
                if rand.random() < 0.05:  # its blocks are given to others
                    ended = True
                    ends.leases.drop(["r"])
                    for other in range(LAYERS):
                        memoryview(ends.theirs.bases[other])[:200 * PAGE] = bytes(200 * PAGE)
                    break
            else:
                ends.board.step_computed()
        if ended:
            ends.peers._options["handover_timeout"] = 0.1
        try:
            wait(call, ends.peers)
            good += 1
            assert all(ends.has(layer, a, b) for layer in range(LAYERS) for a, b in list(zip(table, into))[first:])
        except kvcl.Stale:
            assert ended
        except kvcl.TimedOut:
            assert ended  # before it had seen it
        ends.leases.drop(["r"])
        ends.rows.free("r")
    assert good > 0


# ---- streams, and what a step waits for ----


class Stream:
    """In place of a context and a CUDA stream, whose work ends when the test says so."""

    def __init__(self, context):
        self.cache, self.events = context.cache, []

    def stream_done(self, stream):
        event = threading.Event()
        self.events.append(event)

        def done():
            assert event.wait(LIMIT)
            if getattr(event, "error", None):
                raise event.error
        return types.SimpleNamespace(wait=done)


def test_a_layer_is_announced_when_the_stream_has_computed_it(contexts):
    stream = Stream(contexts[0])
    board = Board(stream, LAYERS, 10)
    rows = Rows()
    assert rows.take("r", "id")

    def step(blocks, after):
        board.add(rows.chunk("r", "id", b"n" * 32, blocks, after), True)

    def said():
        return _board.header(board._headers.read(_board.rows_of("id")[0]))

    def shows(**fields):
        last = time.monotonic() + LIMIT
        while (now := said()) is None or any(getattr(now, name) != value for name, value in fields.items()):
            assert time.monotonic() < last, now
            time.sleep(0.001)

    step([4, 5], 8)
    for layer in range(LAYERS):
        board.layer_ready(layer, "stream")
    board.step_computed("stream")
    step([4, 5, 6], 12)  # the next step begins while the stream is busy
    board.layer_ready(0, "stream")
    time.sleep(0.05)
    assert (said().after, said().layers) == (0, 0)
    stream.events[0].set()
    shows(before=0, after=8, layers=1)
    stream.events[1].error = kvcl.TimedOut("of the device")
    for event in stream.events[1:4]:
        event.set()
    shows(before=8, after=8, layers=0)
    stream.events[4].set()
    shows(before=8, after=12, layers=1)
    board.layer_ready(1, "stream")
    board.drop("r")
    assert said() is None
    board.layer_ready(2, "stream")
    for event in stream.events[5:]:
        event.set()
    board.close()
    assert said() is None and board._thread is None


def test_a_step_announces_nothing_while_a_load_that_it_waits_for_may_fail():
    told = []
    board = types.SimpleNamespace(
        layer_ready=lambda layer, stream: told.append(layer), step_lost=lambda: told.append("lost"),
        step_computed=lambda stream: told.append("all"))
    calls = []

    def announce(chunks, good):
        calls.append(good)

    client = types.SimpleNamespace()
    client.get = lambda *args, **more: client.__dict__.setdefault("call", types.SimpleNamespace(done=False, error=None))
    link = types.SimpleNamespace(ready=lambda: client, progress=lambda: None)
    moves = Transfers(link, BASE, [0], True, log, True)
    moves.cache = types.SimpleNamespace(block_bytes=LAYERS, layout=LAYOUT)
    moves.leases = types.SimpleNamespace(board=board, announce=announce, poll=lambda: None)
    moves.layer_ready(0)
    moves.load(Load("a", hashes(1), [1], waited=True))
    moves.layer_ready(1)
    assert told == [0]
    client.call.done, client.call.result = True, [kvcl.Status.ERR_NOT_FOUND]
    moves.wait_loads()
    moves.layer_ready(2)
    moves.step_computed()
    assert told == [0, "lost", 2, "all"]  # of the step, which has nothing to announce any more
    moves.announce([], 0)
    moves.announce([], moves.lost_loads)
    assert calls == [False, True]
