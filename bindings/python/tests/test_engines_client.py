"""kvcl.lmcache, kvcl.sglang and kvcl.compat over a kvcl_serve of a job that they are no ranks of (option store)."""

import json
import logging
import os
import signal
import time

import pytest

from kvcl import _job, key_root, sglang
from kvcl._job_options import options
from kvcl.compat.mooncake import MooncakeDistributedStore
from kvcl.vllm._tier_jobs import TierJobs, options_of, said
from test_client import BLOCK, Server, home, secret  # noqa: F401
from test_engines import TOKENS, Engine, Pool, config, names, slots, until


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
    monkeypatch.setattr(_job, "AGAIN", 0.01)
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


def test_a_store_that_is_back_is_used_within_a_second(server, serve, monkeypatch):
    """By the pauses that the job asks for: a busy machine may wake it later."""
    engine = Engine(store=server.file, block=BLOCK, timeout=2)
    job, attempts = engine.client._job, []  # of each: its begin, its end, the seconds of the pause, the pause's end
    tries, waits = job._try, job._state.wait_for

    def timed():
        begun = time.monotonic()
        opened = tries()
        attempts.append([begun, time.monotonic()])
        return opened

    def paused(over, seconds):
        done = waits(over, seconds)
        if attempts:
            attempts[-1] += [seconds, time.monotonic()]
        return done

    monkeypatch.setattr(job, "_try", timed)
    monkeypatch.setattr(job._state, "wait_for", paused)
    server.end(signal.SIGKILL)
    until(lambda: not job.is_open)  # an idle engine notices it, too
    until(lambda: len(attempts) > 3)
    serve()
    until(lambda: job.is_open)
    failed = attempts[:-1]
    for begun, ended, seconds, _ in failed:  # no pause is longer than what an attempt leaves of 0.75 s
        assert seconds <= max(0.0, begun + 0.75 - ended) + 0.001, attempts
    for before, after in zip(failed, attempts[2:]):  # it does not spin: one attempt between them, and its pause
        assert after[0] - before[3] > 0.749, attempts
    assert engine("set", names(1), chunks(1)) == (True, "", [True])
    engine.client.close()


def test_a_server_that_was_stopped_goes_on_with_connections_of_one_context(server, monkeypatch):
    """What it answers to earlier ones must not reach another context in the same place of shared memory: UCX aborts."""
    monkeypatch.setattr(_job, "AGAIN", 0.01)
    engine = Engine(store=server.file, block=BLOCK, timeout=20)
    job, values, out = engine.client._job, chunks(2), chunks(2)
    assert engine("set", names(2), values) == (True, "", [True, True])
    context, store, attempts, tries = job._opened.context, job._opened.store, [], job._try
    monkeypatch.setattr(job, "_try", lambda: attempts.append(1) or tries())
    introduced(job)
    server.stop()
    store._timeout = store._client._timeout = 0.5
    assert engine("get", names(2), out) == (True, "", [False, False])
    until(lambda: len(attempts) > 5)
    server.process.send_signal(signal.SIGCONT)
    until(lambda: job.is_open)
    assert job._opened.context is context and job._opened.store is store
    store._client._timeout = 20
    assert engine("get", names(2), out) == (True, "", [True, True]) and out == values
    engine.client.close()


def test_a_secret_that_is_put_right_is_read_again(home, serve, monkeypatch, caplog):  # noqa: F811
    monkeypatch.setattr(_job, "AGAIN", 0.01)
    server, other = serve(), secret(home, "other", "another of 24 letters...")
    engine = Engine(store=server.file, block=BLOCK, secret_file=other, connect=0.1)
    until(lambda: any("secret" in one.getMessage() for one in caplog.records))
    assert engine("exists", names(1)) == (True, "", [False])
    secret(home, "other", "a secret of 24 letters..")
    until(lambda: engine.client._job.is_open)
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


# ---- engines that differ: a miss, and a line that names the field ----


def differs(caplog, who):
    """The lines of an engine that say in what it differs."""
    said = [one.getMessage() for one in caplog.records if one.name == "kvcl"]
    start = f"{who}: no other engine of this store shares blocks with this one: "
    return [one[len(start):] for one in said if one.startswith(start)]


def introduced(job):
    """Wait until a job has said what it is; none of the tests' engines does more than once."""
    until(lambda: job._introduced == len(job._texts) == 1)


@pytest.mark.parametrize("more, shape, line", [
    ({"model_name": "n"}, {}, "model is 'n' here and 'm' there"),
    ({"tp_size": 2}, {}, "tensor-parallel size is 2 here and 1 there"),
    ({"pp_size": 2}, {}, "pipeline-parallel size is 2 here and 1 there"),
    ({}, {"dtype": "fp16"}, "dtype is 'fp16' here and 'bf16' there"),
    ({}, {"page_size": 2 * TOKENS}, f"page size is {2 * TOKENS} here and {TOKENS} there"),
    ({}, {"layout": "page_first_direct"}, "layout is 'page_first_direct' here and 'page_first' there"),
])
def test_sglang_says_in_what_it_differs(server, caplog, more, shape, line):
    extra = {"kvcl": {"store": server.file}}
    pool, other = Pool("page_first"), Pool("page_first")
    for name, value in shape.items():
        setattr(other, name, value)
    for pages, differ, said in ((pool, {}, []), (pool, {}, []), (other, more, [line]), (pool, {}, [line]),
                                (pool, {"extra_config": {"kvcl": {**extra["kvcl"], "salt": "s"}}}, [line])):
        engine = sglang.Storage(config(**{"extra_config": extra, **differ}))
        engine.register_mem_pool_host(pages)
        introduced(engine._job)
        engine.close()
        lines = differs(caplog, "kvcl.sglang")
        assert len(lines) == len(said) and all(one in of.split("; ") for one, of in zip(said, lines)), lines


def test_lmcache_says_in_what_it_differs(server, caplog):
    first = Engine(store=server.file, block=BLOCK)
    assert first("set", names(2), chunks(2))[0]
    introduced(first.client._job)
    first.client.close()
    for change, size, line in (("", 2 * BLOCK, f"chunk bytes is {2 * BLOCK} here and {BLOCK} there"),
                               ("other", BLOCK, "model is 'other' here and 'model' there"),
                               ("model@02", BLOCK, "parallel ranks is '02' here and '01' there"), ("", BLOCK, None)):
        engine = Engine(store=server.file, block=size)
        theirs = [change + one[len(change) if "@" in change else 5:] if change else one for one in names(2, 7)]
        assert engine("exists", theirs) == (True, "", [False, False])
        engine("set", theirs, chunks(2, size))
        introduced(engine.client._job)
        engine.client.close()
        assert differs(caplog, "kvcl.lmcache") == ([line] if line else [])
        caplog.clear()


def tier(server, **changed):
    """vLLM's tier, of an engine without vLLM: the fields are those that vLLM's FileMapper gives."""
    fields = {"form": "kvcl.vllm.tier/1", "model_name": "m", "dtype": "bfloat16", "tp_size": 1, "tokens_per_hash": 16,
              "chunk bytes": BLOCK, "kv_cache_groups": [{"tokens_per_block": 16, "layer_names": ["a", "b"]}], **changed}
    job = _job.Job("kvcl.vllm tier", options_of({"store": server.file}))
    job.introduce(said(fields))
    jobs = TierJobs(job, memoryview(bytearray(4 * BLOCK)).cast("b", (4, BLOCK)),
                    key_root(b"", json.dumps(fields)), 1)
    introduced(job)
    return jobs


def test_vllms_tier_says_in_what_it_differs(server, caplog):
    key = [bytes(36)]
    jobs = tier(server)
    jobs.store(1, key, [0])
    jobs.drain()
    assert jobs.lookup(key) == [True]
    jobs.close()
    groups = [{"tokens_per_block": 32, "layer_names": ["a", "b"]}]
    for changed, line in (({"model_name": "n"}, "model name is 'n' here and 'm' there"),
                          ({"dtype": "float16"}, "dtype is 'float16' here and 'bfloat16' there"),
                          ({"tp_size": 2}, "tp size is 2 here and 1 there"),
                          ({"kv_cache_groups": groups}, "tokens per block is [32] here and [16] there"), ({}, None)):
        jobs = tier(server, **changed)
        assert jobs.lookup(key) == [line is None]
        assert differs(caplog, "kvcl.vllm tier") == ([line] if line else [])
        jobs.close()
        caplog.clear()


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
