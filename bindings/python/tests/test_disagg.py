"""kvcl._disagg, the engine below SGLang's prefill and decode, and kvcl.sglang_plugin: what needs no SGLang."""

import ctypes
import enum
import importlib.metadata
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from test_device import on_a_device

import kvcl
from kvcl import _disagg, sglang_plugin
from kvcl._disagg import Engine, page_mismatch
from kvcl.compat.mooncake_engine import name_split

BYTES = 1 << 16


@pytest.fixture(autouse=True)
def secret(monkeypatch, tmp_path):
    path = tmp_path / "secret"
    path.write_text("a secret of 24 letters..")
    path.chmod(0o600)
    monkeypatch.setenv("KVCL_SECRET_FILE", str(path))
    monkeypatch.delenv("KVCL_RENDEZVOUS", raising=False)


class Side:
    """An engine with two registered pieces of memory."""

    def __init__(self):
        self.engine = Engine("127.0.0.1")
        self.memory = [(ctypes.c_ubyte * BYTES)(*os.urandom(BYTES)) for _ in range(2)]
        self.bases = [ctypes.addressof(one) for one in self.memory]
        assert self.engine.batch_register(self.bases, [BYTES, BYTES]) == 0
        self.session = self.engine.get_session_id()


@pytest.fixture
def sides():
    a, b = Side(), Side()
    yield a, b
    a.engine.close()
    b.engine.close()


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_pieces_are_written_and_others_are_not(sides):
    a, b = sides
    before = [bytes(one) for one in b.memory]
    here = [a.bases[i % 2] + 300 * i for i in range(40)]
    there = [b.bases[(i // 2) % 2] + 500 * i for i in range(40)]
    sizes = [i + 1 for i in range(40)]
    assert a.engine.batch_transfer_sync(b.session, here, there, sizes) == 0 and a.engine.alive(b.session)
    wanted = [bytearray(one) for one in before]
    for i, size in enumerate(sizes):
        wanted[(i // 2) % 2][500 * i:500 * i + size] = bytes(a.memory[i % 2][300 * i:300 * i + size])
    assert [bytes(one) for one in b.memory] == [bytes(one) for one in wanted]


def test_what_is_not_registered_is_refused_with_a_reason(sides):
    a, b = sides
    before = bytes(b.memory[1])
    assert a.engine.batch_transfer_sync(b.session, a.bases, [b.bases[1], b.bases[0] + 1], [BYTES, BYTES]) == -1
    assert f"{b.bases[0] + 1:#x} are not registered there" in a.engine.why and bytes(b.memory[1]) == before
    assert a.engine.take_why() and not a.engine.why
    assert a.engine.alive(b.session)
    assert a.engine.batch_transfer_sync(b.session, a.bases, b.bases, [8]) == -1 and "lengths" in a.engine.why
    with pytest.raises(RuntimeError, match="0 bytes at"):
        a.engine.batch_register([a.bases[0]], [0])
    assert a.engine.batch_transfer_sync("127.0.0.1:9", a.bases, b.bases, [8, 8]) == -1
    assert "127.0.0.1:9" in a.engine.why and not a.engine.alive("127.0.0.1:9")


def test_memory_that_is_registered_anew_is_found(sides):
    a, b = sides
    assert a.engine.meet(b.session) == ""
    assert a.engine.batch_transfer_sync(b.session, a.bases[:1], b.bases[:1], [BYTES]) == 0
    assert b.engine.batch_deregister(b.bases) == 0
    assert a.engine.batch_transfer_sync(b.session, a.bases[:1], b.bases[:1], [BYTES]) == -1
    b.engine.batch_register(b.bases, [BYTES, BYTES])
    ctypes.memset(b.bases[0], 0, BYTES)
    assert a.engine.meet(b.session) == ""
    assert a.engine.batch_transfer_sync(b.session, a.bases[:1], b.bases[:1], [BYTES]) == 0
    assert bytes(b.memory[0]) == bytes(a.memory[0])
    assert a.engine.meet("127.0.0.1:9")


def test_no_engine_where_it_cannot_listen():
    with pytest.raises(RuntimeError, match="no engine at 192.0.2.1"):
        Engine("192.0.2.1")


PREFILL = """
import sys
from kvcl._disagg import Engine
engine = Engine("127.0.0.1")
engine.introduce(sys.argv[2])
assert engine.meet(sys.argv[1]) == ""
print("met", flush=True)
sys.stdin.read()
"""


def prefill(session, name):
    child = subprocess.Popen([sys.executable, "-c", PREFILL, session, name], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "met\n"
    return child


def end(child):
    child.kill()
    child.wait()
    child.stdin.close()
    child.stdout.close()


def test_the_end_of_a_peer_that_introduced_itself(sides, monkeypatch):
    _, b = sides
    lost = []

    def report(name):
        lost.append(name)
        raise ValueError("of the program: it ends no thread")

    b.engine.watch(report)
    one, two = prefill(b.session, "10.0.0.1:5"), prefill(b.session, "10.0.0.2:5")
    until(lambda: sorted(b.engine._transfers._known.values()) == ["10.0.0.1:5", "10.0.0.2:5"])
    end(one)
    until(lambda: lost)
    assert lost == ["10.0.0.1:5"]
    again = prefill(b.session, "10.0.0.2:5")  # connected twice: the first end is not its own
    until(lambda: len(b.engine._transfers._known) == 2)
    end(two)
    until(lambda: len(b.engine._transfers._known) == 1)
    until(lambda: not b.engine._transfers._ended)
    assert lost == ["10.0.0.1:5"]
    end(again)
    until(lambda: len(lost) == 2)
    assert lost[1] == "10.0.0.2:5"


def test_sizes_of_pages():
    assert page_mismatch([8, 8], [8, 8], 2, True) is None and page_mismatch([8, 8], [], 2, True) is None
    assert page_mismatch([8, 8], [4, 4], 2, False) is None  # other heads
    assert page_mismatch([8, 8], [8, 8, 8, 8], 4, True) is None  # other layers
    assert "buffer 1 has 8 bytes here and 16 bytes" in page_mismatch([8, 8], [8, 16], 2, True)
    assert "3 buffers" in page_mismatch([8, 8], [8, 8], 3, True)


def test_memory_of_a_device(tmp_path):
    on_a_device(tmp_path, """
        from kvcl._disagg import Engine
        a, b = Engine("127.0.0.1", device=True), Engine("127.0.0.1", device=True)
        n = 4096
        near, far, host = malloc(n), malloc(n), (ctypes.c_ubyte * n)()
        aux = ctypes.addressof(host)
        behind(near, n)[:] = bytes(range(256)) * 16
        a.batch_register([near], [n])
        b.batch_register([far, aux], [n, n])
        assert a.batch_transfer_sync(b.get_session_id(), [near, near], [far + 1024, aux], [1024, n]) == 0
        assert behind(far, n).raw == bytes(1024) + bytes(range(256)) * 4 + bytes(2048)
        assert bytes(host) == behind(near, n).raw
        other = malloc(n)  # a device's memory that is not registered is never touched by the processor
        assert a.batch_transfer_sync(b.get_session_id(), [other], [far], [n]) == -1 and "here" in a.why
        try:
            a.batch_register([other], [2 * n + (1 << 30)])
        except RuntimeError as error:
            assert "cannot be registered" in str(error)
        else:
            raise AssertionError("more was registered than there is")
        a.close()
        b.close()
    """)


def test_without_a_driver_devices_are_refused():
    try:
        ctypes.CDLL("libcuda.so.1")
        pytest.skip("there is a driver here")
    except OSError:
        pass
    engine = Engine("127.0.0.1", device=True)
    host = (ctypes.c_ubyte * 64)()
    with pytest.raises(RuntimeError, match="cannot be registered"):
        engine.batch_register([ctypes.addressof(host)], [64])
    engine.close()


def test_names():
    assert [name_split(one) for one in ("h", "h:1", "::1", "[::1]", "[::1]:1", "h:1:npu_0", "10.0.0.1:22")] == [
        ("h", ""), ("h", "1"), ("::1", ""), ("[::1]", ""), ("[::1]", "1"), ("h:1:npu_0", ""), ("10.0.0.1", "22")]


# ---- the plugin ----


def test_a_member_is_added_to_an_enumeration():
    Backend = enum.Enum("Backend", {"NIXL": "nixl", "FAKE": "fake"})
    sglang_plugin._add_member(Backend, "KVCL", "kvcl")
    one = Backend("kvcl")
    assert one is Backend.KVCL is Backend["KVCL"] and isinstance(one, Backend) and one.value == "kvcl"
    assert list(Backend)[-1] is one and len(Backend) == 3 and one != Backend.NIXL and hash(one) == hash(Backend.KVCL)
    assert Backend("nixl") is Backend.NIXL


def test_other_backends_are_left_to_sglang():
    asked = []
    original = lambda *what: asked.append(what) or "theirs"  # noqa: E731
    nixl, kvcl_, sender = (SimpleNamespace(value=value) for value in ("nixl", "kvcl", "sender"))
    kvargs = SimpleNamespace(value="kvargs")
    assert sglang_plugin._class_of(original, nixl, sender) == "theirs"
    assert sglang_plugin._class_of(original, kvcl_, kvargs) == "theirs"
    assert asked == [(nixl, sender), (kvcl_, kvargs)]


def test_the_folder_with_the_entry_point(tmp_path):
    folder = tmp_path / "plugin"
    for _ in range(2):
        subprocess.run([sys.executable, "-m", "kvcl.sglang_plugin", str(folder)], check=True, capture_output=True)
    found = [dist for dist in importlib.metadata.distributions(path=[str(folder)])]
    assert [dist.metadata["Name"] for dist in found] == ["kvcl-sglang"]
    entry, = found[0].entry_points
    assert (entry.group, entry.name) == ("sglang.srt.plugins", "kvcl") and entry.load() is sglang_plugin.register
    for wrong in ([], ["--help"], ["a", "b"]):
        done = subprocess.run([sys.executable, "-m", "kvcl.sglang_plugin", *wrong], capture_output=True, text=True)
        assert done.returncode != 0 and "FOLDER" in done.stderr


def test_the_wheel_has_the_entry_point():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wheel/kvcl_wheel.py")
    with open(path) as file:
        text = file.read()
    assert f"[{sglang_plugin.GROUP}]\\n{sglang_plugin.ENTRY}\\n" in text
