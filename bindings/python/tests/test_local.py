"""One rank that talks to itself: bytes, caches, memory, requests, asyncio."""

import array
import asyncio
import ctypes
import mmap
import threading
import time

import pytest

import kvcl


def fill(cache, seed=1):
    """Distinct bytes everywhere; the blocks' bytes."""
    for base in cache.bases:
        base[:] = bytes((i * 7 + seed + i // 251) & 255 for i in range(len(base)))
    return [cache.read(i) for i in range(cache.blocks)]


# ---- bytes ----

@pytest.mark.parametrize("size", [0, 1, 5000, 300000, 5 << 20])
def test_send_and_recv_bytes(ctx, size):
    data = bytes(i % 253 for i in range(size))
    buf = bytearray(size)
    recv = ctx.world.recv_bytes(0, 7, buf)
    send = ctx.world.send_bytes(0, 7, data)
    assert recv.wait(10) == kvcl.RecvInfo(0, 7, size)
    assert send.wait(10) is None
    assert buf == data


@pytest.mark.parametrize("make", [bytearray, lambda n: memoryview(bytearray(n)), lambda n: mmap.mmap(-1, n),
                                  lambda n: array.array("I", bytes(n)), lambda n: (ctypes.c_char * n)()],
                         ids=["bytearray", "memoryview", "mmap", "array", "ctypes"])
def test_any_buffer(ctx, make):
    buf = make(4096)
    recv = ctx.world.recv_bytes(kvcl.ANY_SOURCE, 2**64 - 2, buf)
    ctx.world.send_bytes(0, 2**64 - 2, b"\x05" * 4096)
    assert recv.wait(10) == (0, 2**64 - 2, 4096)
    assert bytes(memoryview(buf).cast("B")) == b"\x05" * 4096


def test_a_recv_takes_less_than_it_has_room_for_and_not_more(ctx):
    buf = bytearray(100)
    recv = ctx.world.recv_bytes(0, 1, buf)
    ctx.world.send_bytes(0, 1, b"abc")
    assert recv.wait(10).bytes == 3
    recv = ctx.world.recv_bytes(0, 1, bytearray(2))
    send = ctx.world.send_bytes(0, 1, b"abc")
    with pytest.raises(kvcl.Truncated, match="recv_bytes"):
        recv.wait(10)
    with pytest.raises(kvcl.Truncated):
        send.wait(10)


# ---- layer by layer ----

def test_layers_come_as_they_are_marked(ctx):
    layout = kvcl.Layout(layers=6, blocks=8, tokens=4, heads=2, head_dim=16, elem_bytes=2, base="layer")
    mine, theirs = ctx.cache("from", layout), ctx.cache("to", layout)
    recv = ctx.world.recv(0, 3, theirs, [1, 2, 5], layers=(0, 4))
    send = ctx.world.send(0, 3, mine, [7, 0, 3], layers=(2, 6), layerwise=True)
    marker = threading.Thread(target=send.wait, args=(20,))  # waits meanwhile
    marker.start()
    for layer in (3, 0, 1, 2):
        with pytest.raises(kvcl.InProgress):
            recv.layer_wait(layer, 0.01)
        mine.bases[layer + 2][:] = bytes([layer + 10]) * len(mine.bases[layer + 2])
        send.layer_ready(layer + 2)
        recv.layer_wait(layer, 20)
        assert set(theirs.bases[layer]) == {0, layer + 10}
    assert recv.wait(20).bytes == 3 * 4 * layout.block_bytes // 6
    marker.join()
    assert send.done() and send.wait(20) is None
    send.layer_ready(2)  # it has completed: no error
    recv.layer_wait(0)
    with pytest.raises(ValueError, match="layerwise"):
        recv.layer_ready(0)


def test_layers_refuse_and_stop(ctx):
    layout = kvcl.Layout(layers=3, blocks=4, tokens=4, heads=2, head_dim=16, elem_bytes=2)
    cache = ctx.cache("c", layout)
    recv = ctx.world.recv(0, 3, cache, [0])
    send = ctx.world.send(0, 3, cache, [1], layerwise=True)
    with pytest.raises(kvcl.OutOfRange, match="layer 3"):
        send.layer_ready(3)
    with pytest.raises(kvcl.OutOfRange):
        recv.layer_wait(3, 1)
    with pytest.raises((TypeError, ValueError, OverflowError)):
        send.layer_ready(-1)
    send.layer_ready(1)
    recv.layer_wait(1, 20)
    with pytest.raises(kvcl.InProgress):
        kvcl.wait_any([send, recv], 0.02)
    send.cancel()
    kvcl.wait_any([send, recv], 20)
    with pytest.raises(kvcl.Canceled):
        send.wait(20)
    with pytest.raises(kvcl.Canceled):
        recv.layer_wait(2, 20)
    with pytest.raises(kvcl.Canceled):
        send.layer_ready(2)


# ---- caches ----

def test_blocks_by_send_get_put(ctx, layout):
    cache = ctx.cache("main", layout, writable=True)
    blocks = fill(cache)
    recv = ctx.world.recv(0, 3, cache, [10, 11])
    ctx.world.send(0, 3, cache, [1, 2])
    assert recv.wait(10).bytes == 2 * layout.block_bytes
    assert [cache.read(10), cache.read(11)] == blocks[1:3]
    get = ctx.world.get(0, cache, remote=[3, 4], local=(12, 13))
    get.wait(10)
    assert get.block_status == [kvcl.Status.OK] * 2
    assert [cache.read(12), cache.read(13)] == blocks[3:5]
    ctx.world.put(0, cache, local=5, remote=14).wait(10)
    assert cache.read(14) == blocks[5]


def test_layers_and_heads(ctx, layout):
    cache = ctx.cache("main", layout)
    blocks = fill(cache)
    half = layout.block_bytes // 2
    ctx.world.get(0, cache, [1], [2], layers=(1, 2)).wait(10)
    assert cache.read(2) == blocks[2][:half] + blocks[1][half:]
    ctx.world.get(0, cache, [1], [3], heads=(0, 1), remote_heads=(1, 2)).wait(10)
    head = 8 * 2
    want = bytearray(blocks[3])
    for at in range(0, layout.block_bytes, 2 * head):
        want[at:at + head] = blocks[1][at + head:at + 2 * head]
    assert cache.read(3) == want


def test_a_cache_over_the_users_buffers(ctx):
    layout = kvcl.Layout(layers=3, blocks=4, tokens=2, heads=1, head_dim=4, base="layer")
    buffers = [bytearray(layout.base_bytes) for _ in range(3)]
    with ctx.cache("mine", layout, buffers) as cache:
        cache.write(1, bytes(range(layout.block_bytes)))
        assert cache.read(1) == bytes(range(layout.block_bytes))
        assert bytes(cache.bases[2]) == bytes(buffers[2]) != bytes(len(buffers[2]))
        with pytest.raises(BufferError):  # held: it must not move
            buffers[0].extend(b"x")
    buffers[0].extend(b"x")


def test_two_layouts_of_one_shape_exchange_blocks(ctx, layout):
    other = kvcl.Layout(layers=2, blocks=8, tokens=4, heads=2, head_dim=8, order="HND", base="plane")
    a = ctx.cache("a", layout)
    b = ctx.cache("b", other)
    blocks = fill(a)
    ctx.world.get(0, b, remote=[5], local=[0], remote_cache="a").wait(10)
    assert b.read(0) == blocks[5]


def test_block_ids_in_many_forms(ctx, layout):
    cache = ctx.cache("main", layout)
    blocks = fill(cache)
    for ids in ([8, 9], (8, 9), range(8, 10), array.array("I", [8, 9]), array.array("q", [8, 9]),
                (i for i in (8, 9))):
        for i in (8, 9):
            cache.write(i, bytes(layout.block_bytes))
        ctx.world.get(0, cache, [0, 1], ids).wait(10)
        assert [cache.read(8), cache.read(9)] == blocks[:2]
    ctx.world.get(0, cache, [], []).wait(10)


class FakeTensor:
    """A tensor with DLPack and no buffer protocol, as torch's."""

    class DL(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("id", ctypes.c_int32),
                    ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                    ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                    ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64),
                    ("manager", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]

    def __init__(self, shape, strides=None, device=1, bits=16):
        self.memory = bytearray(8192)
        self.freed = 0
        self.raw = (ctypes.c_char * 8192).from_buffer(self.memory)
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        self.strides = (ctypes.c_int64 * len(shape))(*strides) if strides else None
        self.gone = self.DL._fields_[-1][1](self.free)
        self.dl = self.DL(ctypes.addressof(self.raw), device, 0, len(shape), 4, bits, 1, self.shape, self.strides, 0,
                          None, self.gone)

    def free(self, _):
        self.freed += 1

    def __dlpack__(self):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.dl), b"dltensor", None)


def test_dlpack(ctx):
    tensor = FakeTensor((4, 8))
    recv = ctx.world.recv_bytes(0, 1, tensor)
    ctx.world.send_bytes(0, 1, b"\x01" * 64)
    assert recv.wait(10).bytes == 64
    assert tensor.freed == 1 and tensor.memory[:65] == b"\x01" * 64 + b"\0"
    layout = kvcl.Layout(layers=1, blocks=4, tokens=2, heads=1, head_dim=4)
    strided = FakeTensor((2, 64), (64, 1))
    cache = ctx.cache("t", layout, strided)
    cache.close()
    assert strided.freed == 1


@pytest.mark.parametrize("tensor", [FakeTensor((4, 8), (1, 4)), FakeTensor((4, 8), device=2), FakeTensor((4,), bits=4),
                                    FakeTensor((4,), (-1,))], ids=["transposed", "cuda", "4 bits", "negative"])
def test_bad_dlpack(ctx, tensor):
    with pytest.raises(BufferError):
        ctx.world.recv_bytes(0, 1, tensor)


class Broken(FakeTensor):
    """__dlpack_device__ gives `device`, or raises it; with fails the deleter raises."""

    def __init__(self, device=(1, 0), fails=None, **kwargs):
        super().__init__((4, 8), **kwargs)
        self.given = device
        self.fails = fails

    def __dlpack_device__(self):
        if isinstance(self.given, Exception):
            raise self.given
        return self.given

    def free(self, _):
        super().free(_)
        {}.get(self.freed)  # code that must not see the caller's exception
        if self.fails:
            raise self.fails


@pytest.mark.parametrize("device, kind, said", [
    ("cpu", TypeError, "__dlpack_device__.. gave 'cpu', not a tuple of two"),
    ((1,), TypeError, "gave .1,., not a tuple of two"),
    (("cpu", 0), TypeError, "integer"),
    ((0, 0), BufferError, "gave device type 0"),
    ((1 << 40, 0), BufferError, "gave device type 1099511627776"),
    ((1 << 80, 0), OverflowError, "too large"),
    (RuntimeError("the device is lost"), RuntimeError, "the device is lost"),
    (AttributeError("no such driver"), AttributeError, "no such driver")])
def test_wrong_dlpack_device(ctx, device, kind, said):
    with pytest.raises(kind, match=said):
        ctx.world.recv_bytes(0, 1, Broken(device))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("fails", [None, RuntimeError("the deleter's own")], ids=["deleter", "failing deleter"])
def test_the_reason_outlives_the_buffer(fails):
    tensor = Broken(fails=fails)
    with pytest.raises(ValueError, match="a key has 32 bytes, not 64"):
        kvcl.key_chain([tensor], [1] * 16, 16)
    assert tensor.freed == 1


# ---- memory ----

def test_exported_memory(ctx):
    with ctx.alloc(8192) as mem:
        view = mem.view()
        assert len(view) == 8192 and not any(view)
        remote = ctx.world.attach(0, mem.export(read=True, write=True))
        assert len(remote) == 8192
        remote.put(100, b"hello", signal=(remote, 8184, 3)).wait(10)
        mem.signal_wait(8184, 3, timeout=10)
        assert bytes(view[100:105]) == b"hello"
        buf = bytearray(5)
        remote.get(100, buf).wait(10)
        assert buf == b"hello"
        with pytest.raises(kvcl.InProgress):
            mem.signal_wait(8184, 4, timeout=0.02)
        with pytest.raises(kvcl.OutOfRange):
            remote.get(8190, buf).wait(10)
        mem.revoke()
        with pytest.raises(kvcl.AccessDenied):
            remote.get(100, buf).wait(10)
        remote.close()
        del view


def test_rights_are_kept(ctx):
    mine = bytearray(4096)
    mem = ctx.register(mine)
    remote = ctx.world.attach(0, mem.export(read=True))
    with pytest.raises(kvcl.AccessDenied):
        remote.put(0, b"x").wait(10)
    assert mine[0] == 0


def test_a_mapped_file(ctx, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"a" * 8192)
    with ctx.map_file(path, 4096) as mem:
        remote = ctx.world.attach(0, mem.export(write=True))
        remote.put(0, b"bcd").wait(10)
        remote.close()
    assert path.read_bytes()[4094:4100] == b"aabcda"


# ---- requests ----

def test_a_request_tells_its_state(ctx):
    buf = bytearray(3)
    recv = ctx.world.recv_bytes(0, 1, buf)
    assert not recv.done() and not recv.test() and recv.status == kvcl.Status.INPROGRESS
    with pytest.raises(kvcl.InProgress):
        recv.result()
    with pytest.raises(kvcl.InProgress):
        recv.wait(0)
    start = time.monotonic()
    with pytest.raises(kvcl.InProgress):
        recv.wait(0.12)
    assert time.monotonic() - start > 0.1
    ctx.world.send_bytes(0, 1, b"abc").wait(10)
    assert recv.wait(10).bytes == 3
    assert recv.done() and recv.test() and recv.status == kvcl.Status.OK
    assert recv.wait(0) == recv.wait() == recv.result()
    assert recv.block_status is None
    recv.cancel()


def test_cancel(ctx):
    recv = ctx.world.recv_bytes(0, 1, bytearray(3))
    recv.cancel()
    with pytest.raises(kvcl.Canceled):
        recv.wait(10)
    with pytest.raises(kvcl.Canceled):
        recv.result()
    assert recv.done() and recv.status == kvcl.Status.ERR_CANCELED


def test_cancel_from_another_thread(ctx):
    recv = ctx.world.recv_bytes(0, 1, bytearray(3))
    threading.Timer(0.1, recv.cancel).start()
    with pytest.raises(kvcl.Canceled):
        recv.wait(20)


def test_the_deadline_of_an_operation(ctx):
    recv = ctx.world.recv_bytes(0, 1, bytearray(3), timeout=0.05)
    with pytest.raises(kvcl.TimedOut, match="^kvcl_recv_bytes of tag 1 from rank 0 .*deadline of 50 ms"):
        recv.wait()


def test_a_with_block_leaves_nothing_in_flight(ctx):
    buf = bytearray(3)
    with ctx.world.recv_bytes(0, 1, buf) as recv:
        pass
    assert recv.status == kvcl.Status.ERR_CANCELED
    buf.extend(b"free again")


def test_many_threads_wait_for_one_request(ctx):
    recv = ctx.world.recv_bytes(0, 1, bytearray(3))
    got = []
    ready = threading.Barrier(7)

    def wait():
        ready.wait(20)
        got.append(recv.wait(20))

    threads = [threading.Thread(target=wait) for _ in range(6)]
    for thread in threads:
        thread.start()
    ready.wait(20)
    ctx.world.send_bytes(0, 1, b"abc").wait(10)
    for thread in threads:
        thread.join(20)
    assert got == [(0, 1, 3)] * 6


def test_the_gil_is_released_while_waiting(ctx):
    count = 0
    stop = False

    def spin():
        nonlocal count
        while not stop:
            count += 1

    thread = threading.Thread(target=spin)
    thread.start()
    with ctx.world.recv_bytes(0, 1, bytearray(3)) as recv, pytest.raises(kvcl.InProgress):
        recv.wait(0.3)
    stop = True
    thread.join()
    assert count > 100000


def test_wait_all_and_wait_any(ctx):
    bufs = [bytearray(8) for _ in range(20)]
    recvs = [ctx.world.recv_bytes(0, tag, buf) for tag, buf in enumerate(bufs)]
    with pytest.raises(kvcl.InProgress):
        kvcl.wait_any(recvs, 0.02)
    ctx.world.send_bytes(0, 13, b"x").wait(10)
    index, request = kvcl.wait_any(recvs, 10)
    assert index == 13 and request is recvs[13]
    threading.Timer(0.1, lambda: ctx.world.send_bytes(0, 5, b"yy")).start()
    rest = [recv for recv in recvs if recv is not recvs[13]]
    assert kvcl.wait_any(rest)[1] is recvs[5]
    with pytest.raises(kvcl.InProgress):
        kvcl.wait_all(recvs, 0.02)
    for tag in range(20):
        if tag not in (5, 13):
            ctx.world.send_bytes(0, tag, b"zzz")
    infos = kvcl.wait_all(recvs, 10)
    assert [info.tag for info in infos] == list(range(20))
    assert [info.bytes for info in infos] == [{13: 1, 5: 2}.get(tag, 3) for tag in range(20)]
    assert kvcl.wait_all([]) == []
    with pytest.raises(ValueError):
        kvcl.wait_any([])
    with pytest.raises(TypeError):
        kvcl.wait_any([None])


def test_wait_all_raises_after_all_have_completed(ctx):
    good, bad = bytearray(3), ctx.world.recv_bytes(0, 1, bytearray(1), timeout=0.01)
    recv = ctx.world.recv_bytes(0, 2, good)
    threading.Timer(0.1, lambda: ctx.world.send_bytes(0, 2, b"abc")).start()
    with pytest.raises(kvcl.TimedOut):
        kvcl.wait_all([bad, recv])
    assert recv.done() and good == b"abc"


# ---- asyncio ----

def test_await(ctx):
    async def main():
        buf = bytearray(5)
        recv = ctx.world.recv_bytes(0, 1, buf)

        async def late():
            await asyncio.sleep(0)  # the recv is awaited by then
            await ctx.world.send_bytes(0, 1, b"hello")

        info, _ = await asyncio.gather(recv, late())
        return info, await recv, bytes(buf)

    info, again, data = asyncio.run(main())
    assert info == again == (0, 1, 5) and data == b"hello"


def test_await_many(ctx):
    async def main():
        bufs = [bytearray(4) for _ in range(100)]
        recvs = [ctx.world.recv_bytes(0, i, buf) for i, buf in enumerate(bufs)]
        waits = asyncio.gather(*recvs)
        await asyncio.sleep(0)
        await asyncio.gather(*(ctx.world.send_bytes(0, i, i.to_bytes(4, "big")) for i in range(100)))
        await waits
        assert [int.from_bytes(buf, "big") for buf in bufs] == list(range(100))

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_timeout_of_asyncio_cancels_the_operation(ctx):
    async def main():
        recv = ctx.world.recv_bytes(0, 1, bytearray(5))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(recv, 0.05)
        return recv

    assert asyncio.run(main()).status == kvcl.Status.ERR_CANCELED


def test_an_error_comes_out_of_await(ctx):
    async def main():
        await ctx.world.recv_bytes(0, 1, bytearray(5), timeout=0.02)

    with pytest.raises(kvcl.TimedOut):
        asyncio.run(main())


def test_loops_in_several_threads_share_a_context(ctx):
    async def echo(tag):
        for _ in range(50):
            buf = bytearray(3)
            recv = ctx.world.recv_bytes(0, tag, buf)
            await ctx.world.send_bytes(0, tag, b"abc")
            await asyncio.wait_for(recv, 20)

    errors = []

    def run(tag):
        try:
            asyncio.run(echo(tag))
        except BaseException as error:  # noqa: B902
            errors.append(error)

    threads = [threading.Thread(target=run, args=(tag,)) for tag in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    assert not errors


def test_awaiting_and_waiting_for_one_request(ctx):
    async def main():
        recv = ctx.world.recv_bytes(0, 1, bytearray(3))
        loop = asyncio.get_running_loop()
        begun = threading.Event()

        def wait():
            begun.set()
            return recv.wait(20)

        waiting = loop.run_in_executor(None, wait)
        awaiting = [asyncio.ensure_future(recv), asyncio.ensure_future(recv)]
        await loop.run_in_executor(None, begun.wait, 20)
        ctx.world.send_bytes(0, 1, b"abc")
        return await asyncio.wait_for(asyncio.gather(waiting, *awaiting), 20)

    assert asyncio.run(main()) == [(0, 1, 3)] * 3


def test_no_progress_thread():
    with kvcl.Context(boot="self", progress_thread=False) as ctx:
        buf = bytearray(3)
        recv = ctx.world.recv_bytes(0, 1, buf)
        ctx.world.send_bytes(0, 1, b"abc").wait(10)
        recv.wait(10)
        assert ctx.progress() >= 0

        async def main():
            recv = ctx.world.recv_bytes(0, 1, buf)
            await ctx.world.send_bytes(0, 1, b"def")
            return await recv

        assert asyncio.run(main()).bytes == 3 and buf == b"def"


def test_counters(ctx):
    before = ctx.stats()["ops"]
    recv = ctx.world.recv_bytes(0, 1, bytearray(3))
    ctx.world.send_bytes(0, 1, b"abc").wait(10)
    recv.wait(10)
    assert ctx.stats()["ops"] > before
    assert isinstance(ctx.fileno(), int)


def test_latency(ctx, layout):
    assert ctx.latency() == {}
    cache = ctx.cache("timed", layout)
    for _ in range(200):
        ctx.world.get(0, cache, [0], [1]).wait(10)
    got = ctx.latency()
    assert list(got) == [("get", "loop")]
    gets = got["get", "loop"]
    assert 0 < gets["count"] <= 200 + 61 and gets["sum_ns"] > 0
    assert sum(count for _, count in gets["buckets"]) == gets["count"]
    assert [bound for bound, _ in gets["buckets"]] == sorted(bound for bound, _ in gets["buckets"])
    before = ctx.latency()
    with pytest.raises(kvcl.NotRegistered):
        ctx.world.get(0, cache, [0], [1], remote_cache="nobodys").wait(10)
    assert ctx.latency() == before


def test_memory_of_a_rank(ctx, layout):
    assert ctx.world.memory(0) == []
    cache = ctx.cache("shown", layout, writable=True)
    ctx.world.put(0, cache, [0], [1]).wait(10)
    size = layout.block_bytes * layout.blocks
    assert ctx.world.memory(0) == [kvcl.MemoryInfo("cache", "shown", size, "loop", "loop", "", "")]
    with pytest.raises(kvcl.UnknownRank):
        ctx.world.memory(1)


def test_collectives_alone(ctx, layout):
    world = ctx.world
    world.barrier()
    assert world.allgather(b"abc") == [b"abc"]
    world.bcast_bytes(0, b"abc").wait(10)
    world.bcast(0, ctx.cache("main", layout), [1, 2]).wait(10)
    assert world.split(5).size == 1
    assert world.split(None) is None
    assert "loop" in world.path(0)


def test_blocks_of_different_sizes(ctx):
    small = kvcl.Layout(layers=1, kv=1, blocks=8, tokens=16, heads=1, head_dim=1, elem_bytes=1)
    large = kvcl.Layout(layers=1, kv=1, blocks=2, tokens=64, heads=1, head_dim=1, elem_bytes=1)
    small.check_compatible(large)
    ours, theirs = ctx.cache("small", small), ctx.cache("large", large, writable=True)
    for i in range(8):
        ours.write(i, bytes([i + 1]) * 16)
    ctx.world.put(0, ours, [0, 1, 2, 7, 6, 5, 4], [1, 0], remote_tokens=(0, 112), remote_cache="large").wait(10)
    assert theirs.read(1) == b"".join(bytes([i + 1]) * 16 for i in (0, 1, 2, 7))
    assert theirs.read(0) == b"".join(bytes([i + 1]) * 16 for i in (6, 5, 4)) + bytes(16)
    recv = ctx.world.recv(0, 5, ours, [3], tokens=(2, 10))
    ctx.world.send(0, 5, theirs, [1], tokens=(12, 20)).wait(10)
    assert recv.wait(10).bytes == 8
    assert ours.read(3) == b"\4\4" + b"\1" * 4 + b"\2" * 4 + b"\4" * 6
    with pytest.raises(kvcl.BadLayout):
        ctx.world.get(0, ours, [0], [0, 1], remote_cache="large").wait(10)
