"""kvcl.compat.mooncake_engine: engines that meet by name, and read and write each other's registered memory."""

import ctypes
import os
import socket
import subprocess
import sys
import time

import pytest

import kvcl
from kvcl.compat import mooncake_engine as module
from kvcl.compat.mooncake_engine import TransferEngine, TransferNotify, TransferOpcode

BYTES = 1 << 16


class Side:
    """An engine with two registered pieces of memory."""

    def __init__(self, host="127.0.0.1"):
        self.engine = TransferEngine()
        assert self.engine.initialize(host, "P2PHANDSHAKE", "tcp", "") == 0
        self.name = f"{host}:{self.engine.get_rpc_port()}"
        self.memory = [(ctypes.c_ubyte * BYTES)(*os.urandom(BYTES)) for _ in range(2)]
        self.bases = [ctypes.addressof(one) for one in self.memory]
        assert self.engine.batch_register_memory(self.bases, [BYTES, BYTES]) == 0

    def bytes(self, which, at, size):
        return bytes(self.memory[which][at:at + size])


@pytest.fixture
def sides(monkeypatch, tmp_path):
    path = tmp_path / "secret"
    path.write_text("a secret of 24 letters..")
    path.chmod(0o600)
    monkeypatch.setenv("KVCL_SECRET_FILE", str(path))
    monkeypatch.delenv("KVCL_RENDEZVOUS", raising=False)
    a, b = Side(), Side()
    yield a, b
    a.engine.close()
    b.engine.close()


def test_one_piece_is_written_and_read(sides):
    a, b = sides
    assert a.engine.get_first_buffer_address(b.name) == b.bases[0]
    assert a.engine.get_first_buffer_address(a.name) == a.bases[0]
    assert a.engine.transfer_sync_write(b.name, a.bases[0] + 10, b.bases[1] + 20, 1000) == 0
    assert b.bytes(1, 20, 1000) == a.bytes(0, 10, 1000)
    assert a.engine.transfer_sync_read(b.name, a.bases[1], b.bases[0] + 5, 3000) == 0
    assert a.bytes(1, 0, 3000) == b.bytes(0, 5, 3000)
    other = ctypes.create_string_buffer(100)  # memory that is not registered here
    assert b.engine.transfer_sync_read(a.name, ctypes.addressof(other), a.bases[0], 100) == 0
    assert other.raw == a.bytes(0, 0, 100)


def test_batches_over_several_memories(sides):
    a, b = sides
    here = [a.bases[i % 2] + 100 * i for i in range(50)]
    there = [b.bases[(i // 3) % 2] + 200 * i for i in range(50)]
    sizes = [i + 1 for i in range(50)]
    assert a.engine.batch_transfer_sync_write(b.name, here, there, sizes) == 0
    for i in range(50):
        assert b.bytes((i // 3) % 2, 200 * i, i + 1) == a.bytes(i % 2, 100 * i, i + 1)
    wanted = [b.bytes((i // 3) % 2, 200 * i, i + 1) for i in range(50)]
    ctypes.memset(a.bases[0], 0, BYTES)
    ctypes.memset(a.bases[1], 0, BYTES)
    batch = a.engine.batch_transfer_async_read(b.name, here, there, sizes)
    assert batch > 0 and a.engine.get_batch_transfer_status([batch]) == 0
    assert [a.bytes(i % 2, 100 * i, i + 1) for i in range(50)] == wanted
    assert a.engine.get_batch_transfer_status([batch]) == -1  # it is forgotten
    one = a.engine.transfer_submit_write(b.name, here[0], there[0], 1)
    while (status := a.engine.transfer_check_status(one)) == 0:
        time.sleep(0.001)
    assert status == 1
    assert a.engine.batch_transfer_sync(b.name, [], [], [], TransferOpcode.READ) == 0
    assert a.engine.batch_transfer_sync_read(b.name, here, there[:3], sizes) == -1


def test_a_notification_arrives_after_its_bytes(sides):
    a, b = sides
    assert b.engine.get_notifies() == []
    for pieces in (1, 2):  # in one memory, and in two
        assert a.engine.batch_transfer_sync(b.name, a.bases[:pieces], b.bases[:pieces], [500] * pieces,
                                            TransferOpcode.WRITE, TransferNotify("n\u00e4me", "done")) == 0
        end = time.monotonic() + 60
        while not (notes := b.engine.get_notifies()):
            assert time.monotonic() < end
            time.sleep(0.001)
        assert [(note.name, note.msg) for note in notes] == [("n\u00e4me", "done")]
        assert b.bytes(pieces - 1, 0, 500) == a.bytes(pieces - 1, 0, 500)


def test_memory_that_comes_and_goes(sides):
    a, b = sides
    more = b.engine.allocate_managed_buffer(4096)
    assert more != 0 and a.engine.transfer_sync_write(b.name, a.bases[0], more, 4096) == 0
    assert b.engine.read_bytes_from_buffer(more, 4096) == a.bytes(0, 0, 4096)
    assert b.engine.write_bytes_to_buffer(more, b"hello", 5) == 0 and ctypes.string_at(more, 5) == b"hello"
    assert a.engine.transfer_sync_write(b.name, a.bases[0], more + 1, 4096) == -1  # beyond its end
    assert b.engine.free_managed_buffer(more, 4096) == 0
    assert a.engine.transfer_sync_write(b.name, a.bases[0], more, 10) == -1
    before = b.bytes(0, 0, 10)
    assert b.engine.unregister_memory(b.bases[0]) == 0 and b.engine.unregister_memory(b.bases[0]) == -1
    assert a.engine.transfer_sync_write(b.name, a.bases[0], b.bases[0], 10) == -1
    assert b.bytes(0, 0, 10) == before
    assert a.engine.transfer_sync_write(b.name, a.bases[0], b.bases[1], 10) == 0


def written(engine, how, name, here, there):
    """Write by the calls that wait, or by those that do not: 0, or -1."""
    if how == "waits":
        return engine.transfer_sync_write(name, here, there, BYTES)
    batch = engine.batch_transfer_async_write(name, [here], [there], [BYTES])
    if batch == 0:
        return -1
    if how == "asked at the end":
        return engine.get_batch_transfer_status([batch])
    until = time.monotonic() + 60
    while (state := engine.transfer_check_status(batch)) == 0:
        assert time.monotonic() < until
    return 0 if state == 1 else -1


@pytest.mark.parametrize("how", ["waits", "asked at the end", "polled"])
def test_memory_that_is_registered_anew_is_found_after_a_failure(sides, how):
    a, b = sides
    assert written(a.engine, how, b.name, a.bases[0], b.bases[0]) == 0
    assert b.engine.unregister_memory(b.bases[0]) == 0 and b.engine.register_memory(b.bases[0], BYTES) == 0
    ctypes.memset(b.bases[0], 0, BYTES)
    assert written(a.engine, how, b.name, a.bases[0], b.bases[0]) == -1  # what it knew is stale
    assert b.bytes(0, 0, BYTES) == bytes(BYTES)
    assert written(a.engine, how, b.name, a.bases[0], b.bases[0]) == 0
    assert b.bytes(0, 0, BYTES) == a.bytes(0, 0, BYTES)
    assert a.engine.transfer_check_status(1234) == -1


def test_an_address_of_ipv6(sides):
    a, _ = sides
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this host has no ::1")
    b = Side("[::1]")
    assert a.engine.transfer_sync_write(b.name, a.bases[0], b.bases[1], 100) == 0
    assert b.bytes(1, 0, 100) == a.bytes(0, 0, 100)
    b.engine.close()


def test_a_part_that_cannot_be_posted_ends_the_others(sides, monkeypatch):
    a, b = sides
    assert a.engine.send_probe(b.name) == 0
    posted, peer = [], a.engine._peers[b.name]
    first, second = peer.regions.all

    class Fails:
        def put_vec(self, *given, **more):
            raise kvcl.NoSpace("no room")

    class Tells:
        def put_vec(self, *given, **more):
            posted.append(first.memory.put_vec(*given, **more))
            return posted[-1]

    peer.regions = module.Regions([module.Region(first.base, first.size, Tells()),
                                   module.Region(second.base, second.size, Fails())])
    there = [first.base, second.base]
    assert a.engine.batch_transfer_sync_write(b.name, a.bases, there, [BYTES, BYTES]) == -1
    assert len(posted) == 1 and posted[0].done()


def test_peers_that_are_not_there(sides):
    a, b = sides
    a.engine.timeout = 2.0
    for name in ("127.0.0.1:9", "no such name"):
        assert a.engine.transfer_sync_read(name, a.bases[0], b.bases[0], 10) == -1
        assert a.engine.batch_transfer_async_write(name, [a.bases[0]], [b.bases[0]], [10]) == 0
        assert a.engine.get_first_buffer_address(name) == 0 and a.engine.send_probe(name) != 0
    a.engine.timeout = 60.0
    assert a.engine.send_probe(b.name) == 0
    a.engine.timeout = 2.0
    b.engine.close()
    assert a.engine.transfer_sync_read(b.name, a.bases[0], b.bases[0], 10) == -1
    with pytest.raises(AttributeError, match="warmup_efa_segment"):
        a.engine.warmup_efa_segment
    assert a.engine.initialize("127.0.0.1", "", "tcp", "") == -1 and TransferEngine().register_memory(1, 1) == -1


def test_an_engine_is_initialized_again_after_a_failure_and_after_its_end(sides):
    a, _ = sides
    one = TransferEngine()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert one.initialize(f"127.0.0.1:{taken.getsockname()[1]}", "a metadata server") == -1
    for _ in range(2):
        assert one.initialize("127.0.0.1") == 0
        base = one.allocate_managed_buffer(4096)
        name = f"127.0.0.1:{one.get_rpc_port()}"
        assert base and a.engine.get_first_buffer_address(name) == base
        one.close()


def test_bytes_of_peers_are_checked():
    rows = [(4096, 100, b"abc"), (1 << 60, 7, b"")]
    packed = module.table_pack(rows)
    assert module.table_read(packed) == rows and module.table_read(module.table_pack([])) == []
    for wrong in (packed[:-1], packed + b"x", packed[:30], b"", b"\xff" * 4, b"\xff" * 40):
        with pytest.raises(ValueError):
            module.table_read(wrong)
    note = module.note_read(module.note_pack("a", "b"))
    assert (note.name, note.msg) == ("a", "b")
    for wrong in (b"", b"N", b"N\xff\xff\xff\xffx"):
        assert module.note_read(wrong) is None
    regions = module.Regions([module.Region(100, 10, "a"), module.Region(50, 10, "b")])
    assert [regions.holding(*one).memory for one in ((100, 10), (50, 0), (59, 1))] == ["a", "b", "b"]
    assert [regions.holding(*one) for one in ((49, 1), (60, 1), (105, 6), (0, 0))] == [None] * 4


TARGET = """
import ctypes, sys, time
from kvcl.compat.mooncake_engine import TransferEngine
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
base = engine.allocate_managed_buffer(1 << 16)
engine.write_bytes_to_buffer(base, b"of another process", 18)
print(engine.get_rpc_port(), flush=True)
sys.stdin.read()
"""


def test_an_engine_of_another_process_and_its_end(sides):
    a, _ = sides
    other = subprocess.Popen([sys.executable, "-c", TARGET], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    name = f"127.0.0.1:{int(other.stdout.readline())}"
    there = a.engine.get_first_buffer_address(name)
    assert there and a.engine.transfer_sync_read(name, a.bases[0], there, 18) == 0
    assert a.bytes(0, 0, 18) == b"of another process"
    a.engine.timeout = 2.0
    other.kill()
    other.wait()
    end = time.monotonic() + 60
    while a.engine.transfer_sync_read(name, a.bases[0], there, 18) == 0:  # mapped memory stays until its end is noticed
        assert time.monotonic() < end and a.bytes(0, 0, 18) == b"of another process"
    other.stdout.close()
    other.stdin.close()
