"""Arguments that make no sense raise; the process lives and the context works on."""

import gc
import sys

import pytest

import kvcl
from kvcl import _kvcl

BAD = (TypeError, ValueError, BufferError, OverflowError, kvcl.KvclError)


@pytest.fixture
def cache(ctx, layout):
    return ctx.cache("main", layout)


@pytest.fixture(autouse=True)
def works_on(ctx):
    yield
    if not ctx.closed:
        recv = ctx.world.recv_bytes(0, 99, bytearray(3))
        ctx.world.send_bytes(0, 99, b"abc").wait(10)
        assert recv.wait(10).bytes == 3


@pytest.mark.parametrize("buffer", [None, 5, "text", [1, 2], object(), b"read-only"], ids=repr)
def test_recv_needs_a_writable_buffer(ctx, buffer):
    with pytest.raises((TypeError, BufferError)):
        ctx.world.recv_bytes(0, 1, buffer)


def test_readonly_buffers_are_refused_where_the_library_writes(ctx, cache, layout):
    fixed = memoryview(bytes(1 << 16))
    mem = ctx.alloc(4096)
    remote = ctx.world.attach(0, mem.export(write=True))
    for call in (lambda: ctx.world.recv_bytes(0, 1, fixed), lambda: remote.get(0, fixed[:8]),
                 lambda: ctx.register(fixed), lambda: ctx.cache("x", layout, fixed),
                 lambda: cache.read_into(0, fixed[:layout.block_bytes])):
        with pytest.raises(BufferError):
            call()


def test_holes_are_refused_in_plain_buffers(ctx):
    with pytest.raises(BufferError):
        ctx.world.send_bytes(0, 1, memoryview(bytearray(100))[::2])


@pytest.mark.parametrize("rank", [1, -2, 2**31 - 1, 2**31, -2**40, 2**100, None, "0", 0.0])
def test_bad_ranks(ctx, cache, rank):
    for call in (lambda: ctx.world.send_bytes(rank, 1, b"x"), lambda: ctx.world.send(rank, 1, cache, [0]),
                 lambda: ctx.world.recv_bytes(rank, 1, bytearray(1)), lambda: ctx.world.get(rank, cache, [0], [0]),
                 lambda: ctx.world.bcast(rank, cache, [0]), lambda: ctx.world.path(rank),
                 lambda: ctx.world.attach(rank, b"x")):
        with pytest.raises(BAD):
            call()


@pytest.mark.parametrize("tag", [-1, 2**64, None, "1", 1.0])
def test_bad_tags(ctx, tag):
    with pytest.raises((TypeError, ValueError)):
        ctx.world.send_bytes(0, tag, b"x")


@pytest.mark.parametrize("ids", [[16], [0, 1000], [2**32 - 1], [2**32], [-1], ["1"], [None], None, "12", b"12", 1.5, 16,
                                 [[0]], {"a": 1}])
def test_bad_blocks(ctx, cache, ids):
    for call in (lambda: ctx.world.send(0, 1, cache, ids).wait(1), lambda: ctx.world.recv(0, 1, cache, ids),
                 lambda: ctx.world.get(0, cache, [0], ids).wait(1), lambda: ctx.world.get(0, cache, ids, [0]).wait(1)):
        with pytest.raises(BAD):
            call()


def test_ids_out_of_range_say_so(ctx, cache):
    with pytest.raises(kvcl.OutOfRange, match="16"):
        ctx.world.recv(0, 1, cache, [16])
    with pytest.raises(kvcl.OutOfRange):
        ctx.world.get(0, cache, remote=[16], local=[0]).wait(10)
    with pytest.raises(kvcl.OutOfRange):
        cache.read(16)
    with pytest.raises(kvcl.BadLayout):
        ctx.world.get(0, cache, [0, 1], [0]).wait(10)


@pytest.mark.parametrize("bounds", [(0, 3), (2, 1), (1, 1), (0, 0), (-1, 1), (0,), (0, 1, 2), 5, "ab", (0, 2**32),
                                    (None, 1)])
def test_bad_ranges(ctx, cache, bounds):
    with pytest.raises(BAD):
        ctx.world.send(0, 1, cache, [0], layers=bounds)
    with pytest.raises(BAD):
        ctx.world.get(0, cache, [0], [1], heads=bounds).wait(10)


@pytest.mark.parametrize("timeout", [-1, float("nan"), "1", -0.001, [], 1j])
def test_bad_timeouts(ctx, timeout):
    with pytest.raises((TypeError, ValueError)):
        ctx.world.recv_bytes(0, 1, bytearray(1), timeout=timeout)
    recv = ctx.world.recv_bytes(0, 1, bytearray(1), timeout=float("inf"))
    with pytest.raises((TypeError, ValueError)):
        recv.wait(timeout)
    recv.cancel()


def test_buffers_too_small_for_a_cache(ctx, layout):
    with pytest.raises(ValueError, match="covers"):
        ctx.cache("x", layout, bytearray(layout.base_bytes - 1))
    with pytest.raises(ValueError, match="base"):
        ctx.cache("x", layout, [bytearray(layout.base_bytes)] * 2)
    with pytest.raises(ValueError):
        ctx.cache("x", layout, [])
    with pytest.raises(BufferError):
        ctx.cache("x", layout, memoryview(bytearray(2 * layout.base_bytes))[::-1])
    for wrong in (None, 5, "layout", (1, 2)):
        with pytest.raises(TypeError):
            ctx.cache("x", wrong)


def test_cache_names(ctx, layout, cache):
    with pytest.raises(kvcl.Exists):
        ctx.cache("main", layout)
    for name in ("x" * 64, "", None, 5, "a\0b"):
        with pytest.raises(BAD):
            ctx.cache(name, layout)


def test_blocks_of_the_wrong_size(cache, layout):
    for data in (b"", b"x", bytes(layout.block_bytes + 1)):
        with pytest.raises(kvcl.InvalidParam):
            cache.write(0, data)
    with pytest.raises(kvcl.InvalidParam):
        cache.read_into(0, bytearray(1))
    with pytest.raises(TypeError):
        cache.write(0, "text")


def test_wrong_objects(ctx, cache, layout):
    mem = ctx.alloc(4096)
    for wrong in (None, 5, ctx, mem, object, layout):
        with pytest.raises(TypeError):
            ctx.world.send(0, 1, wrong, [0])
        with pytest.raises(TypeError):
            kvcl.Store(wrong)
        with pytest.raises(TypeError):
            _kvcl.Comm._create(wrong, [0])
    for wrong in (None, 5, cache, mem):
        with pytest.raises(TypeError):
            _kvcl.Comm._world(wrong)
        with pytest.raises(TypeError):
            _kvcl.Mem._alloc(wrong, 10, False, None)


def test_garbage_for_attach(ctx):
    good = ctx.alloc(4096).export()
    for garbage in (b"", b"x", bytes(1024), good[:-1], good[:10], bytes(len(good)), b"\xff" * len(good), good * 10):
        with pytest.raises(kvcl.KvclError):
            ctx.world.attach(0, garbage)
    for wrong in (None, "text", 5):
        with pytest.raises(TypeError):
            ctx.world.attach(0, wrong)


def test_bad_memory(ctx, tmp_path):
    for size in (0, -1, 2**64, 2**62, None, "1"):
        with pytest.raises(BAD):
            ctx.alloc(size)
    with pytest.raises(kvcl.KvclError):
        ctx.register(bytearray())
    with pytest.raises(kvcl.KvclError):
        ctx.map_file(tmp_path / "absent")
    with pytest.raises(BAD):
        ctx.map_file(None)
    mem = ctx.alloc(4096)
    for offset in (1, 4096, 2**63, 4090):
        with pytest.raises(kvcl.OutOfRange):
            mem.signal_wait(offset, 1, timeout=0.1)
    remote = ctx.world.attach(0, mem.export(write=True))
    for offset in (4096, 2**63, 2**64 - 1):
        with pytest.raises(kvcl.KvclError):
            remote.put(offset, b"x").wait(10)
    for signal in (5, (remote,), (None, 0, 1), (remote, -1, 1), (remote, 4, 1), (remote, 8, 2**64)):
        with pytest.raises(BAD):
            remote.put(0, b"x", signal=signal).wait(10)


def test_bad_contexts():
    for how in (dict(boot="carrier pigeon"), dict(path="tube"), dict(boot="self\0"), dict(rendezvous="tcp://nowhere"),
                dict(boot=5), dict(rank="1", size=2), dict(oob={}), dict(oob=5, rank=0, size=1),
                dict(oob=(1, 2, 3), rank=0, size=1), dict(oob={}, rank=2, size=1), dict(oob={}, rank=-1, size=1),
                dict(oob={}, rank=0, size=0), dict(secret_file="/absent/file", rank=0, size=1)):
        with pytest.raises(BAD):
            kvcl.Context(**how)


def test_communicators_of_nonsense(ctx):
    for ranks in ([], [1], [0, 0], [-1], ["0"], None, [2**40], 5):
        with pytest.raises(BAD):
            ctx.world.create(ranks)
    with pytest.raises(BAD):
        ctx.world.connect("not an address", timeout=0.5)
    with pytest.raises(kvcl.TimedOut):
        ctx.world.accept(timeout=0.05)
    with pytest.raises(BAD):
        ctx.world.split("red")


def test_objects_that_nobody_opened(layout):
    for cls in (_kvcl.Context, _kvcl.Comm, _kvcl.Cache, _kvcl.Mem, _kvcl.RemoteMem, _kvcl.Store, _kvcl.Queue):
        try:
            thing = cls()
        except TypeError:
            thing = object.__new__(cls)
        for name in dir(thing):
            if name.startswith("__"):
                continue
            try:
                value = getattr(thing, name)
                for args in ((), (1,), (1, 2), (None,) * 5, (None,) * 6):
                    try:
                        value(*args)
                    except BAD:
                        pass
            except BAD:
                pass
    try:
        region = object.__new__(_kvcl.Region)
    except TypeError:
        pass
    else:
        with pytest.raises(BufferError):
            memoryview(region)
    idle = kvcl.Request()
    assert idle.done() and idle.wait() is None and idle.block_status is None
    idle.cancel()


def test_a_request_carries_one_operation(ctx):
    request = kvcl.Request()
    ctx.world._pass_bytes(request, True, 0, 1, bytearray(1), None)
    with pytest.raises(ValueError):
        ctx.world._pass_bytes(request, True, 0, 1, bytearray(1), None)
    request.cancel()
    for wrong in (None, 5, _kvcl.Request):
        with pytest.raises(TypeError):
            ctx.world._pass_bytes(wrong, True, 0, 1, bytearray(1), None)


def test_a_failed_post_holds_nothing(ctx, cache):
    buf = bytearray(10)
    before = sys.getrefcount(cache)
    for _ in range(50):
        with pytest.raises(kvcl.UnknownRank):
            ctx.world.recv_bytes(7, 1, buf)
        with pytest.raises(kvcl.OutOfRange):
            ctx.world.send(0, 1, cache, [99])
    buf.extend(b"not held")
    gc.collect()
    assert sys.getrefcount(cache) == before
    cache.close()


def test_ids_that_change_while_read(ctx, cache):
    class Evil:
        def __index__(self):
            ids.clear()
            gc.collect()
            return 0

    ids = [Evil()] + list(range(4))
    ctx.world.get(0, cache, ids, range(8, 13)).wait(10)

    class Closer:
        def __index__(self):
            cache.close()
            return 0

    with pytest.raises(kvcl.Busy):
        ctx.world.get(0, cache, [Closer()], [0]).wait(10)
