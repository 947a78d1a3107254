"""Objects that are closed, dropped or still used: what must be held is held, what must not live is gone."""

import gc
import os
import subprocess
import sys
import threading
import time
import weakref

import pytest

import kvcl
from conftest import run_ranks


def test_closing_twice_and_using_closed_things(ctx, layout):
    cache = ctx.cache("main", layout)
    mem = ctx.alloc(4096)
    remote = ctx.world.attach(0, mem.export())
    comm = ctx.world.split(0)
    for thing in (cache, mem, remote, comm):
        thing.close()
        thing.close()
        assert thing.closed
    for call in (lambda: cache.read(0), lambda: cache.block_bytes, lambda: cache.bases, lambda: mem.view(),
                 lambda: mem.export(), lambda: len(mem), lambda: remote.get(0, bytearray(1)), lambda: comm.rank,
                 lambda: comm.barrier(), lambda: ctx.world.send(0, 1, cache, [0]), lambda: comm.send_bytes(0, 1, b"")):
        with pytest.raises(kvcl.Shutdown):
            call()
    for thing in (cache, mem, remote, comm):
        repr(thing)


def test_a_closed_context_takes_its_objects_along(layout):
    ctx = kvcl.Context(boot="self")
    cache, mem, world = ctx.cache("main", layout), ctx.alloc(4096), ctx.world
    pending = world.recv_bytes(0, 1, bytearray(3))
    ctx.close()
    ctx.close()
    assert cache.closed and mem.closed and world.closed and ctx.closed
    assert pending.status == kvcl.Status.ERR_CANCELED
    with pytest.raises(kvcl.Canceled):
        pending.wait()
    for call in (lambda: ctx.world, lambda: ctx.address, lambda: ctx.fileno(), lambda: ctx.alloc(1),
                 lambda: ctx.cache("x", layout), lambda: ctx.stats(), lambda: ctx.latency(), lambda: world.memory(0),
                 lambda: world.rank):
        with pytest.raises(kvcl.Shutdown):
            call()


def test_what_is_in_flight_keeps_its_objects(ctx, layout):
    cache = ctx.cache("main", layout)
    recv = ctx.world.recv(0, 1, cache, [1])
    with pytest.raises(kvcl.Busy):
        cache.close()
    gone = weakref.ref(cache)
    del cache
    gc.collect()
    assert gone() is not None
    recv.cancel()
    with pytest.raises(kvcl.Canceled):
        recv.wait(10)
    gc.collect()
    assert gone() is None
    assert ctx.cache("main", layout).name == "main"  # the name is free again


def test_a_dropped_request_goes_on_and_holds_its_buffer(ctx):
    buf = bytearray(3)
    ctx.world.recv_bytes(0, 1, buf)
    gc.collect()
    with pytest.raises(BufferError):
        buf.extend(b"x")
    ctx.world.send_bytes(0, 1, b"abc").wait(10)
    for _ in range(6000):
        ctx.progress()
        try:
            buf.extend(b"x")
            break
        except BufferError:
            time.sleep(0.01)
    assert buf == b"abcx"


def test_thousands_of_dropped_requests(ctx):
    for i in range(3000):
        ctx.world.recv_bytes(0, 1, bytearray(8))
        ctx.world.send_bytes(0, 1, b"x" * 8)
    buf = bytearray(8)
    recv = ctx.world.recv_bytes(0, 2, buf)
    ctx.world.send_bytes(0, 2, b"y" * 8).wait(10)
    recv.wait(10)


def test_a_dropped_context_finalizes(layout):
    ctx = kvcl.Context(boot="self")
    cache = ctx.cache("main", layout)
    gone = weakref.ref(ctx)
    del ctx
    gc.collect()
    assert gone() is not None  # the cache needs it
    cache.write(0, bytes(layout.block_bytes))
    del cache
    gc.collect()
    assert gone() is None


def test_views_of_library_memory(ctx, layout):
    cache = ctx.cache("main", layout)
    view = cache.bases[0]
    part = view[10:20]
    with pytest.raises(BufferError, match="memoryview"):
        cache.close()
    assert not cache.closed
    part[0] = 1
    del part
    cache.close()  # releases what it gave out
    with pytest.raises(ValueError):
        view[0]
    with pytest.raises(kvcl.Shutdown):
        cache.bases


def test_a_view_keeps_the_memory(layout):
    view = kvcl.Context(boot="self").cache("main", layout).bases[0]
    gc.collect()
    view[5] = 77
    assert view[5] == 77
    del view
    gc.collect()


def test_a_context_with_views_does_not_close(layout):
    ctx = kvcl.Context(boot="self")
    part = ctx.alloc(4096).view()[1:]
    with pytest.raises(BufferError):
        ctx.close()
    assert not ctx.closed
    part[0] = 1
    part.release()
    ctx.close()


def test_views_in_a_failing_body_do_not_hide_its_error(layout, capsys):
    def body():
        with kvcl.Context(boot="self") as ctx:
            part = ctx.alloc(4096).view()[1:]
            raise KeyError(part[0])

    with pytest.raises(KeyError):
        body()
    assert "stays open" in capsys.readouterr().err


def test_closing_while_another_thread_waits():
    ctx = kvcl.Context(boot="self")
    recv = ctx.world.recv_bytes(0, 1, bytearray(3))
    seen = []
    begun = threading.Event()

    def wait():
        begun.set()
        try:
            recv.wait(30)
        except kvcl.KvclError as error:
            seen.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert begun.wait(20)
    ctx.close()
    thread.join(20)
    assert ctx.closed and isinstance(seen[0], kvcl.Canceled)


def test_closing_while_others_post():
    ctx = kvcl.Context(boot="self")
    world = ctx.world
    stop = threading.Event()
    rounds = threading.Semaphore(0)
    odd = []

    def work(tag):
        while not stop.is_set():
            try:
                recv = world.recv_bytes(0, tag, bytearray(8))
                world.send_bytes(0, tag, b"x" * 8).wait(10)
                recv.wait(10)
                rounds.release()
            except (kvcl.Shutdown, kvcl.Canceled, kvcl.TimedOut):
                return
            except BaseException as error:  # noqa: B902
                odd.append(error)
                return

    threads = [threading.Thread(target=work, args=(tag,)) for tag in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(40):
        assert rounds.acquire(timeout=20)
    ctx.close()
    stop.set()
    for thread in threads:
        thread.join(20)
    assert not odd and ctx.closed


def test_several_contexts_in_one_process():
    contexts = [kvcl.Context(boot="self") for _ in range(4)]
    caches = [ctx.cache("main", kvcl.Layout.bytes(4, 64)) for ctx in contexts]
    with pytest.raises(ValueError, match="another context"):
        contexts[0].world.send(0, 1, caches[1], [0])
    pending = [ctx.world.recv_bytes(0, 1, bytearray(1)) for ctx in contexts[:2]]
    with pytest.raises(ValueError, match="different contexts"):
        kvcl.wait_any(pending, 1)
    for ctx in contexts:
        ctx.close()


def run(code, **env):
    return subprocess.run([sys.executable, "-X", "faulthandler", "-c", code], capture_output=True, text=True,
                          timeout=50, env=dict(os.environ, **env))


@pytest.mark.parametrize("code", [
    "import kvcl; c = kvcl.Context(boot='self')",
    "import kvcl; c = kvcl.Context(boot='self'); v = c.alloc(4096).view()[1:]\n"
    "r = c.world.recv_bytes(0, 1, bytearray(3))",
    "import kvcl, sys; c = kvcl.Context(boot='self'); r = c.world.recv_bytes(0, 1, bytearray(3)); sys.exit(0)",
    "import kvcl, threading\nc = kvcl.Context(boot='self'); r = c.world.recv_bytes(0, 1, bytearray(3))\n"
    "def f():\n try: r.wait()\n except kvcl.Canceled: pass\nthreading.Thread(target=f, daemon=True).start()",
    "import kvcl, gc; c = kvcl.Context(boot='self'); c.me = c; c.cache('m', kvcl.Layout.bytes(4, 64))\n"
    "del c; gc.collect()",
], ids=["nothing closed", "views and requests", "sys.exit", "daemon thread", "cycle"])
def test_leaving_python_without_closing(code):
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert "Fatal" not in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_ctrl_c_ends_a_wait():
    done = run("import kvcl, os, signal, threading, time\n"
               "signal.signal(signal.SIGINT, signal.default_int_handler)  # the shell's '&' has it ignored\n"
               "c = kvcl.Context(boot='self'); r = c.world.recv_bytes(0, 1, bytearray(3))\n"
               "timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))\n"
               "try:\n timer.start()\n r.wait()\n"  # a busy machine may send it before the wait
               "except KeyboardInterrupt: print('interrupted', r.status.name)\nc.close()")
    assert done.returncode == 0 and done.stdout == "interrupted INPROGRESS\n", done.stderr


# ---- the caller's own store ----

def test_ranks_meet_through_a_dict():
    def body(ctx):
        world = ctx.world
        right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
        buf = bytearray(8)
        recv = world.recv_bytes(left, 1, buf)
        world.send_bytes(right, 1, world.rank.to_bytes(8, "big")).wait(20)
        recv.wait(20)
        assert int.from_bytes(buf, "big") == left
        return world.allgather(bytes([world.rank]))

    assert run_ranks(3, body) == [[b"\0", b"\1", b"\2"]] * 3


def test_ranks_meet_through_a_store_like_torchs():
    class Store:
        def __init__(self):
            self.data, self.changed = {}, threading.Condition()

        def set(self, key, value):
            assert isinstance(key, str) and isinstance(value, bytes)
            with self.changed:
                self.data[key] = value
                self.changed.notify_all()

        def get(self, key):
            with self.changed:
                if not self.changed.wait_for(lambda: key in self.data, 20):
                    raise TimeoutError(key)
                return self.data[key]

    store, sizes = Store(), []

    def one(rank):
        with kvcl.Context(oob=store, rank=rank, size=2) as ctx:
            ctx.world.barrier(20)
            sizes.append(ctx.size)
            ctx.world.barrier(20)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    assert sizes == [2, 2]


def test_both_sides_of_a_mismatch_name_the_rank():
    def body(ctx):
        with ctx.cache("blocks", kvcl.Layout.bytes(4, 64)) as cache:
            with pytest.raises(kvcl.Truncated) as caught:
                if ctx.rank == 0:
                    ctx.world.send(1, 5, cache, [0, 1]).wait(20)
                else:
                    ctx.world.recv(kvcl.ANY_SOURCE, 5, cache, [0]).wait(20)
            ctx.world.barrier(20)
        return str(caught.value)

    sent, received = run_ranks(2, body)
    assert sent.startswith("kvcl_send of tag 5 to rank 1, "), sent
    assert received.startswith("kvcl_recv of tag 5 from rank 0 into 1 block (0)"), received
    assert "select as many blocks on both sides" in received, received


def test_an_exception_of_the_store_is_the_cause():
    def broken(*args):
        raise RuntimeError("the store is down")

    with pytest.raises(kvcl.KvclError) as caught:
        kvcl.Context(oob=(broken, broken, broken), rank=0, size=2)
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("value", [None, 5, "text", b"", b"garbage", bytes(100000)], ids=repr)
def test_a_store_that_answers_nonsense(value):
    with pytest.raises(kvcl.KvclError):
        kvcl.Context(oob=(lambda k, v: None, lambda k: value, lambda: None), rank=0, size=2).world.barrier(1)


def test_collectives_among_threads(layout):
    def body(ctx):
        world = ctx.world
        cache = ctx.cache("main", layout)
        if world.rank == 1:
            for i in range(4):
                cache.write(i, bytes([i + 1]) * layout.block_bytes)
        world.bcast(1, cache, range(4, 8) if world.rank != 1 else range(4)).wait(20)
        at = 4 if world.rank != 1 else 0
        assert [cache.read(at + i)[0] for i in range(4)] == [1, 2, 3, 4]
        buf = bytearray(b"root" if world.rank == 2 else 4)
        world.bcast_bytes(2, buf).wait(20)
        assert buf == b"root"
        half = world.split(world.rank % 2, key=-world.rank)
        assert (half.size, half.rank) == {0: (2, 1), 1: (1, 0), 2: (2, 0)}[world.rank]
        gathered = half.allgather(bytes([world.rank]))
        world.barrier()
        return gathered

    assert run_ranks(3, body) == [[b"\2", b"\0"], [b"\1"], [b"\2", b"\0"]]


def test_two_jobs_connect(tmp_path):
    addresses, results, both = {}, [], threading.Barrier(2)
    secret = tmp_path / "secret"
    secret.write_bytes(b"both jobs know it, 32 bytes of it")
    secret.chmod(0o600)

    def job(name, connects):
        with kvcl.Context(boot="self", secret_file=str(secret)) as ctx:
            addresses[name] = ctx.address
            both.wait(20)
            inter = ctx.world.connect(addresses["b"], 20) if connects else ctx.world.accept(20)
            assert inter.is_inter and inter.size == 1
            buf = bytearray(1)
            recv = inter.recv_bytes(0, 1, buf)
            inter.send_bytes(0, 1, name.encode()).wait(20)
            recv.wait(20)
            results.append(bytes(buf))
            both.wait(20)  # the other job has what it was sent

    threads = [threading.Thread(target=job, args=("a", True)), threading.Thread(target=job, args=("b", False))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    assert sorted(results) == [b"a", b"b"]
