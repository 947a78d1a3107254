"""Device memory: tensors of a device, which nobody here may touch, on a driver without one (test/unit/fake_libcuda.c).

The driver is found by its name when a context first needs it, so each test that uses it is a process of its own.
"""

import ctypes
import os
import subprocess
import sys
import textwrap

import pytest

import kvcl

LAYOUT = kvcl.Layout(layers=1, blocks=8, tokens=2, heads=2, head_dim=32, elem_bytes=2)


class Array:
    """An array on a device with __cuda_array_interface__ alone."""

    def __init__(self, address, nbytes, **other):
        self.__cuda_array_interface__ = dict(shape=(nbytes // 2,), typestr="<f2", data=(address, False), strides=None,
                                             version=3)
        self.__cuda_array_interface__.update(other)


FAKE = os.path.join(os.environ.get("top_builddir", "."), "test", "unit", ".libs", "libfakecuda.so")

HELPERS = """
import ctypes, sys
import kvcl
sys.path.insert(0, {tests!r})
from test_device import Array, LAYOUT

cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuMemAlloc_v2.argtypes = [ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t]
cuda.fake_cuda_bytes.restype = cuda.fake_cuda_stream.restype = ctypes.c_void_p
for name in ("cuCtxPushCurrent_v2", "fake_cuda_bytes", "fake_cuda_hold", "fake_cuda_release"):
    getattr(cuda, name).argtypes = [ctypes.c_void_p]
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxPushCurrent_v2(context) == 0


def malloc(nbytes):
    address = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), nbytes) == 0
    return address.value


def behind(address, nbytes):
    return (ctypes.c_char * nbytes).from_address(cuda.fake_cuda_bytes(address))
"""


def on_a_device(tmp_path, body):
    if not os.path.exists(FAKE):
        pytest.skip("the driver without a device was not built (--without-cuda)")
    os.symlink(FAKE, tmp_path / "libcuda.so.1")
    env = dict(os.environ, LD_LIBRARY_PATH=f"{tmp_path}:{os.environ.get('LD_LIBRARY_PATH', '')}")
    program = HELPERS.format(tests=os.path.dirname(os.path.abspath(__file__))) + textwrap.dedent(body)
    done = subprocess.run([sys.executable, "-X", "dev", "-c", program], env=env, timeout=60, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr


def test_collectives_of_a_device(tmp_path):
    """On one rank: the kinds of the buffers and the stream reach the library, by the host and with lengths."""
    on_a_device(tmp_path, """
        import os
        os.environ["KVCL_NCCL"] = "no"
        with kvcl.Context() as ctx:
            a, b = malloc(64), malloc(64)
            behind(a, 64)[:] = bytes(range(64))
            ctx.world.all_gather_into(Array(a, 64), Array(b, 64)).wait()
            assert behind(b, 64).raw == bytes(range(64))
            host = bytearray(64)
            ctx.world.all_to_all(Array(b, 64), host, lengths=[64], out_lengths=[64]).wait()
            assert host == bytes(range(64))
            stream = cuda.fake_cuda_stream(0)
            cuda.fake_cuda_hold(stream)
            request = ctx.world.all_reduce(Array(a, 64), dtype="u32", stream=stream)
            assert not request.done()
            cuda.fake_cuda_release(stream)
            request.wait()
            try:
                ctx.world.bcast_bytes(0, Array(a, 65536)).wait()
            except kvcl.InvalidParam as error:
                assert "the allocation on device 0 has 4096" in str(error), error
            else:
                raise AssertionError("a length beyond the allocation")
    """)


def test_a_cache_over_a_device(tmp_path):
    on_a_device(tmp_path, """
        with kvcl.Context() as ctx:
            n = LAYOUT.base_bytes
            a, b = malloc(n), malloc(n)
            one, two = (ctx.cache("one", LAYOUT, Array(a, n), writable=True),
                        ctx.cache("two", LAYOUT, Array(b, n), writable=True))
            host = ctx.cache("host", LAYOUT, bytearray(n), writable=True)
            assert one.on_device and two.on_device and not host.on_device
            for block in range(8):
                one.write(block, bytes([block + 1]) * one.block_bytes)
            assert behind(a, n).raw.count(b"\\x03") == one.block_bytes
            ctx.world.get(0, two, list(range(8)), list(range(8)), remote_cache="one").wait(10)
            assert behind(b, n).raw == behind(a, n).raw
            ctx.world.put(0, two, [7], [0], remote_cache="host").wait(10)
            assert host.read(0) == b"\\x08" * host.block_bytes == two.read(7)
            try:
                one.bases
            except BufferError:
                pass
            else:
                raise AssertionError("a device's memory can be looked at")
            mem = ctx.register(Array(a, n))
            buf = bytearray(n)
            ctx.world.attach(0, mem.export()).get(0, buf).wait(10)
            assert bytes(buf) == behind(a, n).raw
            try:
                mem.view()
            except BufferError:
                pass
            else:
                raise AssertionError("a device's memory can be looked at")
    """)


def test_after_a_stream(tmp_path):
    on_a_device(tmp_path, """
        class Stream:
            def __init__(self, handle):
                self.cuda_stream = handle

        with kvcl.Context() as ctx:
            n = LAYOUT.base_bytes
            a, b = malloc(n), malloc(n)
            one, two = (ctx.cache("one", LAYOUT, Array(a, n), writable=True),
                        ctx.cache("two", LAYOUT, Array(b, n), writable=True))
            stream = cuda.fake_cuda_stream(0)
            cuda.fake_cuda_hold(stream)
            requests = [ctx.world.put(0, one, [1], [1], remote_cache="two", stream=Stream(stream)),
                        ctx.world.get(0, two, [2], [2], remote_cache="one", stream=stream),
                        ctx.world.send(0, 5, one, [3], stream=stream),
                        ctx.world.recv(0, 5, two, [3], stream=stream)]
            assert not any(r.test() for r in requests)
            one.write(1, b"x" * one.block_bytes)
            cuda.fake_cuda_release(stream)
            for request in requests:
                request.wait(10)
            assert two.read(1) == b"x" * one.block_bytes
            try:
                ctx.world.put(0, one, [1], [1], stream="none")
            except TypeError:
                pass
            else:
                raise AssertionError("a string is a stream")
    """)


def test_without_a_driver_it_is_refused(ctx):
    try:
        ctypes.CDLL("libcuda.so.1")
        pytest.skip("there is a driver here")
    except OSError:
        pass
    raw = ctypes.create_string_buffer(LAYOUT.base_bytes)
    with pytest.raises(kvcl.Unsupported):
        ctx.cache("cuda", LAYOUT, Array(ctypes.addressof(raw), LAYOUT.base_bytes))
    with pytest.raises(kvcl.Unsupported):
        ctx.register(Array(ctypes.addressof(raw), LAYOUT.base_bytes))
    with pytest.raises(kvcl.Unsupported):
        ctx.world.send(0, 1, ctx.cache("host", LAYOUT), [0], stream=1234)


@pytest.mark.parametrize("other", [dict(shape=3), dict(shape=(1, -1)), dict(typestr="x"), dict(typestr=None),
                                   dict(data=5), dict(data=(4096, True)), dict(strides=(2, 2)), dict(strides=(-2,)),
                                   dict(shape=("a",)), dict(shape=(1 << 62, 4, 4))])
def test_bad_arrays(ctx, other):
    with pytest.raises((BufferError, TypeError)):
        ctx.cache("bad", LAYOUT, Array(4096, LAYOUT.base_bytes, **other))


def test_what_takes_host_memory_only(ctx):
    array = Array(4096, 4096)
    for call in (lambda: ctx.world.send_bytes(0, 1, array), lambda: ctx.world.recv_bytes(0, 1, array),
                 lambda: ctx.cache("host", LAYOUT).write(0, array)):
        with pytest.raises(BufferError):
            call()
    with pytest.raises(ValueError):
        ctx.cache("short", LAYOUT, Array(4096, 64))
