"""kvcl.lmcache, kvcl.sglang and kvcl.compat over a kvcl_serve of a job that they are no ranks of (option store)."""

import json
import logging
import os
import signal

import pytest

from kvcl import _job, sglang
from kvcl._job_options import options
from kvcl.compat.mooncake import MooncakeDistributedStore
from test_client import BLOCK, Server, home  # noqa: F401
from test_engines import Engine, Pool, config, names, slots, until


@pytest.fixture
def serve(home):  # noqa: F811
    """Starts servers, which end with the test, also if it fails."""
    started = []

    def start(*options):
        started.append(Server(home, *options))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.end(signal.SIGKILL)


@pytest.fixture
def server(serve):
    return serve()


def chunks(n, size=BLOCK):
    return [memoryview(bytearray(os.urandom(size))) for _ in range(n)]


def test_lmcache(server, monkeypatch):
    monkeypatch.setattr("kvcl._job_client.STAGE_BYTES", 4 * BLOCK)  # several lots
    first = Engine(store=server.file, block=BLOCK)
    values, out = chunks(10), chunks(10)
    assert first("exists", names(10)) == (True, "", [False] * 10)
    assert first("set", names(10), values) == (True, "", [True] * 10)
    other = Engine(store=server.file, block=BLOCK)  # another process, as it were
    assert other("exists", names(11)) == (True, "", [True] * 10 + [False])
    assert other("get", names(11), out + chunks(1)) == (True, "", [True] * 10 + [False])
    assert out == values
    out = chunks(3)
    assert other("get", names(1, 50) + names(2, 3), out) == (True, "", [False, True, True])
    assert out[1:] == values[3:5]
    assert other("set", names(1, 20), chunks(1, 100))[0] is False  # no block
    assert other("get", names(1), chunks(1, 100)) == (True, "", [False])
    assert other("delete", names(2)) == (True, "", [True, True])
    assert first("exists", names(3)) == (True, "", [False, False, True])
    first.client.close()
    other.client.close()


def test_a_server_that_dies_costs_misses_and_is_found_again(server, serve, monkeypatch, caplog):
    monkeypatch.setattr(_job, "AGAIN", (0.01,))
    caplog.set_level(logging.INFO, "kvcl")
    engine = Engine(store=server.file, block=BLOCK, timeout=2)
    values, out = chunks(2), chunks(2)
    assert engine("set", names(2), values) == (True, "", [True, True])
    server.end(signal.SIGKILL)
    assert engine("get", names(2), out) == (True, "", [False, False])
    assert engine("set", names(2), values)[0] is False
    until(lambda: not engine.client._job.is_open)
    serve()
    until(lambda: engine.client._job.is_open)
    assert engine("exists", names(2)) == (True, "", [False, False])
    assert engine("set", names(2), values) == (True, "", [True, True])
    assert engine("get", names(2), out) == (True, "", [True, True]) and out == values
    assert sum("the store is lost" in one.getMessage() for one in caplog.records) == 1
    engine.client.close()


@pytest.mark.parametrize("layout", ["layer_first", "page_first_direct"])
def test_sglang(serve, layout):
    pool = Pool(layout)
    server = serve("--block", str(pool.page_bytes))
    extra = {"kvcl": {"store": server.file}}
    one, other = (sglang.Storage(config(extra_config=extra)) for _ in range(2))
    keys = [f"{i:064x}" for i in range(3)]
    one.register_mem_pool_host(pool)
    assert one.batch_set_v1(keys[:2], slots(0, 3)) == [True, True]
    theirs = Pool(layout)
    other.register_mem_pool_host(theirs)
    assert not one.clear() and other.batch_exists(keys) == 2  # it is the store of others
    assert other.batch_get_v1(keys, slots(1, 2, 5)) == [True, True, False]
    assert [theirs.page(1), theirs.page(2)] == [pool.page(0), pool.page(3)]
    for more, pages in (({"model_name": "n"}, pool), ({"tp_size": 2}, pool),
                        ({}, Pool("page_first" if layout == "layer_first" else "layer_first"))):
        third = sglang.Storage(config(extra_config=extra, **more))  # other bytes under the same tokens
        third.register_mem_pool_host(pages)
        assert third._job.is_open and third.batch_exists(keys) == 0
        third.close()
    one.close()
    other.close()


def test_mooncake_and_options(server, monkeypatch):
    monkeypatch.setenv("MOONCAKE_KVCL", json.dumps({"store": server.file, "block": BLOCK}))
    store = MooncakeDistributedStore()
    assert store.setup("host", "", 1 << 20) == 0
    value = os.urandom(BLOCK)
    assert store.put("a", value) == 0 and store.get("a") == value and store.put("b", b"short") < 0
    assert store.remove_all() < 0 and store.is_exist("a") == 1
    store.close()
    for given, word in (({"store": "f", "pool": "1M"}, "pool"), ({"store": "f", "rank": 1}, "rank")):
        with pytest.raises(ValueError, match=word):
            options("kvcl.x", given)
    with pytest.raises(ValueError, match="block"):
        Engine(store="f")
