"""The parts of kvcl.vllm that need no vLLM: options, fields and keys, forms of memory, the plan, lookups, transfers."""

import json
import logging
import os
import signal
import subprocess
import sys

import kvcl
import pytest
from kvcl._client import TEXT_MAX
from kvcl._introduce import explain
from kvcl._job import Job
from kvcl.vllm import _fields, _options, _pages, _tier_jobs
from kvcl.vllm._link import Link
from kvcl.vllm._lookups import Lookups
from kvcl.vllm._plan import Load, Plan, Save, part_name
from kvcl.vllm._tier_jobs import TierJobs, options_of
from kvcl.vllm._transfers import Transfers
from kvcl.vllm._watch import Watch

from conftest import LIMIT, chance
from test_client import Server, home, secret  # noqa: F401
from test_engines import until

FIELDS = {"model": "m", "dtype": "bf16", "block size": 16, "KV heads": 8}


def hashes(n, salt="h"):
    return [kvcl.key_from_string(f"{salt} {i}") for i in range(n)]


# ---- options ----


def test_options_have_defaults_and_are_listed():
    read = _options.read({"store": "/s", "timeout": 3, "min_tokens": 5.0})
    assert (read["load"], read["save"], read["timeout"], read["min_tokens"]) == ("auto", "prompt", 3.0, 5)
    printed = subprocess.run([sys.executable, "-m", "kvcl.vllm"], stdout=subprocess.PIPE, text=True, check=True).stdout
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../contrib/doc/vllm")) as file:
        page = file.read()
    for option in _options.OPTIONS:
        assert f"\n{option.name} " in "\n" + printed and f"\n    {option.name} " in page, option.name
    assert all(f"\n    {option.name} " in page for option in _tier_jobs.OPTIONS)


@pytest.mark.parametrize("given, sentence", [
    ({"store": "/s", "laod": "sync"}, "no option 'laod': did you mean 'load'?"),
    ({"store": "/s", "xyz": 1}, "no option 'xyz': there are store"),
    ({"store": "/s", "load": "later"}, "option load is 'later': one of auto, async, sync is"),
    ({"store": "/s", "timeout": "3"}, "option timeout is '3': a number is needed"),
    ({"store": "/s", "timeout": 0}, "option timeout is 0: seconds are needed, above 0"),
    ({"store": "/s", "retry": True}, "option retry is True: a number is needed"),
    ({"store": "/s", "min_tokens": 1.5}, "option min_tokens is 1.5: a number is needed, at least 0, without"),
    ({"store": 5}, "option store is 5: a string is needed"),
    ({}, "option store is missing"),
    ({"store": "/a,,/b"}, "option store is missing"),
    ({"store": "/a, none"}, "option store is '/a, none': none and files exclude each other"),
    ({"store": "none", "handover": "store"}, "option store is none: handover store needs one"),
    ({"store": "/s", "path": "udp"}, "option path is 'udp': one of auto, shm, tcp, rdma is possible"),
    ({"store": "/s", "timeout": float("nan")}, "option timeout is nan: seconds are needed"),
    ({"store": "/s", "timeout": 1 << 2000}, "seconds are needed, above 0, at most 1000000"),
    ({"store": "/s", "min_tokens": -1}, "option min_tokens is -1: a number is needed, at least 0"),
    ({"store": "/s", "by_layer": True}, "option by_layer is True: one of no, yes is possible"),
    ({"store": ["/s"]}, "option store is .*: a string is needed"),
    ({5: 1, "store": "/s"}, "no option 5"),
])
def test_wrong_options_are_refused_by_name(given, sentence):
    with pytest.raises(ValueError, match=sentence.replace("?", r"\?").replace("+", r"\+")):
        _options.read(given)


def test_the_class_needs_vllm_and_other_names_do_not_exist():
    import kvcl.vllm
    with pytest.raises(AttributeError, match="no attribute 'KVCLConector'"):
        kvcl.vllm.KVCLConector


# ---- fields and keys ----


def test_keys_differ_by_every_field_tenant_secret_hash_and_slice():
    roots = [_fields.root(FIELDS, ""), _fields.root(FIELDS, "a"), _fields.root(FIELDS, "", b"x" * 16)]
    roots += [_fields.root(dict(FIELDS, **{name: "other"}), "") for name in FIELDS]
    assert len(set(roots)) == len(roots)
    names = _fields.keys(roots[0], hashes(3), range(4))
    assert len(set(names)) == 12 and names == _fields.keys(roots[0], hashes(3), range(4))
    assert names[4:8] == _fields.keys(roots[0], hashes(3)[1:2], range(4))
    assert not set(names) & set(_fields.keys(roots[1], hashes(3), range(4)))


def test_what_differs_is_named():
    own = _fields.text(FIELDS, "t")
    other = _fields.text(dict(FIELDS, dtype="fp16"), "t")
    far = _fields.text(dict(FIELDS, dtype="fp16", model="n"), "t")
    assert explain(own, [far, other]) == "dtype is 'bf16' here and 'fp16' there"
    assert explain(own, [other, own]) is None
    assert explain(own, [_fields.text(dict(FIELDS, dtype="x"), "another tenant"), "no json", "[]", '"x"', "[" * 1024,
                         json.dumps({"form": "lmcache"})]) is None


def test_an_introduction_fits_whatever_names_an_engine_has():
    fields = dict(FIELDS, revision="")
    assert _fields.introduction(fields, "t") == _fields.text(fields, "t")
    longer = dict(fields, model="/models/" + "m" * 4000)
    said = _fields.introduction(longer, "t" * 2000)
    assert len(said) <= TEXT_MAX and said == _fields.introduction(longer, "t" * 2000)
    assert explain(said, [_fields.introduction(dict(longer, dtype="x"), "t" * 2000)]) == \
        "dtype is 'bf16' here and 'x' there"
    assert explain(said, [_fields.introduction(longer, "u" * 2000)]) is None
    assert "model is" in explain(said, [_fields.introduction(dict(longer, model="n" * 4000), "t" * 2000)])


def test_a_tenants_secret_is_a_file(tmp_path):
    (tmp_path / "s").write_bytes(b"x" * 15)
    with pytest.raises(ValueError, match="has 15 bytes"):
        _fields.tenant_secret(str(tmp_path / "s"))
    (tmp_path / "s").write_bytes(b"x" * 16)
    assert _fields.tenant_secret(str(tmp_path / "s")) == b"x" * 16 and _fields.tenant_secret("") == b""


# ---- forms of memory ----


def test_heads_that_follow_each_other_are_blocks_of_their_own():
    shape = ((100, 2, 16, 128), (2 * 16 * 128, 16 * 128, 128, 1), 2)
    pages = _pages.pages([shape] * 4, 100)
    assert (pages.parts, pages.whole) == (2, False)
    assert pages.layout.block_bytes == 4 * 16 * 128 * 2 and pages.layout.blocks == 200
    assert pages.layout.base_bytes == 100 * 2 * 16 * 128 * 2


def test_other_dense_blocks_are_one_part():
    nhd = ((100, 2, 16, 128), (2 * 16 * 128, 128, 2 * 128, 1), 2)
    pages = _pages.pages([nhd] * 3, 100)
    assert (pages.parts, pages.whole, pages.layout.block_bytes) == (1, True, 3 * 2 * 16 * 128 * 2)
    kernel = ((200, 2, 8, 128), (2 * 8 * 128, 8 * 128, 128, 1), 2)  # two of the kernel's blocks are one of vLLM's
    pages = _pages.pages([kernel], 100)
    assert (pages.parts, pages.whole, pages.layout.block_bytes) == (1, True, 2 * 2 * 8 * 128 * 2)
    among = ((100, 2, 16, 128), (4 * 2 * 16 * 128, 128, 2 * 128, 1), 2)  # all layers of a block together
    pages = _pages.pages([among] * 4, 100)
    assert pages.whole and pages.layout.block_stride == 4 * 2 * 16 * 128 * 2
    among = ((100, 2, 16, 128), (4 * 2 * 16 * 128, 16 * 128, 128, 1), 2)
    assert _pages.pages([among] * 4, 100).whole


@pytest.mark.parametrize("shapes, blocks, sentence", [
    ([], 1, "no layer"),
    ([((4, 1, 1, 8), (8, 8, 8, 1), 2), ((4, 1, 1, 16), (16, 16, 16, 1), 2)], 4, "different shapes"),
    ([((2, 4, 16, 2, 64), (1, 1, 1, 1, 1), 2)], 4, "is known"),
    ([((5, 1, 1, 8), (8, 8, 8, 1), 2)], 4, "5 blocks for the 4"),
    ([((4, 2, 16, 8), (128, 512, 8, 1), 2)], 4, "not contiguous"),
])
def test_forms_that_cannot_be_shared_are_named(shapes, blocks, sentence):
    with pytest.raises(ValueError, match=sentence):
        _pages.pages(shapes, blocks)


def test_each_head_is_saved_once_and_held_by_whoever_needs_it():
    for heads, tp in ((8, 1), (8, 2), (8, 8), (2, 8), (1, 4)):
        parts, saved = max(1, heads // tp), []
        for rank in range(tp):
            slices, saves = _pages.share(heads, tp, rank, parts, False)
            assert len(slices) == parts
            saved += slices if saves else []
        assert sorted(saved) == list(range(heads)) 
    assert _pages.share(8, 4, 3, 1, True) == ([3], True)


# ---- the plan ----


def plan_with(prompt=700, n=5, save="prompt", params=None, size=128):
    plan, names = Plan(size, save), hashes(n)
    plan.add("r", prompt, names, params)
    return plan, names


def saves(work):
    return [(one.request, one.names, one.blocks) for one in work.saves]


def test_full_blocks_are_looked_for_beyond_the_engines_own_but_never_the_last_token():
    plan, names = plan_with()
    assert plan.wanted("r", 700, 0) == (0, names)
    assert plan.wanted("r", 700, 256) == (2, names[2:])
    assert plan.wanted("r", 640, 0) == (0, names[:4])
    assert plan.tokens("r", 256, 2, 2) == 256 and plan.tokens("r", 256, 2, 0) == 0


def test_blocks_are_saved_once_they_are_computed_and_only_once():
    plan, names = plan_with()
    table = list(range(50, 56))
    assert saves(plan.step([("r", 200)], lambda r: table)) == [("r", names[:1], [50])]
    assert saves(plan.step([("r", 255)], lambda r: table)) == []
    assert saves(plan.step([("r", 700)], lambda r: table)) == [("r", names[1:5], [51, 52, 53, 54])]
    assert saves(plan.step([("r", 701)], lambda r: table)) == []


def test_after_a_reset_requests_that_have_blocks_save_nothing_and_their_leases_end():
    plan = Plan(128, "prompt", 1, b"b" * 32)
    plan.peers[0] = "address"
    free = len(plan._slots)
    for name in ("ended", "running"):
        plan.add(name, 300, hashes(2, name), {"do_remote_decode": True})
        assert len(plan.step([(name, 300)], lambda r: [1, 2, 3]).leases) == 1
    assert plan.finished("ended")[0]
    plan.reset(b"m")
    work = plan.step([("running", 301)], lambda r: [1, 2, 3])
    assert work.resets == [b"m"] and sorted(work.dropped) == ["ended", "running"] and not work.saves
    plan.load_failed([1])
    assert not plan.step([("running", 302)], lambda r: [1, 2, 3]).saves
    plan.freed(["ended"])
    assert len(plan._slots) == free - 1  # the running one is leased again
    plan.add("new", 300, hashes(2, "new"), None)
    work = plan.step([("new", 300)], lambda r: [4, 5, 6])
    assert [one.blocks for one in work.saves] == [[4, 5]] and work.resets == []


def test_generated_blocks_are_saved_if_asked_for():
    for save, more in (("prompt", []), ("all", [2])):
        plan, names = plan_with(300, 2, save)
        plan.step([("r", 300)], lambda r: [1, 2, 3])
        names.append(kvcl.key_from_string("generated"))
        assert [blocks[1:] for _, _, blocks in saves(plan.step([("r", 400)], lambda r: [0, 1, 2]))] == \
            ([[]] if more else [])
        assert saves(plan.step([("r", 401)], lambda r: [0, 1, 2])) == []
    assert saves(plan_with(300, 2, "none")[0].step([("r", 300)], lambda r: [1, 2, 3])) == []


def test_loaded_blocks_are_not_saved_again_unless_they_failed():
    plan, names = plan_with()
    plan.load("r", 128, 256, [9, 10, 11, 12, 13, 14])
    work = plan.step([], lambda r: [])
    assert work.loads == [Load("r", names[1:3], [10, 11])] and plan.step([], lambda r: []).loads == []
    table = [9, 10, 11, 12, 13, 14]
    assert saves(plan.step([("r", 700)], lambda r: table)) == [("r", [names[0], *names[3:5]], [9, 12, 13])]
    assert plan.load_failed([11]) == []
    assert plan.wanted("r", 700, 0) == (0, [])
    assert saves(plan.step([("r", 700)], lambda r: table)) == [("r", names[1:5], [10, 11, 12, 13])]


def test_requests_whose_step_waited_for_a_load_that_failed_are_named():
    plan = Plan(128, "none")
    for number, name in enumerate(("a", "b", "c")):
        plan.add(name, 300, hashes(2, name), None)
        plan.load(name, 0, 256, [10 * number, 10 * number + 1, 10 * number + 2], waited=name != "b")
    assert plan.load_failed([1, 11]) == ["a"] and plan.load_failed([20]) == ["c"] and plan.load_failed([22]) == []


def test_blocks_are_kept_while_saves_are_under_way():
    plan = Plan(128, "prompt", workers=2)
    for name in ("a", "b", "c"):
        plan.add(name, 300, hashes(2, name), None)
    plan.step([("a", 300), ("b", 300), ("c", 100)], lambda r: [1, 2, 3])
    plan.save_ended({"a": 2, "b": 1, "unknown": 5})
    assert [plan.finished(name) for name in ("a", "b", "c", "unknown")] == [(False, None), (True, None), (False, None),
                                                                           (False, None)]
    assert plan.step([], lambda r: []).kept == ["b"] and plan.step([], lambda r: []).kept == []
    assert len(plan) == 0


def test_preempted_requests_are_named_to_the_workers():
    plan, _ = plan_with()
    assert plan.step([], lambda r: [], ["r", "unknown"]).preempted == ["r"]


@pytest.mark.parametrize("prompt", [17, 128, 129, 700, 768])
def test_a_prompt_is_handed_over_with_its_partial_block(prompt):
    full, size = prompt // 128, 128
    names = hashes(full)
    prefill, decode = Plan(size, "prompt"), Plan(size, "none")
    prefill.add("p", prompt, names, {"do_remote_decode": True})
    given = [one for _, some, _ in saves(prefill.step([("p", prompt)], lambda r: range(10, 20))) for one in some]
    _, params = prefill.finished("p")
    assert params["do_remote_prefill"] and params["kvcl_tokens"] == prompt
    decode.add("d", prompt, names, params)
    assert decode.expects("d")
    first, wanted = decode.wanted("d", prompt, 0)
    assert first == 0 and sorted(wanted) == sorted(given) and len(wanted) == -(-prompt // size)
    assert decode.tokens("d", 0, 0, len(wanted)) == prompt
    decode.load("d", 0, prompt, range(30, 40))
    load, = decode.step([], lambda r: []).loads
    assert load.names == wanted and load.blocks == list(range(30, 30 + len(wanted)))
    assert load.parts == ([part_name(params["kvcl_id"], full, names, b"")] if prompt % size else [])
    decode.give_up("d")
    assert not decode.expects("d") and decode.wanted("d", prompt, 0)[1] == names[:(prompt - 1) // size]


@pytest.mark.parametrize("params", [{}, {"do_remote_prefill": True}, {"do_remote_prefill": True, "kvcl_id": 5},
                                    {"do_remote_prefill": True, "kvcl_id": "x", "kvcl_tokens": 701},
                                    {"do_remote_prefill": True, "kvcl_id": "x", "kvcl_tokens": "5"},
                                    {"do_remote_prefill": True, "kvcl_id": "x", "kvcl_tokens": -1}])
def test_parameters_of_another_form_are_no_handover(params):
    assert not plan_with(params=params)[0].expects("r")


# ---- lookups and transfers, over a link of this test ----


class FakeCall:
    def __init__(self, result=None, error=None, done=True):
        self.result, self.error, self.done = result, error, done

    def wait_step(self, seconds):
        pass


class FakeLink:
    """A store whose answers the test decides."""

    def __init__(self):
        self.calls, self.client = [], self

    def ready(self):
        return self.client

    def progress(self):
        pass

    def wait(self, call, seconds):
        self.waited = seconds

    def _post(self, *what):
        call = FakeCall(done=False)
        self.calls.append((what, call))
        return call

    def match(self, keys):
        return self._post("match", keys)

    def get(self, keys, cache, ids, layers=None):
        self.layers = layers
        return self._post("get", keys, ids)

    def save(self, keys, cache, ids, stream=None, layers=None):
        self.layers = layers
        return self._post("save", keys, ids)

    def remove(self, keys):
        return self._post("remove", keys)

    def exists(self, keys):
        return self._post("exists", keys)

    def answer(self, result=None, error=None):
        what, call = self.calls.pop(0)
        call.result, call.error, call.done = result, error, True
        return what


def lookups(plan, link, **options):
    return Lookups(link, plan, lambda names: [name + bytes([part]) for name in names for part in range(2)], 2,
                   {"match_timeout": 60.0, "handover_timeout": 60.0, "store": "/s", **options})


def test_a_lookup_is_asked_once_and_its_answer_stays():
    plan, _ = plan_with()
    link = FakeLink()
    look = lookups(plan, link)
    assert look.ask("r", 700, 128) is None and look.ask("r", 700, 128) is None
    assert len(link.calls) == 1 and len(link.answer(7)[1]) == 8
    assert look.ask("r", 700, 128) == 384 and look.ask("r", 700, 128) == 384 and not link.calls
    assert look.ask("r", 700, 256) is None and len(link.calls) == 1  # the engine's own cache has more meanwhile


def test_a_lookup_with_patience_waits_for_its_answer_once():
    plan, _ = plan_with()
    link = FakeLink()
    look = lookups(plan, link)
    link.wait = lambda call, seconds: link.answer(3 * seconds)
    assert look.ask("r", 700, 128, 2) == 384 and look.ask("r", 700, 128, 2) == 384 and not link.calls
    link.wait = lambda call, seconds: setattr(link, "waited", seconds)  # no answer in this time
    assert look.ask("r", 700, 0, 2) is None and link.waited == 2
    link.waited = None
    assert look.ask("r", 700, 0, 2) is None and link.waited is None and len(link.calls) == 1


def test_questions_of_many_requests_are_spread_over_steps(monkeypatch):
    plan, link, clock, asked = Plan(128, "prompt"), FakeLink(), [100.0], []
    monkeypatch.setattr("kvcl.vllm._lookups.time.monotonic", lambda: clock[0])
    look = lookups(plan, link)

    def match(keys):
        clock[0] += 0.0004
        asked.append(keys)
        return FakeCall(done=False)

    link.match = match
    for i in range(20):
        plan.add(f"r{i}", 700, hashes(5, f"{i}"), None)
    for longer, questions in ((0.0, 3), (0.04, 6), (0.0, 12)):  # 1 ms, and after 40 ms, 2 ms
        for i in range(20):
            assert look.ask(f"r{i}", 700, 0) is None
        assert len(asked) == questions
        clock[0] += longer
        look.step()
    assert len(set(map(tuple, asked))) == 12
    clock[0] += 61
    assert look.ask("r19", 700, 0) == 0  # one that was not asked for is computed as well


def test_a_link_waits_no_longer_than_its_patience(monkeypatch):
    clock, call = [100.0], FakeCall(done=False)

    def wait_step(seconds):  # a step that ends before its time, and one that takes all of it
        clock[0] += min(seconds, 0.75)

    monkeypatch.setattr("kvcl.vllm._link.time.monotonic", lambda: clock[0])
    call.wait_step = wait_step
    Link({}, logging.getLogger("test"), "").wait(call, 1.0)
    assert clock[0] == 101.0


def test_a_link_changes_to_another_rank_when_its_own_is_killed_or_silent(home, tmp_path):  # noqa: F811
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    servers = [Server(tmp_path / name) for name in ("one", "two")]
    (tmp_path / "other").write_bytes(b"\xff no address\n")
    files = [f"{tmp_path}/no", f" {servers[0].file}", servers[1].file, f"{tmp_path}/other"]
    options = {**_options.read({"store": ",".join(files)}), "retry": 0.05}
    link = Link(options, logging.getLogger("test"), _fields.text(FIELDS, ""))

    def connected(times, patience=LIMIT):
        until(lambda: link.ready() and link.connections == times)
        options["match_timeout"] = patience
        call = link.client.match(hashes(3))
        until(lambda: link.progress() or call.done)
        return call

    try:
        link.start()
        assert connected(1).result == 0
        servers[0].stop()
        assert connected(1, 0.4).error is not None  # long before the timeout of 10 s
        assert connected(2).result == 0
        servers[0].process.send_signal(signal.SIGCONT)
        servers[1].end(signal.SIGKILL)
        assert connected(2, 0.4).error is not None  # by which it is noticed
        assert connected(3).result == 0
    finally:
        link.close()
        servers[0].end(signal.SIGKILL)


def test_a_link_with_another_secret_says_so_once_and_serves_without(home, caplog):  # noqa: F811
    server, other = Server(home), secret(home, "other", "another of 24 letters...")
    options = {**_options.read({"store": server.file, "secret_file": other}), "retry": 0.05}
    link, attempts = Link(options, logging.getLogger("test"), _fields.text(FIELDS, "")), []
    reach = link._reach
    link._reach = lambda context: attempts.append(1) or reach(context)
    try:
        link.start()
        until(lambda: len(attempts) > 3)
        said = [one.getMessage() for one in caplog.records if one.name == "test"]
        assert link.ready() is None and len(said) == 1 and "no store yet" in said[0] and "secret" in said[0], said
        server.end(signal.SIGKILL)
        server = Server(home, env={"KVCL_SECRET_FILE": other})
        until(link.ready)
    finally:
        link.close()
        server.end(signal.SIGKILL)


def test_a_lookup_without_store_answer_or_time_is_a_miss():
    plan, _ = plan_with()
    link = FakeLink()
    link.client = None
    assert lookups(plan, link).ask("r", 700, 0) == 0
    link.client = link
    look = lookups(plan, link)
    assert look.ask("r", 700, 0) is None
    link.answer(error=kvcl.RankFailed("x"))
    assert look.ask("r", 700, 0) == 0
    link.calls.clear()
    look = lookups(plan, link, match_timeout=0.0)
    assert look.ask("r", 700, 0) == 0 and lookups(plan, link).ask("r", 100, 0) == 0 and not link.calls


def test_without_a_store_nothing_is_waited_for():
    plan, _ = plan_with(params={"do_remote_prefill": True, "kvcl_id": "x", "kvcl_tokens": 700})
    link = FakeLink()
    link.client = None
    assert lookups(plan, link, store="none").ask("r", 700, 0) == 0 and not plan.expects("r")


def test_stored_blocks_are_told_when_all_workers_have_saved_them():
    class Owner:
        all_token_ids = list(range(2000))

    plan, names = Plan(128, "prompt", workers=2), hashes(5)
    plan.tells = True
    plan.add("r", 700, names, None, owner=Owner)
    plan.load("r", 128, 128, [9, 10, 11, 12, 13, 14])
    save, = plan.step([("r", 700)], lambda r: [9, 10, 11, 12, 13, 14]).saves
    assert save.number and save.names == [names[0], *names[2:5]]
    plan.told({save.number: True})
    assert plan.take_stored() == []
    plan.told({save.number: True, 999: True})
    first, second = plan.take_stored()
    assert (first.names, first.parent, first.tokens) == (names[:1], None, list(range(128)))
    assert (second.names, second.parent, second.tokens) == (names[2:], names[1], list(range(256, 640)))
    assert plan.take_stored() == []
    plan.add("s", 300, hashes(2, "s"), None, owner=Owner)
    save, = plan.step([("s", 300)], lambda r: [1, 2, 3]).saves
    plan.told({save.number: False})
    plan.told({save.number: True})
    assert plan.take_stored() == []


def test_a_save_tells_its_number_with_its_outcome():
    link = FakeLink()
    moves = transfers(link)
    for number, status in ((1, kvcl.Status.OK), (2, kvcl.Status.ERR_NO_SPACE)):
        moves.save(Save("a", hashes(1), [1], number))
        link.answer([kvcl.Status.OK, status])
    moves.poll()
    assert moves.take_told() == {1: True, 2: False} and moves.take_told() == {}
    copy = transfers(link, saves=False)
    copy.save(Save("a", hashes(1), [1], 3))
    assert copy.take_told() == {3: True}


@pytest.fixture
def watch(monkeypatch):
    """A watch over a fake store, and its clock."""
    clock = [0.0]
    monkeypatch.setattr("kvcl.vllm._watch.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("kvcl.vllm._watch.KEYS", 6)
    link = FakeLink()
    return Watch(link, lambda names: [name + bytes([part]) for name in names for part in range(2)], 2), link, clock


def test_blocks_that_lack_a_part_in_the_store_are_dropped(watch):
    watch, link, clock = watch
    names = hashes(5)
    assert watch.dropped() == [] and not link.calls
    watch.stored(names)
    assert watch.dropped() == [] and watch.dropped() == [] and len(link.calls) == 1
    assert link.answer([True, True, True, False, False, True])[1] == [n + bytes([p]) for n in names[:3] for p in (0, 1)]
    assert watch.dropped() == names[1:3] and watch.dropped() == [] and not link.calls  # not at once
    clock[0] += 0.2
    watch.dropped()
    assert len(link.answer([True] * 6)[1]) == 6  # the two that were not asked for, and the first again
    assert watch.dropped() == []
    clock[0] += 0.2
    watch.dropped()
    link.answer(error=kvcl.TimedOut("late"))
    assert watch.dropped() == [] and set(watch._blocks) == {names[0], *names[3:]}


def test_a_block_that_was_stored_again_since_it_was_asked_for_is_not_dropped(watch):
    watch, link, _ = watch
    names = hashes(2)
    watch.stored(names)
    watch.dropped()
    watch.stored(names[:1])
    link.answer([False] * 4)
    assert watch.dropped() == names[1:]


def test_a_lost_store_and_a_reset_drop_all_blocks(watch, monkeypatch):
    watch, link, _ = watch
    watch.stored(hashes(2))
    link.client = None
    assert watch.dropped() == hashes(2) and watch.dropped() == []
    link.client = link
    watch.stored(hashes(3))
    watch.clear()
    assert watch.dropped() == hashes(3)
    monkeypatch.setattr("kvcl.vllm._watch.MOST", 2)
    watch.stored(hashes(3))
    assert watch.dropped() == hashes(1)


def test_a_handover_is_waited_for_and_given_up():
    plan, _ = plan_with(params={"do_remote_prefill": True, "kvcl_id": "x", "kvcl_tokens": 700})
    link = FakeLink()
    look = lookups(plan, link)
    assert look.ask("r", 700, 0) is None
    link.answer(11)  # of 12
    assert look.ask("r", 700, 0) is None
    while not link.calls:
        assert look.ask("r", 700, 0) is None
    link.answer(12)
    assert look.ask("r", 700, 0) == 700
    plan, _ = plan_with(params={"do_remote_prefill": True, "kvcl_id": "x", "kvcl_tokens": 700})
    assert lookups(plan, link, handover_timeout=0.0).ask("r", 700, 0) == 0 and not plan.expects("r")


class FakeCache:
    block_bytes = 100
    layout = kvcl.Layout(layers=3)


def transfers(link, saves=True, slices=(0, 1), by_layer=False):
    out = Transfers(link, b"r" * 32, list(slices), saves, logging.getLogger("test"), by_layer)
    out.cache = FakeCache()
    return out


def test_a_load_names_its_request_when_it_has_ended_and_the_blocks_that_failed():
    link = FakeLink()
    moves = transfers(link)
    moves.load(Load("a", hashes(3), [7, 8, 9]))
    assert moves.finished() == (set(), set())
    assert link.answer([kvcl.Status.OK] * 3 + [kvcl.Status.ERR_NOT_FOUND] + [kvcl.Status.OK] * 2)[2] == \
        [14, 15, 16, 17, 18, 19]
    assert moves.finished() == (set(), {"a"}) and moves.failed() == {8} and moves.failed() == set()
    counts = moves.take_counts()
    assert (counts["loaded_blocks"], counts["failed_blocks"], counts["loaded_bytes"]) == (2, 1, 400)
    moves.load(Load("b", hashes(1), [3]))
    link.answer(error=TypeError("a fault"))
    assert moves.finished() == (set(), {"b"}) and moves.failed() == {3}


def test_without_a_store_a_load_fails_at_once_and_a_save_is_none():
    link = FakeLink()
    link.client = None
    moves = transfers(link)
    moves.load(Load("a", hashes(2), [1, 2]))
    moves.save(Save("a", hashes(2), [1, 2]))
    assert moves.finished() == (set(), {"a"}) and moves.failed() == {1, 2} and moves.take_done() == {"a": 1}


def test_a_load_that_no_step_waits_for_moves_between_layers():
    link = FakeLink()
    moves, looks = transfers(link), []
    link.progress = lambda: looks.append(1)
    moves.between_layers()
    assert not looks  # nothing is loaded
    moves.load(Load("a", hashes(1), [1]))
    moves.between_layers()
    assert looks


def test_a_waited_load_is_not_named_and_its_partial_block_is_removed():
    link = FakeLink()
    moves = transfers(link)
    moves.load(Load("a", hashes(1), [1], hashes(1), True))
    link.answer([kvcl.Status.OK] * 2)
    moves.wait_loads()
    assert moves.finished() == (set(), set()) and link.answer()[0] == "remove"


def test_a_waited_load_by_layers_is_waited_for_layer_by_layer():
    link = FakeLink()
    moves = transfers(link, by_layer=True)
    moves.wait_layer(0)  # nothing is loaded
    moves.load(Load("a", hashes(1), [1], waited=True))
    arrivals = iter(range(3))

    def progress():
        layer = next(arrivals, None)
        if layer is not None:
            link.layers.there.add(layer)

    link.progress = progress
    for layer in range(3):
        moves.wait_layer(layer)
        assert link.layers.there >= set(range(layer + 1)) and not moves.failed()
    link.answer([kvcl.Status.OK, kvcl.Status.ERR_NOT_FOUND])
    moves.wait_loads()
    assert moves.failed() == {1} and moves.finished() == (set(), set())
    moves.load(Load("b", hashes(1), [2]))
    assert link.layers is None  # nothing waits for its layers


def test_a_failed_load_by_layers_ends_the_wait():
    link = FakeLink()
    moves = transfers(link, by_layer=True)
    moves.load(Load("a", hashes(1), [1], waited=True))
    link.answer(error=kvcl.RankFailed("x"))
    moves.wait_layer(2)
    assert moves.failed() == {1}


def test_what_a_step_computes_with_a_failed_load_is_not_saved():
    link = FakeLink()
    moves = transfers(link, by_layer=True)
    moves.load(Load("a", hashes(1), [1]))
    link.answer(error=kvcl.RankFailed("x"))
    moves.poll()
    assert not moves.spoiled(0)  # no step waited for it
    moves.load(Load("b", hashes(1), [2], waited=True))
    moves.save(Save("c", hashes(1), [3], 5), computing=True)
    layers = link.layers
    link.answer([kvcl.Status.OK, kvcl.Status.ERR_NOT_FOUND])
    moves.layer_ready(0)
    assert layers.dropped and moves.spoiled(0) and not moves.spoiled(moves.lost_loads)
    moves.unsaved(Save("d", hashes(2), [4, 5], 6))
    assert moves.take_done() == {"d": 1} and moves.take_told() == {6: False}
    assert moves.take_counts()["unsaved_blocks"] == 2


def test_steps_say_how_many_failed_loads_the_scheduler_knows_of():
    plan = Plan(128, "prompt")
    assert plan.step([], list).lost == 0
    plan.lost = 3
    assert plan.step([], list).lost == 3


def test_layers_are_marked_as_the_step_computes_them():
    link = FakeLink()
    moves = transfers(link, by_layer=True)
    moves.save(Save("a", hashes(1), [1]), computing=True)
    layers = link.layers
    moves.layer_ready(1, "stream")
    assert layers.there == {1} and layers.stream == "stream"
    moves.step_computed()
    assert layers.there == {0, 1, 2} and not layers.dropped
    moves.layer_ready(0)
    moves.save(Save("b", hashes(1), [1]), computing=True)
    moves.step_lost()  # the next step begins, although this one has not ended
    assert link.layers.dropped and not layers.dropped


def test_kept_requests_are_named_when_their_saves_have_ended():
    link = FakeLink()
    moves = transfers(link)
    for name in ("a", "b"):
        moves.save(Save(name, hashes(1), [1]))
    moves.keep(["a", "c"])
    assert moves.finished() == ({"c"}, set()) and moves.take_done() == {}
    link.answer([kvcl.Status.OK] * 2)
    assert moves.finished() == ({"a"}, set()) and moves.take_done() == {"a": 1}
    link.answer([kvcl.Status.ERR_NO_SPACE] * 2)
    assert moves.finished() == (set(), set()) and moves.take_done() == {"b": 1}
    counts = moves.take_counts()
    assert (counts["saved_blocks"], counts["unsaved_blocks"]) == (1, 1)
    copy = transfers(link, saves=False)
    copy.save(Save("a", hashes(1), [1]))
    assert copy.take_done() == {"a": 1} and not link.calls


def test_a_full_store_is_said_once_until_a_save_goes_well(caplog):
    link = FakeLink()
    moves = transfers(link)
    for status, lines in ((kvcl.Status.ERR_NO_SPACE, 1), (kvcl.Status.ERR_NO_SPACE, 1), (kvcl.Status.OK, 1),
                          (kvcl.Status.ERR_NO_SPACE, 2)):
        moves.save(Save("a", hashes(1), [1]))
        link.answer([status] * 2)
        moves.poll()
        said = [one.getMessage() for one in caplog.records]
        assert len(said) == lines and all("are not saved (ERR_NO_SPACE" in one for one in said), said


def test_random_requests_load_and_save_each_block_as_the_store_has_it(request):
    rand = chance()
    held = set()  # names in the store
    for turn in range(200):
        prompt, size = rand.randrange(1, 900), 128
        names = hashes(prompt // size, f"prompt {rand.randrange(4)}")
        plan = Plan(size, "prompt")
        plan.add("r", prompt, names, None)
        own = rand.randrange(0, (prompt - 1) // size + 1) * size
        first, wanted = plan.wanted("r", prompt, own)
        found = next((i for i, name in enumerate(wanted) if name not in held), len(wanted))
        tokens = plan.tokens("r", own, first, found)
        assert own + tokens < prompt and tokens % size == 0
        table = rand.sample(range(1000), -(-prompt // size))
        if tokens:
            plan.load("r", own, tokens, table)
        computed, work = own + tokens, plan.step([], lambda r: table)
        assert all(name in held and table[names.index(name)] == block
                   for load in work.loads for name, block in zip(load.names, load.blocks))
        given = []
        while computed < prompt:
            computed = min(prompt, computed + rand.randrange(1, 300))
            for save in plan.step([("r", computed)], lambda r: table).saves:
                given += save.names
                assert all(names.index(name) * size + size <= computed and table[names.index(name)] == block
                           for name, block in zip(save.names, save.blocks))
        assert len(given) == len(set(given)) and set(given) | held >= set(names)
        held |= set(names)
        if rand.random() < 0.2:
            held = set(rand.sample(sorted(held), len(held) // 2))


# ---- the secondary tier, over a store of this process ----

CHUNK = 8192


def offload_keys(n, salt="c"):
    """As vLLM makes them: a hash, and the number of the group."""
    return [kvcl.key_from_string(f"{salt} {i}") + (0).to_bytes(4, "big") for i in range(n)]


@pytest.fixture
def tier():
    memory = bytearray(16 * CHUNK)
    jobs = TierJobs(Job("tier", options_of({"pool": "1M"})), memoryview(memory).cast("b", (16, CHUNK)), b"r" * 32, 2)
    yield jobs, memory
    jobs.close()


def ended(jobs, n):
    jobs.drain()
    out = {one.number: one for one in jobs.ended()}
    assert len(out) == n and jobs.ended() == []
    return out


def test_chunks_go_to_the_store_and_come_back_into_other_rows(tier):
    jobs, memory = tier
    names = offload_keys(6)
    for i in range(6):
        memory[i * CHUNK:(i + 1) * CHUNK] = bytes([i + 1]) * CHUNK
    assert jobs.lookup(names) == [False] * 6
    jobs.store(1, names[:3], [0, 1, 2])
    jobs.store(2, names[3:], [3, 4, 5])
    done = ended(jobs, 2)
    assert done[1].good == [True] * 3 and done[2].good == [True] * 3 and not done[1].load
    assert jobs.lookup(names + offload_keys(1, "x")) == [True] * 6 + [False]
    jobs.load(3, [names[5], names[0]] + offload_keys(1, "x"), [10, 11, 12])
    done = ended(jobs, 1)[3]
    assert done.load and done.good == [True, True, False]
    assert memory[10 * CHUNK:11 * CHUNK] == bytes([6]) * CHUNK and memory[11 * CHUNK:12 * CHUNK] == bytes([1]) * CHUNK
    memory[:CHUNK] = b"z" * CHUNK
    jobs.store(4, names[:1], [0])  # the store has that key: not sent again
    assert ended(jobs, 1)[4].good == [True]
    jobs.load(5, names[:1], [15])
    assert ended(jobs, 1)[5].good == [True] and memory[15 * CHUNK:] == bytes([1]) * CHUNK


def test_a_tiers_keys_are_of_its_root_and_group(tier):
    jobs, _ = tier
    name, = offload_keys(1)
    jobs.store(1, [name], [0])
    ended(jobs, 1)
    assert jobs.lookup([name, name[:-1] + b"\1"]) == [True, False]
    jobs._root = b"s" * 32
    assert jobs.lookup([name]) == [False]


def test_a_tier_without_a_store_answers_that_it_has_nothing(tmp_path):
    memory = memoryview(bytearray(4 * CHUNK)).cast("b", (4, CHUNK))
    jobs = TierJobs(Job("tier", options_of({"store": str(tmp_path / "none"), "connect": 0.1})), memory, b"r" * 32, 1)
    names = offload_keys(2)
    assert jobs.lookup(names) == [False, False]
    jobs.store(1, names, [0, 1])
    jobs.load(2, names, [0, 1])
    done = ended(jobs, 2)
    assert done[1].good == [False, False] and done[2].good == [False, False]
    jobs.close()


@pytest.mark.parametrize("given, sentence", [
    ({"pool": "1M", "threads": 0}, "option threads is 0"),
    ({"stoer": "/s"}, "did you mean 'store'"),
    ({"pool": "1M", "locality": "NEAR"}, "option locality is 'NEAR': one of LOCAL, REMOTE is possible"),
    ({"pool": "1M", "enable_kv_events": "no"}, "option enable_kv_events is 'no': true or false is needed"),
    ({}, "give pool"),
])
def test_wrong_options_of_a_tier_are_refused_by_name(given, sentence):
    with pytest.raises(ValueError, match=sentence):
        options_of(given)
