"""Queues of completions, wait_some, probes and recvs of any tag; splitting communicators."""

import asyncio
import select
import threading
import time

import pytest

import kvcl
from conftest import run_ranks

LIMIT = 30


def drained(queue, n):
    """Exactly n completions."""
    got, until = queue.drain(), time.monotonic() + LIMIT
    while len(got) < n:
        assert time.monotonic() < until
        select.select([queue.fileno()], [], [], 1)
        got += queue.drain()
    assert len(got) == n and queue.drain() == []
    return got


# ---- queues ----

def test_a_queue_collects_what_was_posted_in_its_block(ctx, layout):
    queue = kvcl.Queue()
    assert queue.drain() == [] and queue.in_flight == 0
    cache = ctx.cache("main", layout)
    buffers = [bytearray(1 << i) for i in range(20)]
    outside = ctx.world.recv_bytes(0, 100, bytearray(4))
    for i, buf in enumerate(buffers):
        with queue.posting(("recv", i)):
            ctx.world.recv_bytes(0, i, buf)
    assert queue.in_flight == 20 and queue.drain() == []
    for i in range(20):
        with queue.posting(("send", i)):
            ctx.world.send_bytes(0, i, bytes([i]) * (1 << i))
    with queue.posting():
        get = ctx.world.get(0, cache, [1, 2], [3, 4])
    done = drained(queue, 41)
    assert {d.tag for d in done} == {None} | {(way, i) for way in ("send", "recv") for i in range(20)}
    for d in done:
        assert d.status == kvcl.Status.OK and d.error is None and d.request.done() and 0 < d.seconds < LIMIT
        if d.tag is None:
            assert d.request is get and d.bytes == 2 * layout.block_bytes
            assert get.block_status == [kvcl.Status.OK] * 2
        else:
            assert d.bytes == 1 << d.tag[1]
        if d.tag is not None and d.tag[0] == "recv":
            assert d.request.result() == kvcl.RecvInfo(0, d.tag[1], d.bytes)
    assert all(buf == bytes([i]) * (1 << i) for i, buf in enumerate(buffers))
    ctx.world.send_bytes(0, 100, b"out")
    assert outside.wait(LIMIT).bytes == 3 and queue.drain() == [] and queue.in_flight == 0
    queue.close()
    assert queue.closed


def test_blocks_nest_and_belong_to_their_thread(ctx):
    one, two = kvcl.Queue(), kvcl.Queue()

    def elsewhere():
        ctx.world.send_bytes(0, 1, b"a").wait(LIMIT)

    with one.posting("a"):
        with two.posting("b"):
            ctx.world.recv_bytes(0, 2, bytearray(4))
        ctx.world.recv_bytes(0, 1, bytearray(4))
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join(LIMIT)
    ctx.world.send_bytes(0, 2, b"b").wait(LIMIT)
    assert [d.tag for d in drained(one, 1)] == ["a"] and [d.tag for d in drained(two, 1)] == ["b"]


def test_failures_have_their_sentence(ctx):
    with kvcl.Queue() as queue:
        with queue.posting("late"):
            ctx.world.recv_bytes(0, 7, bytearray(4), timeout=0.01)
        done, = drained(queue, 1)
        assert done.status == kvcl.Status.ERR_TIMED_OUT and "tag 7" in done.error and done.bytes == 0
        with pytest.raises(kvcl.TimedOut, match="tag 7"):
            done.request.result()
        with queue.posting("stopped"):
            request = ctx.world.recv_bytes(0, 7, bytearray(4))
        request.cancel()
        done, = drained(queue, 1)
        assert done.request is request and done.status == kvcl.Status.ERR_CANCELED
        with queue.posting("never posted"), pytest.raises(kvcl.UnknownRank):
            ctx.world.recv_bytes(5, 7, bytearray(4))
        assert queue.drain() == [] and queue.in_flight == 0


def test_requests_of_a_queue_can_be_waited_for(ctx):
    queue = kvcl.Queue()
    with queue.posting(1):
        first = ctx.world.recv_bytes(0, 1, bytearray(4))
    with queue.posting(2):
        second = ctx.world.recv_bytes(0, 2, bytearray(4))
    with pytest.raises(kvcl.WaitTimeout):
        first.wait(0.01)
    assert not first.done()
    ctx.world.send_bytes(0, 1, b"one")
    assert first.wait(LIMIT).bytes == 3
    ctx.world.send_bytes(0, 2, b"two!")
    assert kvcl.wait_any([second], LIMIT) == (0, second)
    assert [(d.tag, d.bytes) for d in queue.drain(1)] == [(1, 3)]
    assert [(d.tag, d.bytes) for d in queue.drain()] == [(2, 4)]

    async def main():
        with queue.posting(3):
            third = ctx.world.recv_bytes(0, 3, bytearray(4))
        ctx.world.send_bytes(0, 3, b"x")
        return await asyncio.wait_for(third, LIMIT)

    assert asyncio.run(main()).bytes == 1
    assert [d.tag for d in queue.drain()] == [3]


def test_an_event_loop_waits_for_a_queue(ctx):
    queue = kvcl.Queue()

    async def main():
        for i in range(50):
            with queue.posting(i):
                ctx.world.recv_bytes(0, i, bytearray(4))
        waiting = asyncio.ensure_future(queue.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        ctx.world.send_bytes(0, 7, b"now")
        tags = [d.tag for d in await asyncio.wait_for(waiting, LIMIT)]
        assert tags == [7]
        for i in range(50):
            if i != 7:
                ctx.world.send_bytes(0, i, b"now")
        while len(tags) < 50:
            tags += [d.tag for d in await asyncio.wait_for(queue.wait(), LIMIT)]
        assert sorted(tags) == list(range(50))

    asyncio.run(main())


def test_a_dropped_request_and_its_buffer_live_until_drained(ctx):
    queue = kvcl.Queue()
    with queue.posting("kept"):
        ctx.world.recv_bytes(0, 1, bytearray(4))
    ctx.world.send_bytes(0, 1, b"abcd").wait(LIMIT)
    done, = drained(queue, 1)
    assert done.request.result().bytes == 4


def test_closing(layout):
    queue = kvcl.Queue()
    ctx = kvcl.Context(boot="self")
    with queue.posting("left"):
        ctx.world.recv_bytes(0, 1, bytearray(4))
    with pytest.raises(kvcl.Busy, match="1 operations"):
        queue.close()
    ctx.close()
    done, = drained(queue, 1)
    assert done.tag == "left" and done.status == kvcl.Status.ERR_CANCELED
    queue.close()
    queue.close()
    with pytest.raises(kvcl.Shutdown):
        queue.drain()
    with pytest.raises(kvcl.Shutdown):
        queue.fileno()
    with pytest.raises(kvcl.Shutdown), queue.posting():
        pass


def test_without_a_progress_thread():
    with kvcl.Context(boot="self", progress_thread=False) as ctx, kvcl.Queue() as queue:
        with queue.posting("recv"):
            recv = ctx.world.recv_bytes(0, 1, bytearray(4))
        with queue.posting("send"):
            ctx.world.send_bytes(0, 1, b"abc")
        got, until = [], time.monotonic() + LIMIT
        while len(got) < 2 and time.monotonic() < until:
            ctx.progress()
            got += [d.tag for d in queue.drain()]
        assert sorted(got) == ["recv", "send"] and recv.result().bytes == 3


def test_a_store_in_a_queue(ctx):
    layout = kvcl.Layout(layers=1, kv=1, blocks=16, tokens=16, heads=1, head_dim=8, elem_bytes=2)
    cache = ctx.cache("main", layout)
    with kvcl.Store(ctx.world, dram_bytes=1 << 20, block_bytes=layout.block_bytes) as store, kvcl.Queue() as queue:
        keys = [kvcl.key_from_string(f"key {i}") for i in range(4)]
        with queue.posting("put"):
            store.put(keys[:3], cache, [0, 1, 2])
        done, = drained(queue, 1)
        assert (done.status, done.bytes) == (kvcl.Status.OK, 3 * layout.block_bytes)
        with queue.posting("again"):
            store.put(keys[:3], cache, [0, 1, 2])
        assert drained(queue, 1)[0].bytes == 0  # the store has them
        with queue.posting("get"):
            store.get(keys, cache, [4, 5, 6, 7])
        done, = drained(queue, 1)
        assert (done.status, done.bytes) == (kvcl.Status.ERR_NOT_FOUND, 3 * layout.block_bytes)
        with queue.posting("values"):
            store.put_values([keys[3]], [b"x" * 5000])
        assert drained(queue, 1)[0].bytes == 5000
        buf = bytearray(5000)
        with queue.posting("value"):
            store.get_values([keys[3]], [buf])
        assert drained(queue, 1)[0].bytes == 5000 and buf == b"x" * 5000


# ---- wait_some ----

def test_wait_some(ctx):
    recvs = [ctx.world.recv_bytes(0, i, bytearray(4)) for i in range(5)]
    with pytest.raises(kvcl.WaitTimeout):
        kvcl.wait_some(recvs, 0.01)
    for i in (1, 3):
        ctx.world.send_bytes(0, i, b"x").wait(LIMIT)
    assert kvcl.wait_some(recvs, LIMIT) == [1, 3]
    recvs[0].cancel()
    assert kvcl.wait_some(recvs[:1], LIMIT) == [0]


# ---- probes ----

def test_probe_and_any_tag(ctx):
    world = ctx.world
    assert world.probe(kvcl.ANY_SOURCE, kvcl.ANY_TAG) is None
    assert world.probe(0, 5, 0.01) is None
    sends = [world.send_bytes(0, tag, b"x" * size) for tag, size in ((5, 3), (6, 100000), (5, 0))]
    assert world.probe(0, 6, LIMIT) == kvcl.RecvInfo(0, 6, 100000)
    assert world.probe(kvcl.ANY_SOURCE, kvcl.ANY_TAG, None) == (0, 5, 3)
    assert world.probe(0, 7) is None
    sizes = []
    for _ in sends:
        found = world.probe(0, kvcl.ANY_TAG, LIMIT)
        buf = bytearray(found.bytes)
        assert world.recv_bytes(0, kvcl.ANY_TAG, buf).wait(LIMIT) == found
        sizes.append(found.bytes)
    assert sizes == [3, 100000, 0] and world.probe(0, kvcl.ANY_TAG) is None
    with pytest.raises(kvcl.UnknownRank):
        world.probe(1, 5)
    with pytest.raises(kvcl.InvalidParam, match="KVCL_ANY_TAG"):
        world.send_bytes(0, kvcl.ANY_TAG, b"x")


# ---- split ----

def test_split():
    def body(ctx):
        world = ctx.world
        half = world.split(world.rank % 2, key=-world.rank, timeout=LIMIT)
        members = [int(entry) for entry in half.allgather(b"%d" % world.rank)]
        assert members == ([2, 0] if world.rank % 2 == 0 else [3, 1])
        rest = world.split(None if world.rank == 1 else -5)
        assert (rest is None) == (world.rank == 1)
        assert rest is None or rest.size == 3

    run_ranks(4, body)


def test_split_with_nonsense(ctx):
    for color, key in (("red", 0), (1, "x"), (2**70, 0), (-2**63, 0), (1.5, 0)):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            ctx.world.split(color, key)
