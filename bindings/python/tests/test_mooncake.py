"""kvcl.compat.mooncake: the calls and numbers that programs for mooncake.store use."""

import ctypes
import os
import subprocess
import sys

import pytest

from kvcl.compat import _tensors, mooncake, mooncake_engine
from kvcl.compat.mooncake import MooncakeDistributedStore, ReplicateConfig


@pytest.fixture
def store(monkeypatch):
    monkeypatch.delenv("KVCL_RENDEZVOUS", raising=False)
    monkeypatch.setenv("MOONCAKE_KVCL", '{"block": "4K"}')
    one = MooncakeDistributedStore()
    assert one.setup("host", "http://x/metadata", 1 << 20, 1 << 20, "tcp", "", "x:50051") == 0
    assert one.health_check() == 1 and one.get_hostname() == "host"
    yield one
    assert one.close() == 0


def test_bytes_return_as_they_were_put(store):
    value = os.urandom(10000)
    assert store.get("a") == b"" and store.is_exist("a") == 0 and store.get_size("a") == -704
    assert store.put("a", value) == 0 and store.get("a") == value
    assert store.put_parts("b", value[:10], memoryview(value)[10:]) == 0 and store.get("b") == value
    assert store.put_batch(["c", "d"], [b"", b"d"]) == 0 and store.get_batch(["c", "d", "e"]) == [b"", b"d", b""]
    assert store.batch_is_exist(["a", "c", "e"]) == [1, 1, 0] and store.get_size("a") == 10000
    assert store.put_batch(["a"], []) == -600
    assert store.remove("a") == 0 and store.remove("a") == -704 and store.get("a") == b""
    assert store.remove_all() > 0 and store.batch_is_exist(["b", "c", "d"]) == [0, 0, 0]


def test_registered_buffers(store):
    memory = (ctypes.c_ubyte * 20000)(*os.urandom(20000))
    base = ctypes.addressof(memory)
    before = bytes(memory)
    assert store.put_from("a", base, 100) == -600  # not registered
    assert store.register_buffer(base, 20000) == 0 and store.register_buffer(0, 1) == -600
    assert store.put_from("a", base, 4096) == 0
    assert store.batch_put_from(["b", "c"], [base + 10, base + 20], [100, 0]) == [0, 0]
    assert store.batch_put_from_multi_buffers(["d"], [[base, base + 5000]], [[10, 20]], ReplicateConfig()) == [0]
    assert store.get("d") == before[:10] + before[5000:5020]
    assert store.get_into("a", base + 10000, 4096) == 4096 and bytes(memory)[10000:14096] == before[:4096]
    assert store.batch_get_into(["b", "x", "c", "a"], [base + 15000] * 3 + [base + 19000], [4096, 10, 7, 1000]) == \
        [100, -704, 0, -600]  # more room than needed, absent, empty, too little room
    assert bytes(memory)[15000:15100] == before[10:110] and bytes(memory)[15100:] == before[15100:]
    assert store.batch_get_into_multi_buffers(["d"], [[base + 16000, base + 17000]], [[10, 100]]) == [30]
    assert bytes(memory)[17000:17020] == before[5000:5020]
    assert store.get_into("a", base + 19000, 2000) == -600  # beyond the buffer
    assert store.batch_get_into(["a"], [base], []) == [-600]
    assert store.unregister_buffer(base) == 0 and store.unregister_buffer(base) == -600
    assert store.get_into("a", base, 4096) == -600


def test_upserts_replace_and_puts_do_not(store):
    a, b = os.urandom(4096), os.urandom(4096)
    assert store.put("a", a) == 0 and store.put("a", b) == 0 and store.get("a") == a
    assert store.upsert("a", b) == 0 and store.get("a") == b
    assert store.upsert_parts("a", a[:10], b[10:]) == 0 and store.get("a") == a[:10] + b[10:]
    assert store.upsert_batch(["a", "n"], [a, b"new"]) == 0 and store.get_batch(["a", "n"]) == [a, b"new"]
    assert store.upsert_batch(["a"], []) == -600
    memory = (ctypes.c_ubyte * 4096)(*b)
    base = ctypes.addressof(memory)
    assert store.upsert_from("a", base, 4096) == -600
    assert store.register_buffer(base, 4096) == 0 and store.upsert_from("a", base, 4096) == 0 and store.get("a") == b
    assert store.batch_remove(["a", "n", "x"]) == [0, 0, -704]


def test_buffers_and_ranges_of_values(store):
    value = os.urandom(5000)
    assert store.put_batch(["a", "e"], [value, b""]) == 0
    whole, none, empty = store.batch_get_buffer(["a", "x", "e"])
    assert none is None and store.get_buffer("x") is None
    assert bytes(whole) == value and whole.size() == 5000 and ctypes.string_at(whole.ptr(), 5000) == value
    assert empty.size() == 0 and memoryview(whole)[:3] == value[:3]
    memory = (ctypes.c_ubyte * 100)()
    base = ctypes.addressof(memory)
    assert store.register_buffer(base, 100) == 0
    got = store.get_into_ranges([base, base + 50], [["a", "x"], ["a"]], [[[0, 20], [8]], [[0, 49, 0, -1]]],
                                [[[1, 30], [2]], [[4990, 0, 4999, 0]]], [[[4, 3], [5]], [[10, 2, 2, 1]]])
    assert got == [[[4, 3], [-704]], [[10, -600, -600, -600]]]
    assert bytes(memory[:4]) == value[1:5] and bytes(memory[20:23]) == value[30:33]
    assert bytes(memory[50:60]) == value[4990:] and bytes(memory[60:]) == bytes(40)
    assert store.get_into_ranges([base], [["a"]], [[[0]]], [[[0, 1]]], [[[]]]) == [[[-600, -600]]]


def test_a_config_that_contradicts_itself_is_refused(store):
    config = ReplicateConfig()
    assert config.soft_pin_ttl_ms is None and "replica_num=1" in str(config)
    for wrong in (-1, 1 << 64, "1"):
        with pytest.raises(TypeError, match="soft_pin_ttl_ms"):
            config.soft_pin_ttl_ms = wrong
    config.soft_pin_ttl_ms = 1000
    assert store.put("a", b"a", config) == -600
    config.soft_pin_action = mooncake.SoftPinAction.ENABLE
    assert store.put("a", b"a", config) == 0
    assert MooncakeDistributedStore().setup("h", "", "50%") == -600
    other = MooncakeDistributedStore()
    assert other.setup("h", "", "1 MB", "1MB") == 0 and other.put("a", b"a") == 0
    other.close()


def test_the_header_of_a_tensor():
    """The calls with tensors run in the engines' tests, with Mooncake's own."""
    sizes = {"float32": 4, "bool": 1, "bfloat16": 2}.get
    for dtype, shape, size in (("float32", (3, 5), 60), ("bool", (), 1), ("bfloat16", (2, 0, 3), 0)):
        head = _tensors.head_of(dtype, shape)
        assert len(head) == 128 and _tensors.head_read(head + bytes(size), 128 + size, sizes) == (dtype, shape)
        for wrong in (127, 128 + size + 1):
            assert _tensors.head_read(head + bytes(size + 1), wrong, sizes) is None
    good = _tensors.head_of("float32", (2,)) + bytes(8)
    for at, value in ((0, 7), (8, 99), (12, 99), (23, 0x80)):
        bad = bytearray(good)
        bad[at] = value
        assert _tensors.head_read(bad, len(bad), lambda dtype: 4) is None
    for dtype, shape in (("complex64", (1,)), ("float32", (1,) * 15)):
        with pytest.raises(ValueError, match="dimensions"):
            _tensors.head_of(dtype, shape)


def test_what_is_missing_raises_with_its_name(store):
    with pytest.raises(AttributeError, match="create_copy_task"):
        store.create_copy_task
    assert not hasattr(store, "remove_by_regex")
    config = ReplicateConfig()
    config.with_hard_pin = True
    with pytest.raises(NotImplementedError, match="with_hard_pin"):
        store.put("a", b"a", config)


def test_without_a_store_calls_return_errors(monkeypatch):
    one = MooncakeDistributedStore()
    assert one.put("a", b"a") < 0 and one.get("a") == b"" and one.is_exist("a") < 0 and one.remove("a") < 0
    assert one.get_size("a") < 0 and one.remove_all() < 0 and one.health_check() == 0
    monkeypatch.setenv("MOONCAKE_KVCL", '{"blok": 1}')
    with pytest.raises(ValueError, match="'block'"):
        one.setup("host", "", 1 << 20)
    for wrong in ("{block: 1M}", "[1]", "3"):
        monkeypatch.setenv("MOONCAKE_KVCL", wrong)
        with pytest.raises(ValueError, match="MOONCAKE_KVCL is .* an object is needed"):
            one.setup("host", "", 1 << 20)
    monkeypatch.setenv("MOONCAKE_KVCL", "{}")
    for more in ({"tenant_id": "a"}, {"enable_ssd_offload": True}):
        with pytest.raises(TypeError, match=f"{next(iter(more))} is not offered"):
            one.setup("host", "", 1 << 20, **more)
    assert one.setup({"local_hostname": "h", "global_segment_size": 1 << 20, "device_name": "mlx5_0",
                      "master_server_address": "x:1", "enable_ssd_offload": False}) == 0
    for off in ("False", "0", "", "none"):  # a dict may have strings alone
        assert one.setup({"global_segment_size": str(1 << 20), "enable_ssd_offload": off}) == 0
    with pytest.raises(ValueError, match="tenant_id is not offered"):  # a TypeError would mean that a dict is not
        one.setup({"global_segment_size": str(1 << 20), "tenant_id": "a"})
    assert one.setup({"global_segment_size": str(1 << 20)}) == 0
    assert one.put("a", bytes(9000)) == 0 and one.get("a") == bytes(9000)  # the first value gives the size of blocks
    one.close()


def test_install_answers_for_mooncake_store(monkeypatch):
    monkeypatch.delitem(sys.modules, "mooncake", raising=False)
    monkeypatch.delitem(sys.modules, "mooncake.store", raising=False)
    monkeypatch.delitem(sys.modules, "mooncake.engine", raising=False)
    mooncake.install()
    from mooncake.engine import TransferEngine
    assert TransferEngine is mooncake_engine.TransferEngine
    from mooncake.store import MooncakeDistributedStore as found
    assert found is MooncakeDistributedStore
    monkeypatch.delitem(sys.modules, "mooncake")
    monkeypatch.delitem(sys.modules, "mooncake.store")
    monkeypatch.delitem(sys.modules, "mooncake.engine")


def test_a_folder_gives_the_package(tmp_path):
    folder = tmp_path / "folder"
    made = [sys.executable, "-m", "kvcl.compat.mooncake"]
    subprocess.run([*made, str(folder)], check=True, capture_output=True)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    names = subprocess.run([sys.executable, "-c", """
import mooncake.store
from mooncake.engine import TransferEngine
print(mooncake.store.MooncakeDistributedStore.__module__, TransferEngine.__module__)"""],
                           check=True, capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=path)).stdout
    assert names.split() == ["kvcl.compat.mooncake", "kvcl.compat.mooncake_engine"]
    for wrong in ([], ["--help"], ["a", "b"]):
        done = subprocess.run([*made, *wrong], capture_output=True, text=True)
        assert done.returncode == 1 and "usage:" in done.stderr
