"""The parts of kvcl.lmcache and kvcl.sglang that need no engine: options, jobs that come and go, pages, batches."""

import contextlib
import ctypes
import json
import logging
import os
import re
import select
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

import kvcl
from kvcl import _introduce, _job, _job_options, _sglang_pools, lmcache, sglang
from kvcl._job_options import options

from conftest import free_ports

BLOCK = 4096


@pytest.fixture
def lines(caplog):
    """What the engines' log got."""
    caplog.set_level(logging.INFO, "kvcl")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "kvcl"]


# ---- options ----


def test_options_are_read_with_units_and_defaults():
    found = options("x", {"pool": "64M", "block": 4096, "timeout": 2, "replicas": "2", "nvme": None})
    assert (found.pool, found.block, found.timeout, found.replicas, found.nvme) == (64 << 20, 4096, 2.0, 2, None)
    for text, n in (("1", 1), ("4k", 4096), ("2 GiB", 2 << 30), ("3MB", 3 << 20), ("1T", 1 << 40)):
        assert options("x", {"pool": text}).pool == n


@pytest.mark.parametrize("given, words", [
    ({"pol": "1G"}, ["'pol'", "'pool'"]),
    ({"time_out": 1, "pool": 1}, ["'time_out'", "'timeout'"]),
    ({"pool": "many"}, ["pool", "'many'", "256K"]),
    ({"pool": True}, ["pool", "True"]),
    ({"pool": -1}, ["pool", "-1"]),
    ({"pool": 1, "timeout": 0}, ["timeout", "seconds"]),
    ({"pool": 1, "timeout": float("inf")}, ["timeout", "seconds"]),
    ({"pool": 1, "timeout": "5"}, ["timeout", "a number"]),
    ({"pool": 1, "replicas": 1.5}, ["replicas", "1.5", "fraction"]),
    ({"pool": 1, "replicas": float("nan")}, ["replicas", "nan"]),
    ({"pool": 1, "replicas": 1 << 64}, ["replicas", "a number"]),
    ({"pool": 1, "xyz": 1}, ["no option 'xyz': there are rendezvous, size"]),
    ({"pool": 1, "salt": 3}, ["salt", "string"]),
    ({"pool": "9999999999T"}, ["pool", "'9999999999T'", "are possible"]),
    ({"pool": 1, "block": 1 << 63}, ["block", "are possible"]),
    ({"pool": 1, "replicas": 5}, ["replicas is 5", "0 to 4 are possible"]),
    ({"rendezvous": "tcp://a:1", "size": 0}, ["size is 0", "1 to 65536"]),
    ({"rendezvous": "tcp://a:1", "size": 70000}, ["size is 70000", "1 to 65536"]),
    ({"rendezvous": "tcp://a:1", "size": 2, "rank": 2}, ["rank is 2", "with size 2, ranks are 0 to 1"]),
    ({"nvme": "/x:1G"}, ["nvme", "pool"]),
    ({}, ["pool", "rendezvous"]),
])
def test_a_wrong_option_is_refused_by_name(monkeypatch, given, words):
    monkeypatch.delenv("KVCL_RENDEZVOUS", raising=False)
    monkeypatch.delenv("KVCL_BOOT", raising=False)
    with pytest.raises(ValueError) as refused:
        options("kvcl.x", given)
    for word in ["kvcl.x"] + words:
        assert word in str(refused.value)


def test_the_page_of_options_names_each():
    page = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../contrib/doc/engines")
    with open(page) as file:
        text = file.read()
    for option in _job_options.OPTIONS + lmcache.OPTIONS:
        assert f"\n    {option.name} " in text, option.name


# ---- jobs ----


def alone(**more):
    return _job.Job("kvcl.x", options("kvcl.x", {"pool": "64K", "block": BLOCK, **more}))


def test_values_of_a_job_alone():
    job = alone()
    assert job.open()
    keys = [kvcl.key_from_string(str(i)) for i in range(4)]
    values = [os.urandom(n) for n in (BLOCK, 100, 3 * BLOCK, 0)]
    assert job.has_values(keys) == [False] * 4
    assert job.put_values(keys, values, [len(value) for value in values]) == [True] * 4
    assert job.has_values(keys) == [True] * 4
    out = [bytearray(len(value)) for value in values]
    assert job.get_values(keys, out) == [True] * 4
    assert [bytes(one) for one in out] == values
    assert job.get_values(keys[:2], [bytearray(BLOCK), bytearray(101)]) == [True, False]  # another length
    assert job.remove_values(keys[:1]) and job.has_values(keys) == [False, True, True, True]
    job.close()
    assert job.has_values(keys) == [False] * 4 and job.get_values(keys, out) == [False] * 4
    assert job.put_values(keys, values, [1] * 4) == [False] * 4 and not job.remove_values(keys)


def test_a_batch_larger_than_a_lot_is_put_in_several(monkeypatch):
    monkeypatch.setattr(_job, "LOT_BYTES", 2 * BLOCK)
    job = alone()
    assert job.open()
    keys = [kvcl.key_from_string(str(i)) for i in range(5)]
    lots = []
    put = job._put
    monkeypatch.setattr(job, "_put", lambda o, k, v, *more: lots.append(len(k)) or put(o, k, v, *more))
    assert job.put_values(keys, [bytes(BLOCK)] * 5, [BLOCK] * 5) == [True] * 5
    assert lots == [2, 2, 1]
    job.close()


def test_a_full_store_is_false_and_logged_once(lines):
    job = alone(pool=f"{2 * BLOCK}", timeout=1)
    assert job.open()
    keys = [kvcl.key_from_string(str(i)) for i in range(4)]
    assert job.put_values(keys[:2], [bytes(BLOCK)] * 2, [BLOCK] * 2) == [True, True]
    assert sum(job._opened.store.pin(keys[:2], 1, 60.0)) == 2
    for _ in range(3):
        assert job.put_values(keys[2:], [bytes(BLOCK)] * 2, [BLOCK] * 2) == [False, False]
    assert len(lines()) == 1, lines()
    job._opened.store.unpin(keys[:2], 1)
    assert job.put_values(keys[2:], [bytes(BLOCK)] * 2, [BLOCK] * 2) == [True, True]
    job.close()


class Server:
    """Rank 0 of a job of two, as kvcl_serve is: a pool, no calls of its own."""

    def __init__(self, rendezvous, **more):
        self.leave, self.context = threading.Event(), None
        self.thread = threading.Thread(target=self.run, args=(rendezvous, more), daemon=True)
        self.thread.start()

    def run(self, rendezvous, more):
        while not self.leave.is_set():  # on a busy machine a meeting may take longer than KVCL_BOOT_TIMEOUT
            try:
                with kvcl.Context(rendezvous=rendezvous, rank=0, **{"size": 2, **more}) as self.context:
                    with kvcl.Store(self.context.world, dram_bytes=64 << 10, block_bytes=BLOCK):
                        self.leave.wait()
            except kvcl.KvclError:
                pass

    def end(self):
        self.leave.set()
        self.thread.join(60)


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_store_that_comes_goes_and_comes_again(monkeypatch, lines):
    monkeypatch.setenv("KVCL_BOOT_TIMEOUT", "1s")
    monkeypatch.setattr(_job, "AGAIN", 0.01)
    where = f"tcp://127.0.0.1:{free_ports()}"
    job = _job.Job("kvcl.x", options("kvcl.x", {"rendezvous": where, "size": 2, "rank": 1, "connect": 0.01}))
    keys = [kvcl.key_from_string(str(i)) for i in range(2)]
    values = [os.urandom(BLOCK), os.urandom(100)]
    assert not job.open()
    assert job.has_values(keys) == [False, False]
    assert job.put_values(keys, values, [BLOCK, 100]) == [False, False]
    until(lambda: any("no store, so" in line for line in lines()))  # an attempt has failed: a line, once
    for _ in range(2):
        server = Server(where)
        until(job.open)
        out = [bytearray(BLOCK), bytearray(100)]
        assert job.has_values(keys) == [False, False]
        assert job.put_values(keys, values, [BLOCK, 100]) == [True, True]
        assert job.get_values(keys, out) == [True, True] and [bytes(one) for one in out] == values
        server.end()

        def lost():
            assert job.get_values(keys, out) == [False, False]
            job.put_values(keys, values, [BLOCK, 100])
            return job._opened is None

        until(lost)
    job.close()
    assert sum("the store is lost" in line for line in lines()) == 2, lines()


def test_ranks_of_a_job_say_in_what_they_differ(lines):
    """Two engines and a rank that is none. Whichever looks later sees the other."""
    where = f"tcp://127.0.0.1:{free_ports()}"
    server = Server(where, size=4)
    jobs = [_job.Job("kvcl.x", options("kvcl.x", {"rendezvous": where, "size": 4, "rank": rank, "connect": 60}))
            for rank in (1, 2, 3)]
    jobs[0].introduce({"model": "m", "dtype": "bf16"})
    jobs[1].introduce({"model": "m", "dtype": "fp16"})
    jobs[2].introduce({"model": "n", "dtype": "fp16"}, "another group")
    threads = [threading.Thread(target=job.open) for job in jobs]
    for thread in threads:
        thread.start()
    until(lambda: all(job.is_open and job._introduced for job in jobs))
    start = "kvcl.x: no other engine of this store shares blocks with this one: dtype is "
    said = [line[len(start):] for line in lines() if line.startswith(start)]
    assert said and set(said) <= {"'bf16' here and 'fp16' there", "'fp16' here and 'bf16' there"}, lines()
    jobs[0].introduce({"model": "m", "dtype": "fp16"})  # a second model, as LMCache's server has
    until(lambda: jobs[0]._introduced == 2)
    assert len([line for line in lines() if line.startswith(start)]) == len(said) and len(lines()) == len(said)
    for thread, job in zip(threads, jobs):
        thread.join()
        job.close()
    server.end()


def test_an_introduction_that_lies_writes_no_line_of_its_own():
    own = _introduce.text("f", {"a": 1}, "t")
    lie = json.dumps({"form": "f", "tenant": "t", "a": 1, "x\nERROR: the disk is full": "y\n"})
    assert _introduce.explain(own, [lie]) == "'x\\nERROR: the disk is full' is None here and 'y\\n' there"
    deep = '{"form": "f", "tenant": "t", "a": ' + "[" * 480 + "]" * 480 + "}"
    assert len(deep) <= 1024 and _introduce.explain(own, [deep]).startswith("a is 1 here and [[[")


def test_ranks_that_are_silent_are_waited_for_together():
    events = []

    class Cell(contextlib.AbstractContextManager):
        def __exit__(self, *exc):
            events.append("closed")

        def write(self, block, data):
            events.append("said")

        def read(self, block):
            return b"rank %d" % (block // _introduce.TEXTS) + bytes(9)

    def get(rank, cache, remote, local, **how):
        events.append("asked")
        if rank == 2:
            raise kvcl.RankFailed("it has failed")

        def wait():
            events.append("waited")
            if rank == 3:
                raise kvcl.TimedOut("it is stopped")
        return SimpleNamespace(wait=wait)

    context = SimpleNamespace(cache=lambda name, layout: Cell(), world=SimpleNamespace(size=5, rank=1, get=get))
    others = _introduce.Board(context).introduce("text", 1.0)
    assert events == ["said"] + ["asked"] * 4 + ["waited"] * 3 + ["closed"]
    assert others == ["rank 0"] * 4 + ["rank 3"] * 4  # cells 0 and 3 of the four others


def test_a_wrong_secret_is_a_line_and_a_miss(monkeypatch, tmp_path, lines):
    monkeypatch.setenv("KVCL_BOOT_TIMEOUT", "2s")
    files = []
    for name in "ab":
        files.append(tmp_path / name)
        files[-1].write_bytes(name.encode() * 64)
        files[-1].chmod(0o600)
    where = f"tcp://127.0.0.1:{free_ports()}"
    server = Server(where, secret_file=str(files[0]))
    job = _job.Job("kvcl.x", options("kvcl.x", {"rendezvous": where, "size": 2, "rank": 1, "connect": 60,
                                                "secret_file": str(files[1])}))
    assert not job.open()
    assert job.has_values([bytes(32)]) == [False]
    assert len(lines()) == 1 and "secret" in lines()[0], lines()
    job.close()
    server.end()


# ---- LMCache ----


class Engine:
    """What LMCache does with a client: submit, wait for the descriptor, drain."""

    def __init__(self, **given):
        self.client = lmcache.Client(**given)
        self.got = {}

    def __call__(self, what, *arguments):
        number = getattr(self.client, f"submit_batch_{what}")(*arguments)
        ready = select.poll()
        ready.register(self.client.event_fd(), select.POLLIN)
        while number not in self.got:
            assert ready.poll(60000)
            self.got.update((one[0], one[1:]) for one in self.client.drain_completions())
        return self.got.pop(number)


def names(n, first=0):
    return [f"model@01000100@0@{i:064x}" for i in range(first, first + n)]


def test_lmcache_gets_what_it_set():
    engine = Engine(pool="1M")  # the size of a block is the first chunk's
    values = [memoryview(bytearray(os.urandom(BLOCK))) for _ in range(5)] + [memoryview(bytearray(os.urandom(100)))]
    out = [memoryview(bytearray(one.nbytes)) for one in values]
    assert engine("exists", names(6)) == (True, "", [False] * 6)
    assert engine("set", names(6), values) == (True, "", [True] * 6)
    assert engine("exists", names(7)) == (True, "", [True] * 6 + [False])
    assert engine("get", names(6), out) == (True, "", [True] * 6)
    assert [bytes(one) for one in out] == [bytes(one) for one in values]
    assert engine("get", names(2, 5), out[:2]) == (True, "", [False, False])  # another length, and absent
    assert engine("delete", names(2)) == (True, "", [True, True])
    assert engine("exists", names(6)) == (True, "", [False, False] + [True] * 4)
    engine.client.close()
    engine.client.close()
    assert engine.client.drain_completions() == []


def test_lmcache_runs_a_large_batch_in_parts(monkeypatch):
    assert lmcache.parts_of([]) == [slice(0, 0)]
    monkeypatch.setattr(lmcache, "PART_BYTES", 2 * BLOCK)
    sizes = [BLOCK, BLOCK, 1, 5 * BLOCK, BLOCK, BLOCK, BLOCK]
    assert [(part.start, part.stop) for part in lmcache.parts_of(sizes)] == [(0, 2), (2, 3), (3, 4), (4, 6), (6, 7)]
    engine = Engine(pool="1M", threads=3)
    values = [memoryview(bytearray(os.urandom(size))) for size in sizes]
    out = [memoryview(bytearray(size)) for size in sizes]
    assert engine("set", names(7), values) == (True, "", [True] * 7)
    assert engine("delete", names(1, 3)) == (True, "", [True])
    assert engine("get", names(7), out) == (True, "", [True] * 3 + [False] + [True] * 3)
    assert all(bytes(a) == bytes(b) for i, (a, b) in enumerate(zip(out, values)) if i != 3)
    assert engine("get", [], []) == (True, "", [])
    engine.client.close()


def test_lmcache_a_lookup_has_completed_when_the_store_is_this_process(monkeypatch):
    """No thread is woken for it, so it waits for no copy."""
    engine = Engine(pool="1M", block=BLOCK)
    assert engine("set", names(1), [memoryview(bytes(BLOCK))])[0]
    hold, posted = threading.Event(), []
    monkeypatch.setattr(engine.client._job, "get_values", lambda keys, views: hold.wait(60) and [False])
    for _ in engine.client._threads:  # all of them copy
        posted.append(engine.client.submit_batch_get(names(1), [memoryview(bytearray(BLOCK))]))
    number = engine.client.submit_batch_exists(names(2))
    assert engine.client.drain_completions() == [(number, True, "", [True, False])]
    hold.set()
    engine.client.close()


def test_lmcache_a_lookup_of_other_ranks_waits_for_no_copy(monkeypatch):
    """One that is not answered at once is waited for by a thread of its own."""
    engine = Engine(pool="1M", block=BLOCK)
    hold, answer = threading.Event(), threading.Event()
    monkeypatch.setattr(engine.client._job, "get_values", lambda keys, views: hold.wait(60) and [False])
    monkeypatch.setattr(engine.client._job, "ask_values", lambda keys: (False, lambda: answer.wait(60) and [True]))
    for _ in engine.client._threads:
        engine.client.submit_batch_get(names(1), [memoryview(bytearray(BLOCK))])
    number = engine.client.submit_batch_exists(names(1))
    assert engine.client.drain_completions() == []
    answer.set()
    ready = select.poll()
    ready.register(engine.client.event_fd(), select.POLLIN)
    assert ready.poll(60000) and engine.client.drain_completions() == [(number, True, "", [True])]
    hold.set()
    engine.client.close()


def test_lmcache_a_put_into_a_full_store_fails_and_a_get_does_not(lines):
    engine = Engine(pool=f"{2 * BLOCK}", block=BLOCK, timeout=1)
    value = memoryview(bytearray(os.urandom(BLOCK)))
    assert engine("set", names(2), [value] * 2)[0]
    store, keys = engine.client._job._opened.store, engine.client._keys(names(2))
    assert sum(store.pin(keys, 1, 60.0)) == 2
    ok, why, each = engine("set", names(1, 2), [value])
    assert not ok and why and each == [False] and len(lines()) == 1
    out = memoryview(bytearray(BLOCK))
    assert engine("get", names(1), [out]) == (True, "", [True]) and out == value
    engine.client.close()


def test_lmcache_memory_of_another_format():
    """LMCache's views are those of ctypes: format "<B"."""
    engine = Engine(pool="1M", block=BLOCK)
    array = (ctypes.c_ubyte * BLOCK)(*os.urandom(BLOCK))
    out = (ctypes.c_ubyte * BLOCK)()
    assert engine("set", names(1), [memoryview(array)])[0]
    assert engine("get", names(1), [memoryview(out)]) == (True, "", [True])
    assert bytes(out) == bytes(array)
    engine.client.close()


def test_lmcache_salts_keep_apart_and_faults_are_one_batch_s(lines):
    engine = Engine(pool="1M", block=BLOCK, salt="a")
    assert engine("set", names(1), [memoryview(bytes(BLOCK))])[0]
    engine.client._salt = b"b"
    assert engine("exists", names(1)) == (True, "", [False])
    for _ in range(2):
        ok, why, each = engine("get", [7], [memoryview(bytearray(BLOCK))])
        assert not ok and why and each is None
    assert len(lines()) == 1
    assert engine("get", names(1), [memoryview(bytes(BLOCK))]) == (True, "", [False])  # read-only memory
    engine.client._salt = b"a"
    assert engine("exists", names(1)) == (True, "", [True])
    engine.client.close()


def test_lmcache_refuses_what_cannot_work(monkeypatch):
    monkeypatch.delenv("KVCL_RENDEZVOUS", raising=False)
    for given, word in (({"pool": "1G", "thread": 1}, "'threads'"), ({"pool": "1G", "threads": 0}, "threads"),
                        ({"pool": "1G", "nvme": "/x:1G"}, "block"),
                        ({"pool": "1G", "rendezvous": "tcp://127.0.0.1:1"}, "block")):
        with pytest.raises(ValueError, match=word):
            lmcache.Client(**given)


# ---- the golden list of calls ----


def test_an_engine_that_calls_otherwise_is_noticed_by_name(tmp_path):
    here = os.path.dirname(os.path.abspath(__file__))
    folder = tmp_path / "lmcache/v1/distributed/l2_adapters"
    folder.mkdir(parents=True)
    (tmp_path / "lmcache/__init__.py").write_text("")
    adapter, golden = folder / "native_connector_l2_adapter.py", tmp_path / "golden"

    def run(*more):
        ran = subprocess.run([sys.executable, os.path.join(here, "engines/calls.py"), *more, str(golden),
                              str(tmp_path)], capture_output=True, text=True)
        return ran.returncode, ran.stdout.splitlines()

    adapter.write_text("def f(self):\n    self._client.get(1, keys=2)\n    getattr(self._client, 'more', None)\n")
    assert run("--write") == (0, [])
    others = [f"SKIP: there is no {name}" for name in ("nixl_cu13", "sglang", "torch", "vllm")]
    others.append("SKIP: NIXL's headers, of which its plugin is made: no checkout of NIXL is named (CI_NIXL_TREE)")
    assert run() == (0, ["ok   the calls of lmcache are as they were: 4", *others])  # with one for an absent file
    adapter.write_text("def f(self):\n    g(self._client.put)\n    self._client.get(1, 2)\n"
                       "    getattr(self._client, 'more', None)\n")
    assert run() == (1, ["FAIL no longer: lmcache: calls get(0, keys=)", "FAIL new: lmcache: calls get(0, 1)",
                         "FAIL new: lmcache: takes put", *others])
    adapter.unlink()
    assert run()[0] == 1


ENGINE = """/* A virtual function; in a comment */
class nixlBackendEngine {
  public:
    // virtual bool comment() = 0;
    virtual bool supportsRemote() const = 0;
    virtual nixl_status_t registerMem (const nixlBlobDesc &mem,
                                       nixlBackendMD* &out) = 0;
    virtual nixl_status_t getNotifs(notif_list_t &list) { return NIXL_ERR_BACKEND; }
};
"""


def test_a_nixl_with_another_contract_is_noticed_by_name(tmp_path):
    here = os.path.dirname(os.path.abspath(__file__))
    folder, golden = tmp_path / "src/api/cpp/backend", tmp_path / "golden"
    folder.mkdir(parents=True)
    engine, plugin = folder / "backend_engine.h", folder / "backend_plugin.h"
    (folder / "backend_aux.h").write_text("struct nixlBackendOptionalArgs {\n    nixl_blob_t notifMsg;\n};\n")
    engine.write_text(ENGINE)
    plugin.write_text("#define NIXL_PLUGIN_API_VERSION 1\n")

    def run(*more):
        ran = subprocess.run([sys.executable, os.path.join(here, "engines/calls.py"), "--nixl", str(tmp_path), *more,
                              str(golden), str(tmp_path)], capture_output=True, text=True)
        return ran.returncode, [one for one in ran.stdout.splitlines() if not one.startswith("SKIP: there is no ")]

    assert run("--write") == (0, [])
    assert run() == (0, ["ok   the calls of nixl are as they were: 5"])
    engine.write_text(ENGINE.replace("list)", "list, int n)").replace("() const = 0", "() const"))
    plugin.write_text("#define NIXL_PLUGIN_API_VERSION 2\n")
    of = "nixl: has nixlBackendEngine: virtual "
    assert run() == (1, ["FAIL no longer: nixl: has NIXL_PLUGIN_API_VERSION 1",
                         f"FAIL no longer: {of}bool supportsRemote() const = 0",
                         f"FAIL no longer: {of}nixl_status_t getNotifs(notif_list_t &list)",
                         "FAIL new: nixl: has NIXL_PLUGIN_API_VERSION 2", f"FAIL new: {of}bool supportsRemote() const",
                         f"FAIL new: {of}nixl_status_t getNotifs(notif_list_t &list, int n)"])


def test_the_golden_list_has_every_function_of_the_nixl_plugin():
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "engines/calls.golden")) as file:
        golden = file.read()
    with open(os.path.join(here, "../../nixl/engine.hh")) as file:
        own = re.findall(r"(?<!~)\b(\w+)\([^()]*\) (?:const )?override", file.read())
    assert len(own) == 20 and [one for one in own if f" {one}(" not in golden] == []


def test_environments_that_are_named_are_taken_and_others_are_skipped(tmp_path):
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "engines/environments")

    def run(*more, **environ):
        ran = subprocess.run([script, *more], capture_output=True, text=True,
                             env={"PATH": os.environ["PATH"], "PYTHON": sys.executable, **environ})
        return ran.returncode, ran.stdout.splitlines(), ran.stderr

    assert run("x", TEST_ENGINES="/a b", TEST_SGLANG="/c") == (0, ["TEST_ENGINES=/a b", "TEST_SGLANG=/c"], "")
    assert run("x", TEST_ENGINES="/a") == (0, ["TEST_ENGINES=/a"], "")
    rc, out, why = run("--here", str(tmp_path))
    assert rc == 77 and out == [] and ("make check-engines" in why or "cpython 3.11" in why)
    rc, out, why = run(str(tmp_path), PYTHON="echo")
    assert rc == 77 and out == [] and "lock files are for" in why


FAKE_PYTHON = """#!/bin/sh
case $* in
  *platform*) echo cpython 3.11 x86_64 ;;
  "-m venv "*)
    mkdir -p "$3/bin" "$3/lib/python3.11/site-packages"
    cp "$0" "$3/bin/python" && cp "${0%/*}/pip" "$3/bin/"
    ;;
  *"import torch"*) ;;
  *) exit 1 ;;
esac
"""
FAKE_PIP = """#!/bin/sh
case $1 in
  install) ;;
  *) exit 0 ;;
esac
for turn; do :; done
if [ "$(wc -l <"$FAKE/installed")" -ge "$(cat "$FAKE/limit")" ]; then
  echo "WARNING: Retrying after connection broken by NewConnectionError: failed to establish a new connection"
  echo "ERROR: No matching distribution found for agent-detector==2.0.0"
  exit 1
fi
cat "$turn" >>"$FAKE/installed"
"""


def test_environments_are_made_in_turns_and_continued(tmp_path):
    """The script, over a python and a pip that only say so."""
    here = os.path.dirname(os.path.abspath(__file__))
    fake, dir = tmp_path / "fake", tmp_path / "made"
    fake.mkdir()
    for name, text in (("python3", FAKE_PYTHON), ("pip", FAKE_PIP), ("installed", ""), ("limit", "20")):
        (fake / name).write_text(text)
        (fake / name).chmod(0o700)

    def run():
        ran = subprocess.run([os.path.join(here, "engines/environments"), str(dir)], capture_output=True, text=True,
                             env={"PATH": f"{fake}:{os.environ['PATH']}", "PYTHON": str(fake / "python3"),
                                  "FAKE": str(fake)})
        return ran.returncode, ran.stdout.splitlines(), ran.stderr.splitlines()

    def lock(name):
        with open(os.path.join(here, "..", name)) as file:
            return [line.strip() for line in file if not line.startswith("#")]

    E, S = lock("engines.lock"), lock("sglang.lock")
    rc, out, says = run()
    assert rc == 77 and out == [] and says[0] == f"engines: engines.lock: 8 of {len(E)} packages, 1 MiB"
    assert says[-1].startswith(f"engines.lock was not installed, 24 of {len(E)} packages are there, and the next run "
                               f"continues: no connection to the package index")
    (fake / "limit").write_text("100000")
    both = [f"TEST_ENGINES={dir}/E", f"TEST_SGLANG={dir}/S"]
    assert run()[:2] == (0, both)
    assert (fake / "installed").read_text().splitlines() == E + S  # none twice
    assert (dir / "S/lib/python3.11/site-packages/engines.pth").read_text() == f"{dir}/E/lib/python3.11/site-packages\n"
    assert run() == (0, both, []) and len((fake / "installed").read_text().splitlines()) == len(E + S)

    (dir / "S/lock").write_text("an older lock file")  # made anew, from the first package
    (dir / "S/begun").write_text("an older lock file")
    (fake / "installed").write_text("")
    assert run()[:2] == (0, both) and (fake / "installed").read_text().splitlines() == S

    (dir / "S/lock").unlink()  # without room SGLang's tests are skipped, with a sentence, and without E all are
    (fake / "df").write_text("#!/bin/sh\necho; echo disk 100 50 50 50% /\n")
    (fake / "df").chmod(0o700)
    rc, out, says = run()
    assert (rc, out) == (0, both[:1]) and "50 MiB free, and sglang.lock needs 18" in says[-1]
    (dir / "E/lock").unlink()
    rc, out, says = run()
    assert (rc, out) == (77, []) and "50 MiB free, and engines.lock needs 5" in says[-1]


def test_an_environment_has_a_time_limit(tmp_path):
    """A pip that hangs is ended; what was there before stays."""
    for name, text in (("python3", FAKE_PYTHON), ("pip", "#!/bin/sh\n[ $1 != install ] || sleep 1000\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o700)
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "engines/environments")
    ran = subprocess.run([script, str(tmp_path / "made")], capture_output=True, text=True, env={
        "PATH": os.environ["PATH"], "PYTHON": str(tmp_path / "python3"), "TEST_ENGINES_LIMIT": "1"})
    assert ran.returncode == 77 and "the time was up (TEST_ENGINES_LIMIT)" in ran.stderr


# ---- SGLang ----

TOKENS, LAYERS, HEADS, DIM, PAGES = 4, 3, 2, 8, 6


class Indices(list):
    """A tensor of slots, as far as it is used."""

    def tolist(self):
        return list(self)

    def __getitem__(self, at):
        return Indices(super().__getitem__(at)) if isinstance(at, slice) else super().__getitem__(at)

    def new_tensor(self, values):
        return Indices(values)


class Memory(bytearray):
    def data_ptr(self):
        return ctypes.addressof(ctypes.c_char.from_buffer(self))


class Pool:
    """A host pool of SGLang in its three layouts, for MHA (two planes) or MLA (one)."""

    def __init__(self, layout, planes=2, split=False):
        self.layout, self.page_size, self.size = layout, TOKENS, TOKENS * PAGES
        self.dtype = "bf16"
        self.token = HEADS * DIM * 2
        self.plane = self.token * LAYERS * self.size
        self.planes = planes
        self.page_bytes = planes * LAYERS * TOKENS * self.token
        self.free_slots = Indices(range(self.size))
        self.kv_buffer = Memory(os.urandom(planes * self.plane))
        self.base = self.kv_buffer.data_ptr()
        if split:  # K and V in buffers of their own
            self.kept, self.kv_buffer = self.kv_buffer, (self.kv_buffer, self.kv_buffer)

    def get_page_buffer_meta(self, indices):
        pointers, page = [], TOKENS * self.token
        for slot in list(indices)[::TOKENS]:
            if self.layout == "layer_first":
                for layer in range(LAYERS):
                    pointers += [self.base + plane * self.plane + (layer * self.size + slot) * self.token
                                 for plane in range(self.planes)]
            else:
                pointers += [self.base + plane * self.plane + slot * LAYERS * self.token
                             for plane in range(self.planes)]
        size = page if self.layout == "layer_first" else page * LAYERS
        return pointers, [size] * len(pointers)

    def page(self, number):
        pointers, sizes = self.get_page_buffer_meta(Indices(range(number * TOKENS, (number + 1) * TOKENS)))
        return b"".join(ctypes.string_at(pointer, size) for pointer, size in zip(pointers, sizes))


def config(**more):
    return SimpleNamespace(**{**dict(tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1,
                                     is_mla_model=False, model_name="m", extra_config={"kvcl": {"pool": "1M"}}),
                              **more})


def slots(*pages):
    return Indices(slot for page in pages for slot in range(page * TOKENS, (page + 1) * TOKENS))


@pytest.mark.parametrize("layout", ["layer_first", "page_first", "page_first_direct"])
@pytest.mark.parametrize("planes", [1, 2])
@pytest.mark.parametrize("split", [False, True])
def test_sglang_pages_return_as_they_were(layout, planes, split):
    pool = Pool(layout, planes, split)
    storage = sglang.Storage(config(is_mla_model=planes == 1), {})
    storage.register_mem_pool_host(pool)
    assert (storage._pages.layout is None) == split and storage._pages.page_bytes == pool.page_bytes
    keys = [f"{i:064x}" for i in range(3)]
    assert storage.batch_exists(keys) == 0
    assert storage.batch_set_v1(keys[:2], slots(0, 3)) == [True, True]
    assert storage.batch_exists(keys) == 2 and storage.exists(keys[0]) and not storage.exists(keys[2])
    before, others = [pool.page(0), pool.page(3)], [pool.page(i) for i in (0, 3, 4, 5)]
    assert before[0] != before[1]
    assert storage.batch_get_v1(keys, slots(2, 1, 0)) == [True, True, False]
    assert [pool.page(2), pool.page(1)] == before
    assert [pool.page(i) for i in (3, 4, 5)] == others[1:]  # no other page has changed
    assert storage.batch_exists(keys[::-1]) == 0  # a leading run
    storage.close()
    assert storage.batch_set_v1(keys, slots(0, 1, 2)) == [False] * 3 and storage.batch_exists(keys) == 0


def test_sglang_single_pages():
    storage = sglang.Storage(config(), {})
    storage.register_mem_pool_host(Pool("page_first"))
    value = memoryview(bytearray(os.urandom(1000)))
    assert storage.set("a", value) and storage.get("b", memoryview(bytearray(1000))) is None
    out = memoryview(bytearray(1000))
    assert storage.get("a", out) is out and bytes(out) == bytes(value)
    assert storage.batch_get(["a"], None) == [None] and not storage.batch_set(["a"], [None])
    assert storage.clear() and storage.get("a", out) is None
    storage.close()
    assert not storage.clear()


class States:
    """A pool of v2: one slot a page, of two pieces."""

    def __init__(self, slots=8):
        self.page_size, self.layout, self.dtype = 1, "page_first", "f32"
        self.memory = Memory(os.urandom(slots * 300))

    def get_page_buffer_meta(self, indices):
        base = self.memory.data_ptr()
        return [base + slot * 300 + at for slot in indices for at in (0, 100)], [100, 200] * len(indices)

    def slot(self, i):
        return bytes(self.memory[i * 300:(i + 1) * 300])


def transfer(name, keys, indices=None, policy="all_pages"):
    return SimpleNamespace(name=name, keys=keys, host_indices=None if indices is None else Indices(indices),
                           hit_policy=policy)


def test_sglang_which_lengths_a_pool_restores():
    def lengths(policy, window, present):
        hit, good = _sglang_pools.restorable(policy, window, [one == "x" for one in present])
        return hit, sorted(good)

    assert lengths("all_pages", 9, "xx.x") == (2, [1, 2]) and lengths("all_pages", 1, "") == (0, [])
    assert lengths("trailing_pages", 1, "x..x") == (4, [1, 4])
    assert lengths("trailing_pages", 2, "xx.xx") == (5, [1, 2, 5])
    assert lengths("trailing_pages", 2, ".xx.") == (3, [3]) and lengths("trailing_pages", 3, "....") == (0, [])


def test_sglang_pools_of_version_2():
    pool, states = Pool("page_first"), States()
    storage = sglang.Storage(config(), {})
    storage.register_mem_pool_host(pool)
    storage.register_mem_host_pool_v2(pool, "kv")
    storage.register_mem_host_pool_v2(states, "mamba")
    storage.on_host_pools_registered()
    keys = [f"{i:064x}" for i in range(4)]
    assert storage.batch_set_v1(keys[:3], slots(0, 1, 2)) == [True] * 3
    tail = transfer("mamba", keys[1:3], [4, 5], "trailing_pages")
    assert storage.batch_set_v2([tail]) == {"mamba": [True, True]}
    was = [states.slot(i) for i in range(8)]
    found = storage.batch_exists_v2(keys, [transfer("mamba", keys[1:3], None, "trailing_pages")])
    assert (found.kv_hit_pages, found.extra_pool_hit_pages, found.restorable_prefix_pages) == (
        3, {"kv": 3, "mamba": 3}, [3])
    found = storage.batch_exists_v2(keys, [transfer("mamba", keys[2:3], None, "trailing_pages"),
                                           transfer("swa", keys, None, "all_pages")])
    assert (found.kv_hit_pages, found.extra_pool_hit_pages) == (0, {"kv": 3, "mamba": 3})
    assert storage.batch_exists_v2(keys, [transfer("swa", keys, None, "block_groups")]).kv_hit_pages == 3
    assert storage.batch_exists_v2(keys[3:]).kv_hit_pages == 0 and storage.batch_exists_v2(keys).kv_hit_pages == 3
    before = [pool.page(0), pool.page(1)]
    got = storage.batch_get_v2([transfer("mamba", keys[1:], [0, 1, 2]), transfer("kv", keys[:2], slots(3, 4)),
                                transfer("none", keys[:1], [0])])
    assert got == {"mamba": [True, True, False], "kv": [True, True], "none": [False]}
    assert [states.slot(i) for i in (0, 1)] == was[4:6] and [states.slot(i) for i in range(3, 8)] == was[3:]
    assert [pool.page(3), pool.page(4)] == before
    storage.close()
    assert storage.batch_get_v2([tail]) == {"mamba": [False, False]}


def test_sglang_a_pool_of_indices_alone():
    """All bytes are in the pools of v2, and the first page that is stored gives the size of a block."""
    states = States()
    storage = sglang.Storage(config(is_mla_model=True, tp_size=2), {})
    storage.register_mem_pool_host(SimpleNamespace(kv_buffer=None, page_size=TOKENS))
    storage.register_mem_host_pool_v2(states, "deepseek_v4_c4")
    storage.on_host_pools_registered()
    keys = [f"{i:064x}" for i in range(3)]
    assert storage.batch_exists_v2(keys, [transfer("deepseek_v4_c4", keys)]).kv_hit_pages == 0
    assert storage.batch_set_v2([transfer("deepseek_v4_c4", keys[:2], [0, 1])]) == {"deepseek_v4_c4": [True, True]}
    assert storage.batch_exists_v2(keys, [transfer("deepseek_v4_c4", keys)]).kv_hit_pages == 2
    was = states.slot(1)
    assert storage.batch_get_v2([transfer("deepseek_v4_c4", keys[1:2], [7])]) == {"deepseek_v4_c4": [True]}
    assert states.slot(7) == was
    mine = storage._pool_keys("deepseek_v4_c4", keys), storage._pool_keys("mamba", keys)
    storage._config = config(is_mla_model=True, tp_size=2, tp_rank=1)
    assert storage._pool_keys("deepseek_v4_c4", keys) == mine[0]  # the same on all ranks, and states are not
    assert storage._pool_keys("mamba", keys) != mine[1]
    storage.close()


def test_sglang_keys_differ_where_bytes_do():
    shapes = [sglang.suffix_of(config(**more), shape) for more, shape in (
        ({}, "x"), ({}, "y"), ({"model_name": "n"}, "x"), ({"tp_size": 2}, "x"), ({"tp_size": 2, "tp_rank": 1}, "x"),
        ({"pp_size": 2}, "x"), ({"pp_size": 2, "pp_rank": 1}, "x"), ({"attn_cp_size": 2}, "x"), ({"dcp_size": 2}, "x"))]
    assert len(set(shapes)) == len(shapes)
    assert sglang.suffix_of(config(is_mla_model=True, tp_size=2, tp_rank=1), "x") == \
        sglang.suffix_of(config(is_mla_model=True, tp_size=2), "x")


def test_sglang_a_pool_that_cannot_be_read_costs_misses_alone(lines):
    storage = sglang.Storage(config(), {})
    storage.register_mem_pool_host(SimpleNamespace(page_size=TOKENS, layout="new"))
    assert storage.batch_set_v1(["a"], slots(0)) == [False] and storage.batch_get_v1(["a"], slots(0)) == [False]
    assert storage.batch_exists(["a"]) == 0 and len(lines()) == 1 and "new" in lines()[0]
    with pytest.raises(ValueError, match="'pool'"):
        sglang.Storage(config(extra_config={"kvcl": {"pools": 1}}))
    with pytest.raises(ValueError, match="object"):
        sglang.Storage(config(extra_config={"kvcl": "pool"}))
