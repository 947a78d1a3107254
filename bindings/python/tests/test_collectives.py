"""Reductions and exchanges of buffers, between ranks that are threads."""

import array
import random
import struct

import pytest

import kvcl

from conftest import run_ranks

LETTERS = {"u8": "B", "i8": "b", "u16": "H", "i16": "h", "u32": "I", "i32": "i", "u64": "Q", "i64": "q", "f16": "e",
           "f32": "f", "f64": "d"}


@pytest.mark.parametrize("size", [1, 2, 3])
def test_all_reduce_of_every_type(size):
    def body(ctx):
        for dtype, letter in LETTERS.items():
            for count in (1, 5, 9000):
                mine = [(ctx.rank + i) % 7 for i in range(count)]
                data = bytearray(struct.pack(f"{count}{letter}", *mine))
                ctx.world.all_reduce(data, dtype=dtype).wait()
                everyone = [[(rank + i) % 7 for i in range(count)] for rank in range(size)]
                assert list(struct.unpack(f"{count}{letter}", data)) == [sum(xs) for xs in zip(*everyone)]
                out = bytearray(len(data))
                given = struct.pack(f"{count}{letter}", *mine)
                ctx.world.all_reduce(given, "max", out=out, dtype=dtype).wait()
                assert list(struct.unpack(f"{count}{letter}", out)) == [max(xs) for xs in zip(*everyone)]

    run_ranks(size, body)


def test_the_type_is_the_buffers_own():
    def body(ctx):
        data = array.array("d", [1.5, ctx.rank])
        ctx.world.all_reduce(data).wait()
        assert list(data) == [4.5, 3.0]
        words = array.array("H", [1 << ctx.rank])
        ctx.world.all_reduce(words, "or").wait()
        assert list(words) == [7]

    run_ranks(3, body)


def test_numpy_arrays():
    np = pytest.importorskip("numpy", reason="NumPy is absent")

    def body(ctx):
        data = np.arange(1000, dtype=np.float32) + ctx.rank
        part = np.zeros(500, dtype=np.float32)
        ctx.world.reduce_scatter(data, part).wait()
        assert (part == 2 * np.arange(1000)[ctx.rank * 500:(ctx.rank + 1) * 500] + 1).all()
        ctx.world.all_reduce(data).wait()
        assert (data == 2 * np.arange(1000) + 1).all()

    run_ranks(2, body)


def test_exchanges():
    size, part = 3, 20000

    def text(a, b):
        return random.Random(a * 10 + b).randbytes(part)

    def body(ctx):
        world, me = ctx.world, ctx.rank
        out = bytearray(size * part)
        world.all_to_all(b"".join(text(me, r) for r in range(size)), out).wait()
        assert out == b"".join(text(r, me) for r in range(size))
        world.all_gather_into(text(me, 0), out).wait()
        assert out == b"".join(text(r, 0) for r in range(size))
        given = [part // (1 + (me + r) % 3) for r in range(size)]
        out = bytearray(sum(given))  # from rank r as many
        world.all_to_all(b"".join(text(me, r)[:given[r]] for r in range(size)), out, lengths=given,
                         out_lengths=given).wait()
        assert out == b"".join(text(r, me)[:given[r]] for r in range(size))
        taken = [bytearray(length) for length in given]  # each in memory of its own
        taken[me] = None
        world.exchange([None if r == me else text(me, r)[:given[r]] for r in range(size)], taken).wait()
        assert all(r == me or taken[r] == text(r, me)[:given[r]] for r in range(size))
        for root in range(size):
            out = bytearray(size * part)
            world.gather(root, text(me, root), out if me == root else None).wait()
            assert me != root or out == b"".join(text(r, root) for r in range(size))
            mine = bytearray(part)
            world.scatter(root, b"".join(text(root, r) for r in range(size)) if me == root else None, mine).wait()
            assert mine == text(root, me)

    run_ranks(size, body)


def test_wrong_arguments(ctx):
    world, data = ctx.world, bytearray(8)
    with pytest.raises(ValueError, match="no reduction 'avg'"):
        world.all_reduce(data, "avg")
    with pytest.raises(ValueError, match="elements of type 'complex64' cannot be reduced"):
        world.all_reduce(data, dtype="complex64")
    with pytest.raises(ValueError, match="8 bytes of input and 4 of output do not fit 1 ranks"):
        world.all_to_all(data, bytearray(4))
    with pytest.raises(ValueError, match="the lengths of the input do not cut its 8 bytes into parts for 1 ranks"):
        world.all_to_all(data, bytearray(8), lengths=[4, 4], out_lengths=[8])
    with pytest.raises(ValueError, match="the lengths of the output do not cut its 8 bytes"):
        world.all_to_all(data, bytearray(8), lengths=[8], out_lengths=[4])
    with pytest.raises(ValueError, match="lengths and out_lengths, or neither"):
        world.all_to_all(data, bytearray(8), lengths=[8])
    with pytest.raises(ValueError, match="exchange: 1 buffers are needed, one for each rank"):
        world.exchange([data, data], [bytearray(8)])
    with pytest.raises(BufferError):
        world.exchange([data], [b"12345678"])
    with pytest.raises(kvcl.InvalidParam, match="gives itself 8 bytes and takes 4"):
        world.exchange([data], [bytearray(4)])
    with pytest.raises(kvcl.InvalidParam, match="in and out overlap"):
        world.exchange([memoryview(data)[:4]], [memoryview(data)[3:7]])
    world.exchange([None], [None]).wait()
    with pytest.raises(ValueError, match="whole elements"):
        world.all_reduce(bytearray(7), dtype="f32")
    with pytest.raises(ValueError, match="does not reduce f64"):
        world.all_reduce(data, "and", dtype="f64")
    with pytest.raises(BufferError):
        world.all_reduce(b"12345678")
