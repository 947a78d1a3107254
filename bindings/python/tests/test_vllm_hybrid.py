"""kvcl.vllm: the plan of a model with several groups of KV caches, without vLLM: what makes a hit, what is loaded and
saved of each group, and that no block is given to others while it is saved.
"""

import importlib.util
import sys
import types

import kvcl
import pytest
from kvcl.vllm._hybrid import NONE, Hybrid, name_of

from conftest import chance

SIZE, WINDOW = 16, 40  # the window of the second group


def hashes(n, salt="h"):
    return [kvcl.key_from_string(f"{salt} {i}") for i in range(n)]


def plan_with(prompt=160, windows=(0, WINDOW)):
    plan, names = Hybrid(SIZE, "prompt", 1, windows), hashes(prompt // SIZE)
    plan.add("r", prompt, names, {"do_remote_decode": True})
    return plan, names


def both(names, groups=2):
    return [name_of(name, group) for name in names for group in range(groups)]


def test_a_hit_has_all_of_full_attention_and_the_end_of_each_window():
    plan, names = plan_with()
    first, wanted = plan.wanted("r", 160, 32)
    assert (first, wanted) == (2, both(names[2:9]))
    for there, blocks in (("11" * 7, 7), ("10" * 7, 0), ("01" * 7, 0), ("10 10 10 10 11 11 11", 7),
                          ("10 10 10 10 10 11 11", 0), ("11 11 10 11 11 10 11", 2), ("11 11 10 11 11 11 01", 6),
                          ("11 00 11 11 11 11 11", 1)):
        has = [one == "1" for one in there.replace(" ", "")]
        answer = [one and (i % 6 != 1 or part == 1) for i, one in enumerate(has) for part in range(2)]
        doubled = [one for one in has for part in range(2)]
        assert plan.tokens("r", 32, 2, plan.found(2, doubled, 2)) == blocks * SIZE, there
        assert plan.found(2, answer, 2) <= plan.found(2, doubled, 2)  # a name without one of its parts is not there


def test_blocks_that_a_group_has_no_more_are_neither_loaded_nor_saved():
    plan, names = plan_with()
    plan.load("r", 32, 96, ([1, 2, 3, 4, 5, 6, 7, 8], [NONE] * 5 + [11, 12, 13]))
    load, = plan.step([], lambda r: []).loads
    assert load.names == [name_of(names[i], 0) for i in range(2, 8)] + [name_of(names[i], 1) for i in (5, 6, 7)]
    assert load.blocks == [3, 4, 5, 6, 7, 8, 11, 12, 13] and not load.waited and load.source is None
    save, = plan.step([("r", 160)], lambda r: (list(range(1, 11)), [NONE] * 6 + [12, 13, 14, 15])).saves
    assert save.names == [name_of(names[0], 0), name_of(names[1], 0), *both(names[8:])]
    assert save.blocks == [1, 2, 9, 14, 10, 15]
    assert plan.finished("r") == (True, None)  # prompts are not handed over


def test_a_failed_load_is_computed_from_the_beginning():
    plan, names = plan_with()
    plan.load("r", 0, 64, ([1, 2, 3, 4], [NONE, 6, 7, 8]))
    plan.loads_failed(["r", "unknown"])
    assert plan.wanted("r", 160, 0) == (0, [])
    save, = plan.step([("r", 32)], lambda r: ([1, 2], [5, 6])).saves
    assert save.names == both(names[:2])


def test_a_block_that_leaves_its_window_is_waited_for_if_its_save_is_under_way():
    plan, _ = plan_with(320)
    table = ([*range(1, 21)], [*range(21, 41)])
    assert plan.step([("r", 48)], lambda r: table).preempted == []
    assert plan.step([("r", 64)], lambda r: table).preempted == []     # the token after 48 needs block 0
    assert plan.step([], lambda r: table).preempted == ["r"]           # the one after 64 does not
    assert plan.step([("r", 80)], lambda r: table).preempted == []
    plan.save_ended({"r": 3})
    assert plan.step([("r", 160)], lambda r: table).preempted == []
    plan.finished("r")
    assert plan.step([], lambda r: table).preempted == []


def test_only_a_group_of_sliding_windows_has_a_window(monkeypatch):
    """Without vLLM's manager of several groups, layers with a window are of full attention, with a sliding_window."""
    for name in ("torch", "vllm"):  # the function needs neither
        if importlib.util.find_spec(name) is None:
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    from kvcl.vllm import _identity

    def spec(kind, window):
        return type(kind, (), {"sliding_window": window})()

    assert _identity._window(spec("SlidingWindowSpec", 1024)) == 1024
    assert _identity._window(spec("FullAttentionSpec", 1024)) == 0
    assert _identity._window(spec("FullAttentionSpec", None)) == 0
    assert _identity._window(type("MLAAttentionSpec", (), {})()) == 0


class Pool:
    """vLLM's blocks: what each has, and the tables of requests."""

    def __init__(self, rand, n):
        self.rand, self.free = rand, list(range(1, n))
        self.bytes = [None] * n
        self.tables = {}

    def take(self):
        return self.free.pop(self.rand.randrange(len(self.free)))

    def give(self, blocks):
        self.free += [block for block in blocks if block != NONE]


@pytest.mark.parametrize("windows", [(0, WINDOW), (WINDOW, 0, 17), (WINDOW,)])
def test_random_requests_save_and_load_each_block_with_its_bytes(windows):
    """Saves take their bytes when they end, in any later step, but before one that says that it waits for them."""
    rand = chance()
    plan, pool, store, saves, running, hits = Hybrid(SIZE, "prompt", 1, windows), Pool(rand, 600), {}, [], {}, 0

    def end(which):
        for one in [save for save in saves if which(save)]:
            saves.remove(one)
            for name, block in zip(one.names, one.blocks):
                assert pool.bytes[block] == name, "a block of another request is saved"
                store[name] = True
            plan.save_ended({one.request: 1})

    def drop(name, computed):
        for group, table in enumerate(pool.tables[name]):
            for index in range(min(len(table), plan._held(group, computed))):
                pool.give([table[index]])
                table[index] = NONE

    def begin(name):
        salt = rand.choice("abc")
        n = rand.randrange(20, 400)
        names = hashes(n // SIZE, salt)
        plan.add(name, n, names, None)
        first, wanted = plan.wanted(name, n, 0)
        tokens = plan.tokens(name, 0, first, plan.found(first, [one in store for one in wanted], 1))
        tables = pool.tables[name] = [[] for _ in windows]
        for group, table in enumerate(tables):
            for index in range(-(-tokens // SIZE)):
                table.append(pool.take() if index >= plan._held(group, tokens) else NONE)
        if tokens:
            plan.load(name, 0, tokens, tables)
            load = plan._loads[-1]
            assert all(one in store for one in load.names)
            for one, block in zip(load.names, load.blocks):
                pool.bytes[block] = one
        running[name] = [n, tokens, names]
        return tokens

    for turn in range(400):
        if rand.random() < 0.3 and len(running) < 5:
            hits += begin(f"r{turn}") > 0
        scheduled = []
        for name, one in running.items():  # blocks are freed and taken before the plan hears of the step
            drop(name, one[1])
            if rand.random() < 0.8 and one[1] < one[0]:
                one[1] = min(one[0], one[1] + rand.choice((SIZE, 50, 100)))
                for table in pool.tables[name]:
                    table.extend(pool.take() for _ in range(-(-one[1] // SIZE) - len(table)))
                scheduled.append((name, one[1]))
        work = plan.step(scheduled, lambda name: pool.tables[name])
        end(lambda save: save.request in work.preempted)
        for name, computed in scheduled:  # the step computes
            for group, table in enumerate(pool.tables[name]):
                for index, block in enumerate(table):
                    if block != NONE:
                        pool.bytes[block] = (name_of(running[name][2][index], group)
                                             if index < len(running[name][2]) else None)
        saves += work.saves
        end(lambda save: rand.random() < 0.1)
        for name in [name for name, one in running.items() if one[1] == one[0] and rand.random() < 0.5]:
            keep, _ = plan.finished(name)
            if keep:
                end(lambda save: save.request == name)
            for table in pool.tables.pop(name):
                pool.give(table)
            del running[name]
    assert hits > 0 and len(store) > 0
