"""Experts on ranks from Python: the examples of EPLB, a plain implementation over random inputs, arrays, errors."""

import array
import os
import random
import time

import pytest

import kvcl
from kvcl import ep

README = [[90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86], [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27]]
MODEL = ep.Model(experts=12, slots=16, ranks=8, hosts=2, groups=4)


def pack(loads, packs):
    """EPLB's balanced_packing, the lowest index at every tie."""
    size = len(loads) // packs
    if size == 1:
        return list(range(packs)), [0] * packs
    load, count, pack_of, number = [0.0] * packs, [0] * packs, [0] * len(loads), [0] * len(loads)
    for item in sorted(range(len(loads)), key=lambda i: (-loads[i], i)):
        best = min((b for b in range(packs) if count[b] < size), key=lambda b: (load[b], b))
        pack_of[item], number[item] = best, count[best]
        load[best] += loads[item]
        count[best] += 1
    return pack_of, number


def replicate(loads, copies):
    """EPLB's replicate_experts."""
    expert, count = list(range(len(loads))), [1] * len(loads)
    while len(expert) < copies:
        best = max(range(len(loads)), key=lambda i: (loads[i] / count[i], -i))
        expert.append(best)
        count[best] += 1
    return expert, count


def rebalance(loads, model):
    """EPLB's rebalance_experts for one layer."""
    groups, hosts = (1, 1) if model.groups % model.hosts else (model.groups, model.hosts)
    size, per, slots = len(loads) // groups, len(loads) // hosts, model.slots // hosts
    packed, number = pack([sum(loads[g * size:(g + 1) * size]) for g in range(groups)], hosts)
    order, out = [0] * len(loads), []
    for e in range(len(loads)):
        order[(packed[e // size] * (groups // hosts) + number[e // size]) * size + e % size] = e
    for host in range(hosts):
        part = order[host * per:(host + 1) * per]
        expert, count = replicate([loads[e] for e in part], slots)
        to, at = pack([loads[part[x]] / count[x] for x in expert], model.ranks // hosts)
        row = [None] * slots
        for k, x in enumerate(expert):
            row[to[k] * (model.slots // model.ranks) + at[k]] = part[x]
        out += row
    return out


def test_the_examples_of_eplb():
    placement = ep.place(MODEL, README)
    assert placement.tolist() == [[5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1],
                                  [7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1]]
    copies, counts = ep.index(MODEL, placement)
    assert copies.shape == (2, 12, 2) and counts.shape == (2, 12)
    assert copies.tolist()[0][5] == [0, 2] and counts.tolist()[0][5] == 2
    assert ep.index(MODEL, placement, 5)[0].shape == (2, 12, 5)
    assert sum(counts.tolist()[1]) == 16


def test_random_loads_are_placed_as_eplb_does():
    seed = int(os.environ.get("TEST_SEED", time.time_ns()), 0) if "TEST_SEED" in os.environ else time.time_ns()
    print(f"TEST_SEED={seed}")
    chance = random.Random(seed)
    for _ in range(200):
        hosts, groups = chance.choice([1, 2, 4]), chance.randrange(1, 5)
        ranks, groups = hosts * chance.randrange(1, 5), hosts * groups
        experts = groups * chance.randrange(1, 5)
        slots = ranks * (-(-experts // ranks) + chance.randrange(3))
        model = ep.Model(experts, slots, ranks, hosts, groups)
        # Large odd numbers: sums of their parts are not equal by chance.
        loads = [chance.randrange(1, 1 << 40) | 1 for _ in range(experts)]
        assert ep.place(model, [loads]).tolist() == [rebalance(loads, model)], (model, loads)


def test_arrays_of_any_form():
    want = ep.place(MODEL, README).tolist()
    flat = array.array("Q", README[0] + README[1])
    assert ep.place(MODEL, memoryview(flat).cast("B").cast("Q", (2, 12))).tolist() == want
    for code in "qQiIhH":  # NumPy's arrays are such buffers
        flat = array.array(code, README[0] + README[1])
        assert ep.place(MODEL, memoryview(flat).cast("B").cast(code, (2, 12))).tolist() == want
    assert ep.place(MODEL, tuple(tuple(row) for row in README)).tolist() == want
    numpy = pytest.importorskip("numpy")
    for kind in ("int64", "uint64", "int32"):
        assert ep.place(MODEL, numpy.array(README, kind)).tolist() == want
    placement = numpy.asarray(ep.place(MODEL, README))
    assert placement.dtype == numpy.int32 and placement.shape == (2, 16)
    assert ep.moves(MODEL, placement, placement[::-1]) == ep.moves(MODEL, want, want[::-1])


def test_a_failure_is_repaired_and_moved():
    placement = ep.place(MODEL, README)
    left = MODEL._replace(active=[rank != 3 for rank in range(8)])
    repaired, restored, missing = ep.repair(left, placement)
    gone = [slot // 2 == 3 for slot in range(16)]
    for old, new in zip(placement.tolist(), repaired.tolist()):
        assert set(new) == set(range(12)) | {ep.NONE}
        assert all((entry == ep.NONE) == dead for entry, dead in zip(new, gone))
    plan = ep.moves(left, placement, repaired)
    assert len(plan) == restored > 0 and missing == 0
    assert all(move.kind == ep.Kind.STORE and move.source == ep.NONE for move in plan)
    assert ep.moves(MODEL, placement, placement) == []


def test_errors():
    with pytest.raises(kvcl.InvalidParam, match="17 slots are no multiple of 8 ranks: give 24"):
        ep.place(MODEL._replace(slots=17), README)
    with pytest.raises(kvcl.NoSpace, match="4 active ranks have 8 slots for 12 experts"):
        ep.place(MODEL._replace(active=[1, 0] * 4), README)
    with pytest.raises(kvcl.NoSpace, match="2 active ranks have 4 slots for 12 experts"):
        ep.repair(MODEL._replace(active=[1, 0, 0, 0] * 2), ep.place(MODEL, README))
    assert ep.repair(MODEL._replace(active=[1, 0, 0, 0] * 2), ep.place(MODEL, README), holes=True)[2] > 0
    with pytest.raises(kvcl.InvalidParam, match="none of the 8 ranks"):
        ep.place(MODEL._replace(active=[False] * 8), README)
    with pytest.raises(kvcl.InvalidParam, match=r"reach 2\^64 at expert 1"):
        ep.place(ep.Model(2, 2, 2), [[2**64 - 1, 1]])
    with pytest.raises(kvcl.OutOfRange, match="expert 12 in slot 0 of layer 0"):
        ep.index(MODEL, [[12] + [0] * 15])
    with pytest.raises(kvcl.Truncated, match="has 2 copies, copies_max is 1"):
        ep.index(MODEL, ep.place(MODEL, README), 1)
    with pytest.raises(OverflowError):
        ep.place(MODEL, [[-1] * 12])
    with pytest.raises(TypeError):
        ep.place(MODEL, [[1.5] * 12])
    with pytest.raises(ValueError, match="11 entries in a layer, 12 are needed"):
        ep.place(MODEL, [[1] * 11])
    with pytest.raises(ValueError, match="at least one layer"):
        ep.place(MODEL, [])
    with pytest.raises(ValueError, match="active: 3 bytes, 8 entries"):
        ep.place(MODEL._replace(active=[1] * 3), README)
    with pytest.raises(ValueError, match="1 layers before, 2 after"):
        ep.moves(MODEL, [[0] * 16], [[0] * 16] * 2)
    with pytest.raises(ValueError):
        ep.place(MODEL._replace(ranks=-1), README)


def test_short_buffers_are_refused():
    params = (0, 1, 2, 4, 2, 1, 1, 1, 1, None)
    with pytest.raises(ValueError, match="placement: 12 bytes, 4 entries of 4 bytes"):
        kvcl._kvcl.ep_place(params, bytes(16), bytearray(12))
    with pytest.raises(ValueError, match="loads: 8 bytes, 2 entries of 8"):
        kvcl._kvcl.ep_place(params, bytes(8), bytearray(16))
    with pytest.raises(BufferError):
        kvcl._kvcl.ep_place(params, bytes(16), bytes(16))
    with pytest.raises(TypeError):
        kvcl._kvcl.ep_place((1, 2), bytes(16), bytearray(16))
