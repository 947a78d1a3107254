"""What a serving engine posts every step: prepared transfers, signals, background, and layers that a task awaits."""

import asyncio
import threading

import pytest

import kvcl
from test_device import on_a_device
from test_local import fill

LAYERED = kvcl.Layout(layers=4, blocks=4, tokens=4, heads=2, head_dim=16, elem_bytes=2, base="layer")


# ---- prepared transfers ----

def test_a_prepared_get_moves_other_blocks_at_each_posting(ctx, layout):
    cache = ctx.cache("main", layout)
    blocks = fill(cache)
    with ctx.world.prepare_get(0, cache, timeout=20) as fetch:
        one = fetch.post(local=[10, 11], remote=[1, 2])
        two = fetch.post(local=range(12, 15), remote=[3, 4, 5])
        kvcl.wait_all([one, two], 20)
        assert two.block_status == [kvcl.Status.OK] * 3
    assert [cache.read(i) for i in range(10, 15)] == blocks[1:6]
    assert fetch.closed
    with pytest.raises(kvcl.Shutdown):
        fetch.post([1], [2])


def test_a_prepared_put_has_ranges_and_another_cache(ctx, layout):
    here, there = ctx.cache("here", layout), ctx.cache("there", layout, writable=True)
    blocks, before = fill(here), fill(there, 9)
    half = layout.block_bytes // 2
    store = ctx.world.prepare_put(0, here, layers=(1, 2), remote_layers=(0, 1), remote_cache="there")
    store.post([5], [7]).wait(20)
    assert there.read(7) == blocks[5][half:] + before[7][half:]
    store.close()


def test_a_prepared_transfer_keeps_what_it_uses(ctx, layout):
    cache = ctx.cache("main", layout)
    fetch = ctx.world.prepare_get(0, cache)
    with pytest.raises(kvcl.Busy):
        cache.close()
    fetch.close()
    cache.close()


def test_a_wrong_preparation_or_posting_is_refused(ctx, layout):
    cache = ctx.cache("main", layout)
    with pytest.raises(kvcl.OutOfRange):
        ctx.world.prepare_get(0, cache, layers=(0, 9))
    with pytest.raises(kvcl.UnknownRank):
        ctx.world.prepare_get(7, cache)
    with pytest.raises(TypeError):
        ctx.world.prepare_get(0, "main")
    with ctx.world.prepare_get(0, cache) as fetch:
        with pytest.raises(kvcl.OutOfRange):
            fetch.post([layout.blocks], [0])
        with pytest.raises((kvcl.InvalidParam, kvcl.BadLayout)):
            fetch.post([1, 2], [3]).wait(20)
        with pytest.raises(kvcl.OutOfRange):
            fetch.post([1], [layout.blocks]).wait(20)
        fetch.post([1], [2], notify=b"read").wait(20)
    assert ctx.world.notify_recv(20) == (0, b"read")


def test_a_closed_context_frees_prepared_transfers(layout):
    ctx = kvcl.Context(boot="self")
    fetch = ctx.world.prepare_get(0, ctx.cache("main", layout))
    ctx.close()
    assert fetch.closed


# ---- signals, background ----

def test_a_put_of_blocks_signals(ctx, layout):
    cache, mem = ctx.cache("main", layout, writable=True), ctx.alloc(16)
    blocks, counter = fill(cache), ctx.world.attach(0, mem.export(write=True))
    ctx.world.put(0, cache, [1], [2], signal=(counter, 8, 3)).wait(20)
    mem.signal_wait(8, 3, 20)
    assert cache.read(2) == blocks[1]
    with ctx.world.prepare_put(0, cache, signal=(counter, 8, 2)) as store:
        kvcl.wait_all([store.post([3], [4]), store.post([5], [6])], 20)
    mem.signal_wait(8, 7, 20)
    assert cache.read(6) == blocks[5]
    with pytest.raises(TypeError):
        ctx.world.put(0, cache, [1], [2], signal=counter)
    with pytest.raises((kvcl.OutOfRange, kvcl.InvalidParam)):
        ctx.world.put(0, cache, [1], [2], signal=(counter, 12, 1)).wait(20)


def test_transfers_in_the_background_move_the_same_bytes(ctx, layout):
    cache, mem = ctx.cache("main", layout, writable=True), ctx.alloc(4096)
    blocks, remote = fill(cache), ctx.world.attach(0, mem.export(write=True))
    ctx.world.get(0, cache, [1], [2], background=True).wait(20)
    ctx.world.put(0, cache, [3], [4], background=True).wait(20)
    with ctx.world.prepare_get(0, cache, background=True) as fetch:
        fetch.post([6], [5]).wait(20)
    assert [cache.read(i) for i in (2, 4, 6)] == [blocks[1], blocks[3], blocks[5]]
    remote.put(0, b"abcdefgh", background=True).wait(20)
    remote.put_vec([8], b"ijkl", [0], 4, background=True).wait(20)
    got, pieces = bytearray(12), bytearray(4)
    remote.get(0, got, background=True).wait(20)
    remote.get_vec([2], pieces, [0], 4, background=True).wait(20)
    assert (bytes(got), bytes(pieces)) == (b"abcdefghijkl", b"cdef")


# ---- layers that a task awaits ----

def pair(ctx):
    mine, theirs = ctx.cache("from", LAYERED), ctx.cache("to", LAYERED)
    return (theirs, ctx.world.recv(0, 3, theirs, [1], timeout=60),
            ctx.world.send(0, 3, mine, [2], layerwise=True, timeout=60), mine)


@pytest.mark.parametrize("thread", [True, False])
def test_a_task_awaits_layers(thread):
    with kvcl.Context(boot="self", progress_thread=thread) as ctx:
        theirs, recv, send, mine = pair(ctx)
        order = []

        async def wait_for(layer):
            await recv.layer(layer)
            assert set(theirs.bases[layer]) == {0, layer + 1}
            order.append(layer)

        async def main():
            tasks = [asyncio.ensure_future(wait_for(layer)) for layer in range(4)]
            await asyncio.sleep(0)
            for layer in (2, 0, 3, 1):
                assert not recv.layer_test(layer)
                mine.bases[layer][:] = bytes([layer + 1]) * len(mine.bases[layer])
                send.layer_ready(layer)
                await asyncio.wait_for(tasks[layer], 60)
            await asyncio.wait_for(asyncio.gather(recv, send), 60)

        asyncio.run(main())
        assert order == [2, 0, 3, 1]
        assert recv.layer_test(1)  # of a completed request


def test_a_layer_is_marked_by_another_thread(ctx):
    _, recv, send, _ = pair(ctx)
    waits = threading.Event()

    def mark():
        waits.wait(60)
        for layer in range(4):
            send.layer_ready(layer)
        send.wait(60)

    async def main():
        marker = threading.Thread(target=mark)
        marker.start()
        task = asyncio.ensure_future(recv.layer(3))
        await asyncio.sleep(0)
        waits.set()
        await asyncio.wait_for(task, 60)
        await asyncio.wait_for(recv, 60)
        marker.join(60)

    asyncio.run(main())
    assert recv.wait(0).bytes == LAYERED.block_bytes


def test_a_thread_waits_for_the_request_meanwhile(ctx):
    """The wait is inside the library with the request almost always; the task gets its turns."""
    _, recv, send, _ = pair(ctx)

    async def main():
        waiter = threading.Thread(target=recv.wait, args=(60,))
        waiter.start()
        task = asyncio.ensure_future(recv.layer(0))
        await asyncio.sleep(0)
        send.layer_ready(0)
        await asyncio.wait_for(task, 60)
        for layer in (1, 2, 3):
            send.layer_ready(layer)
        await asyncio.wait_for(send, 60)
        waiter.join(60)

    asyncio.run(main())
    assert recv.done()


def test_an_awaited_layer_of_a_failed_request_raises(ctx):
    _, recv, send, _ = pair(ctx)

    async def main():
        task, canceled = asyncio.ensure_future(recv.layer(1)), asyncio.ensure_future(recv.layer(2))
        await asyncio.sleep(0)
        canceled.cancel()  # the task alone: the request goes on
        with pytest.raises(asyncio.CancelledError):
            await canceled
        assert not recv.layer_test(1) and not recv.done()
        with pytest.raises(kvcl.OutOfRange):
            await recv.layer(9)
        send.cancel()
        with pytest.raises(kvcl.Canceled):
            await asyncio.wait_for(task, 60)

    asyncio.run(main())
    with pytest.raises(kvcl.Canceled):
        recv.layer_test(0)


# ---- streams ----

def test_a_request_for_a_stream(tmp_path):
    on_a_device(tmp_path, """
        with kvcl.Context() as ctx:
            stream = cuda.fake_cuda_stream(0)
            cuda.fake_cuda_hold(stream)
            request = ctx.stream_done(stream, timeout=60)
            assert not request.test()
            cuda.fake_cuda_release(stream)
            assert request.wait(60) is None
            try:
                ctx.stream_done("none")
            except TypeError:
                pass
            else:
                raise AssertionError("a string is a stream")
    """)
