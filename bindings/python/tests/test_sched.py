"""The prefix index and decisions from Python: events in, matches and decisions out."""

import json
import os
import re
import subprocess
import sys
import threading

import pytest

import kvcl
from kvcl import sched

HERE = os.path.dirname(os.path.abspath(__file__))

TOKENS = list(range(1, 65))
KEYS = kvcl.key_chain(sched.root(model="m"), TOKENS, 4)


def pack(value):
    """MessagePack as vLLM's encoder writes it, of what events contain."""
    if value is None:
        return b"\xc0"
    if isinstance(value, int):
        if 0 <= value < 128:
            return bytes([value])
        return (b"\xcf" + value.to_bytes(8, "big")) if value >= 0 else (b"\xd3" + value.to_bytes(8, "big", signed=True))
    if isinstance(value, bytes):
        return b"\xc4" + bytes([len(value)]) + value
    if isinstance(value, str):
        return b"\xd9" + bytes([len(value)]) + value.encode()
    if isinstance(value, dict):
        return b"\xde" + len(value).to_bytes(2, "big") + b"".join(pack(k) + pack(v) for k, v in value.items())
    return b"\xdc" + len(value).to_bytes(2, "big") + b"".join(pack(item) for item in value)


def stored(hashes, parent, tokens, medium="GPU", **more):
    return {"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent, "token_ids": tokens,
            "block_size": 4, "lora_id": None, "medium": medium, "lora_name": None, **more}


def frames(number, *events):
    return [b"kv", number.to_bytes(8, "big"), pack([0, list(events), 0])]


def test_vllm_both_encodings_and_a_replay():
    with sched.Index() as index:
        source = index.source("vllm", 4, sched.Feed.VLLM, model="m", block_tokens=4)
        event = stored([b"a" * 32, b"b" * 32], None, TOKENS[:8])
        assert index.feed(source, frames(0, event)) is sched.State.EXACT
        assert index.match(KEYS) == [sched.Hold(4, 0, 2, kvcl.Tier.CACHE, False)]
        array = ["BlockStored", [b"c" * 32], b"b" * 32, TOKENS[8:12], 4, None, "CPU", None]
        assert index.feed(source, frames(2, array)) is sched.State.DEGRADED
        assert [hold.tier for hold in sorted(index.match(KEYS))] == [kvcl.Tier.CACHE, kvcl.Tier.DRAM]
        assert index.replay_request(source) == (1).to_bytes(8, "big")
        index.feed(source, frames(1), replayed=True)
        index.feed(source, frames(2, array), replayed=True)
        assert index.feed(source, [b"", b"\xff" * 8, b""], replayed=True) is sched.State.EXACT
        index.feed(source, frames(3, ["BlockRemoved", [b"a" * 32], "GPU"]))
        assert index.match(KEYS) == []
        assert [hold.first for hold in sorted(index.match(KEYS, everywhere=True))] == [1, 2]
        info = index.info(source)
        assert (info.blocks, info.gaps, info.stored, info.removed) == (2, 1, 4, 1)


def test_mooncake_as_json():
    with sched.Index() as index:
        source = index.source("pool", 2, sched.Feed.MOONCAKE, model="m", tiers=[kvcl.Tier.DRAM])
        event = {"event_id": 0, "event_type": "stored", "medium": "cpu", "block_size": 4, "seq_hashes": [5, 6],
                 "base_block_idx": 0, "token_ids": TOKENS[:8], "tenant_id": "default"}
        assert index.feed(source, [json.dumps(event).encode()]) is sched.State.EXACT
        assert [hold.blocks for hold in index.match(KEYS)] == [2]
        with pytest.raises(kvcl.ProtocolError, match="byte"):
            index.feed(source, [b"{"])
        assert index.info(source).state is sched.State.DEGRADED


def test_events_of_a_store():
    with sched.Index() as index:
        source = index.source("rank 1", 1, sched.Feed.STORE)
        made = [kvcl.StoreEvent(i + 1, kvcl.EventKind.STORED, kvcl.Tier.DRAM, KEYS[i], 0, 10, None) for i in range(3)]
        assert index.store_events(source, made) is sched.State.EXACT
        assert [hold.blocks for hold in index.match(KEYS)] == [3]
        late = kvcl.StoreEvent(9, kvcl.EventKind.REMOVED, kvcl.Tier.DRAM, KEYS[0], 0, 10, None)
        assert index.store_events(source, [late]) is sched.State.DEGRADED
        items = [kvcl.StoreItem(key, 0, 10, tier, 0, 0) for key, tier in zip(KEYS, [1, 1, 2, 2])]
        index.store_list(source, items, 20)
        assert index.info(source).state is sched.State.EXACT and index.info(source).next == 21
        assert [(h.first, h.blocks, h.tier) for h in sorted(index.match(KEYS))] == [(0, 2, 1), (2, 2, 2)]


def test_predictions_end():
    with sched.Index(predict_seconds=2) as index:
        index.source("engine", 3)
        index.predict(3, KEYS[:4], now=10.0)
        assert index.match(KEYS) == [sched.Hold(3, 0, 4, kvcl.Tier.CACHE, True)]
        assert index.stats().predicted == 4
        index.expire(11.9)
        assert index.match(KEYS, least=4) and not index.match(KEYS, least=5)
        index.expire(12.0)
        assert index.match(KEYS) == [] and index.stats().blocks == 0


def test_an_index_goes_to_bytes_and_back():
    with sched.Index() as index, sched.Index() as other:
        index.add(index.source("a", 1, salt=b"s", model="m"), KEYS, kvcl.Tier.NVME)
        saved = index.save()
        other.load(saved)
        assert other.match(KEYS) == index.match(KEYS) != []
        assert other.info(other.find("a")).blocks == len(KEYS)
        for wrong in (saved[:-1], saved[:40], b"", saved[:50] + b"\xff" + saved[51:]):
            with sched.Index() as third, pytest.raises(kvcl.ProtocolError):
                third.load(wrong)


def test_errors_are_told():
    index = sched.Index()
    source = index.source("a", 1)
    for call, error in ((lambda: index.source("a", 2), kvcl.Exists), (lambda: index.forget(9), kvcl.NotFound),
                        (lambda: index.add(source, [b"short"]), ValueError),
                        (lambda: index.add(source, KEYS, 5), kvcl.InvalidParam),
                        (lambda: index.feed(source, frames(0)), kvcl.InvalidParam),
                        (lambda: index.source("b", 1), kvcl.Exists), (lambda: index.find("b"), kvcl.NotFound),
                        (lambda: sched.Index(max_instances=1 << 30), kvcl.InvalidParam),
                        (lambda: sched.Scheduler("prefill=glbal", [sched.MODEL]), kvcl.InvalidParam),
                        (lambda: sched.model("no-such-model"), OSError)):
        with pytest.raises(error):
            call()
    index.close()
    index.close()
    assert index.closed
    with pytest.raises(kvcl.Shutdown):
        index.match(KEYS)


def test_readers_and_a_writer():
    with sched.Index() as index:
        index.add(index.source("stays", 0), KEYS)
        other, stop, wrong = index.source("changes", 1), threading.Event(), []

        def read():
            while not stop.is_set():
                if sched.Hold(0, 0, len(KEYS), kvcl.Tier.DRAM, False) not in index.match(KEYS):
                    wrong.append(1)

        readers = [threading.Thread(target=read) for _ in range(2)]
        for thread in readers:
            thread.start()
        for _ in range(300):
            index.add(other, KEYS)
            index.remove(other, KEYS[3:])
        stop.set()
        for thread in readers:
            thread.join()
        assert not wrong


def test_decisions():
    insts = [sched.Instance(id=0, queue=0.0), sched.Instance(id=1, queue=0.0)]
    holds = [sched.Hold(1, 0, 16, kvcl.Tier.CACHE, False)]
    with sched.Scheduler("prefill=global", [sched.MODEL]) as scheduler:
        request = sched.Request(tokens=64, block_tokens=4, id=5)
        decision = scheduler.decide(request, KEYS, insts, holds, now=1.0)
        assert decision.verdict is sched.Verdict.GO and decision.prefill == 1 and decision.there_tokens > 0
        assert decision.runs[0].plan is sched.Plan.THERE and decision.runs[0].first == 0
        assert decision.times.ttft >= 0 and "GO" in decision.text.upper()
        same = scheduler.decide(request._replace(dry=True), len(KEYS), insts, holds, now=1.0)
        assert same.prefill == 1
        scheduler.prefill_done(sched.Measured(id=5, prefill=1, tokens=64, prefill_seconds=0.1), now=1.1)
        again = scheduler.decode(request, KEYS, 1, decision.decode, insts, now=1.2)
        assert again.decode in (0, 1)
        scheduler.first_token(sched.Measured(id=5, ttft=0.3, ttft_guess=decision.times.ttft), now=1.3)
        ended = sched.Measured(id=5, decode=again.decode, output_tokens=9, tbt=0.02, batch=1, context=70)
        scheduler.finished(ended, now=2.0)
        scheduler.gone(1, now=3.0)
        nobody = scheduler.decide(request, KEYS, [], [], now=3.0)
        assert nobody.prefill is None and nobody.verdict is not sched.Verdict.GO
        with pytest.raises(kvcl.InvalidParam):
            scheduler.decide(sched.Request(tokens=0), [], insts, [], now=1.0)
    with pytest.raises(kvcl.Shutdown):
        scheduler.gone(1, now=4.0)


def test_old_reports_are_named():
    """prefill=NAME:stale=30: one old report of three is passed over; where most are old, the least load decides."""
    request = sched.Request(tokens=64, block_tokens=4)

    def decide(ages, stale=""):
        insts = [sched.Instance(id=i, queue=0.1 * i, age=age) for i, age in enumerate(ages)]
        with sched.Scheduler(f"prefill=global{stale}", [sched.MODEL]) as scheduler:
            return scheduler.decide(request, KEYS, insts, [], now=1.0)

    young, one, most = decide([1, 1, 1]), decide([40, 1, 1]), decide([40, 40, 1])
    assert (young.reason, young.stale, young.prefill) == (sched.Reason.BEST, 0, 0)
    assert (one.reason, one.stale, one.prefill) == (sched.Reason.BEST, 1, 1)
    assert most.reason is sched.Reason.STALE and (most.stale, most.prefill) == (2, 0) and "old" in most.text
    assert decide([40, 40, 1], ":stale=50").reason is sched.Reason.BEST
    assert decide([9, 9, 9], ":stale=5").stale == 3


def test_python_has_every_reason():
    path = os.path.join(HERE, "../../../include/kvcl/kvcl_sched.h")
    with open(path) as file:
        found = re.findall(r"^ *X\(([A-Z_]+), (\d+), ", file.read(), re.M)
    assert {name: int(number) for name, number in found} == {one.name: int(one) for one in sched.Reason}


def test_policies_and_models():
    names = {(policy.kind, policy.name) for policy in sched.policies()}
    assert ("queue", "fcfs") in names and any(kind == "prefill" for kind, _ in names)
    assert all(policy.desc for policy in sched.policies())
    assert sched.model(sched.MODEL).kv_bytes == 1e5


def test_the_example_of_a_gateway():
    path = os.path.join(HERE, "..", "examples", "route_with_sched.py")
    ran = subprocess.run([sys.executable, path], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    words = ran.stdout.split()
    assert words[:2] == ["24", "requests,"]
    reused = int(words[words.index("each") + 2])
    assert reused == 2304  # all tokens of earlier turns, since each conversation stays where its blocks are
