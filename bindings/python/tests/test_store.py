"""A store of one rank: what makes no sense, tiers that outlive it, memory that is held."""

import array
import asyncio
import gc
import sys
import time

import pytest

import kvcl
from conftest import run_ranks

BLOCK = 4096


@pytest.fixture
def store(ctx):
    with kvcl.Store(ctx.world, dram_bytes=16 * BLOCK, block_bytes=BLOCK, dir_entries=4096) as opened:
        yield opened


def test_a_key_out_of_bytes_is_theirs_or_hashed():
    hashed = bytes(range(32))
    assert kvcl.key_from_bytes(hashed) == hashed
    assert len(kvcl.key_from_bytes(hashed + b"abcd")) == 32 and kvcl.key_from_bytes(hashed, b"salt") != hashed
    assert kvcl.key_from_bytes("name") == kvcl.key_from_bytes(b"name") != kvcl.key_from_bytes("name", b"salt")
    names = [hashed, b"name", "name", "", "n\u00e4me"]
    for salt in (b"", b"salt"):
        assert kvcl.keys_from_bytes(names, salt) == [kvcl.key_from_bytes(name, salt) for name in names]
    keys = kvcl.keys_from_bytes(names)
    assert kvcl.value_keys(keys) == kvcl.value_keys(b"".join(keys)) == [kvcl.value_key(key) for key in keys]
    assert kvcl.value_key(hashed) != hashed and kvcl.keys_from_bytes([]) == kvcl.value_keys([]) == []
    for call in (lambda: kvcl.key_from_bytes(None), lambda: kvcl.key_from_bytes(b"x", None),
                 lambda: kvcl.keys_from_bytes(["x", 7]), lambda: kvcl.keys_from_bytes(None),
                 lambda: kvcl.keys_from_bytes(["x"], None), lambda: kvcl.value_keys([hashed, b"short"]),
                 lambda: kvcl.value_key(b"short"), lambda: kvcl.value_key([])):
        with pytest.raises((TypeError, ValueError)):
            call()


@pytest.mark.parametrize("call", [
    lambda s, k: s.pin([k], -1, 1.0), lambda s, k: s.pin([k], 1, -1.0), lambda s, k: s.pin([k], 1, None),
    lambda s, k: s.pin("keys", 1, 1.0), lambda s, k: s.unpin([k], "holder"), lambda s, k: s.quota(0, 5),
    lambda s, k: s.quota(1, -5), lambda s, k: s.quota(1, 5, rank=7), lambda s, k: s.clear(-1),
    lambda s, k: s.copy([k], 1), lambda s, k: s.move([k], -1), lambda s, k: s.copy([k], "0"),
    lambda s, k: s.drain(-1), lambda s, k: s.rank_stats(1), lambda s, k: s.rank_stats(None),
    lambda s, k: s.events(1, 0), lambda s, k: s.events(0, -1), lambda s, k: s.events(0, 0, wait=-1),
    lambda s, k: next(s.items(9)), lambda s, k: s.snapshot(-1), lambda s, k: next(s.follow(3)),
    lambda s, k: s.match_all([k], comm=s), lambda s, k: s.match_all([b"short"]),
    lambda s, k: s.put_values([k], []), lambda s, k: s.put_values([k], [None]), lambda s, k: s.put_values([k], [[1]]),
    lambda s, k: s.put_values([k], ["text"]), lambda s, k: s.put_values([k], [b"x"], replicas=9),
    lambda s, k: s.put_values([k], [b"x"], tenant=-1), lambda s, k: s.get_values([k], [b"read-only"]),
    lambda s, k: s.get_values([k, k], [bytearray(1)]), lambda s, k: s.value_keys(b"short"),
    lambda s, k: s.value_keys(k), lambda s, k: s.get_value(k), lambda s, k: s.value_sizes([k], timeout=-1),
    lambda s, k: s._put_values(kvcl.Request(), [k], [b"x"], 0, 0, False, None),
    lambda s, k: s._put_values(kvcl.Request(), [k], (b"x",), 0, 0, False, None),
    lambda s, k: s._post(kvcl.Request(), "events", None, (0, 0, 0, 10**9), None),
    lambda s, k: s._post(kvcl.Request(), "list", None, (0, 0, -1), None),
    lambda s, k: s._post(kvcl.Request(), "list", None, (0, 0), None),
    lambda s, k: s._post(kvcl.Request(), "list", None, [0, 0, 1], None),
    lambda s, k: s._post(kvcl.Request(), "all_stats", None, (7,), None).wait(),
    lambda s, k: s._post(kvcl.Request(), "nothing", None, (), None),
    lambda s, k: s._post(None, "clear", None, (0,), None),
    lambda s, k: s.value_keys_post([k, k]), lambda s, k: s.match_post([b"short"]), lambda s, k: s.match_post(None),
    lambda s, k: s.put([k], s, [0], to=-1), lambda s, k: s.exclude(0), lambda s, k: s.exclude(7),
    lambda s, k: s.exclude("0"),
])
def test_what_makes_no_sense_raises_and_the_store_works_on(store, call):
    with pytest.raises((TypeError, ValueError, BufferError, kvcl.KvclError)):
        call(store, kvcl.key_from_string("x"))
    store.put_value(kvcl.key_from_string("y"), b"still").wait(10)
    assert store.get_value(kvcl.key_from_string("y")) == b"still"


def test_a_closed_store_answers_nothing(ctx):
    store, key = kvcl.Store(ctx.world), kvcl.key_from_string("x")
    store.close()
    for call in (lambda: store.pin([key], 1, 1.0), lambda: store.clear(), lambda: store.all_stats(), store.drain,
                 lambda: store.put_value(key, b"x"), lambda: store.value_sizes([key]), lambda: store.events(0, 0),
                 lambda: store.snapshot(0), lambda: store.match_all([key]), lambda: store.copy([key], 0)):
        with pytest.raises(kvcl.Shutdown):
            call()


def test_statistics_have_every_number_of_the_library(store):
    stats = store.stats()
    assert stats == store.rank_stats(0) == store.all_stats()[0]
    assert (stats["pool_blocks"], stats["pool_free"], stats["block_bytes"]) == (16, 16, BLOCK) and len(stats) >= 31


SIZES = (BLOCK, 3 * BLOCK, 100)


@pytest.mark.parametrize("sizes", [SIZES, list(SIZES), array.array("Q", SIZES)])
def test_a_pool_has_blocks_of_several_sizes(ctx, sizes):
    with kvcl.Store(ctx.world, dram_bytes=64 * 3 * BLOCK, block_bytes=sizes, dir_entries=4096) as store:
        stats = store.stats()
        assert stats["n_sizes"] == 3 and [each["block_bytes"] for each in stats["sizes"]] == list(SIZES)
        for size in SIZES:
            with ctx.cache(f"of {size}", kvcl.Layout.bytes(8, size)) as cache:
                keys = [kvcl.key_from_string(f"{size} {i}") for i in range(4)]
                for i in range(4):
                    cache.write(i, bytes([i + 1]) * size)
                store.put(keys, cache, range(4)).wait(10)
                store.get(keys, cache, range(4, 8)).wait(10)
                assert [cache.read(4 + i) for i in range(4)] == [bytes([i + 1]) * size for i in range(4)]
        store.put_value(kvcl.key_from_string("value"), b"x" * 2 * BLOCK).wait(10)
        stats = store.stats()
        assert stats == store.rank_stats(0) == store.all_stats()[0]
        assert [each["published"] for each in stats["sizes"]] == [4 + 3, 4, 4]  # a head, two parts
        assert sum(each["blocks"] for each in stats["sizes"]) == stats["pool_blocks"]
        assert set(stats["sizes"][0]) == {"block_bytes", "blocks", "free", "published", "pinned", "takes"}
        with ctx.cache("odd", kvcl.Layout.bytes(1, 101)) as cache, pytest.raises(kvcl.KvclError, match="101"):
            store.put([keys[0]], cache, [0])


@pytest.mark.parametrize("sizes, error, text", [
    ((), ValueError, "1 to 8 sizes"), (range(1, 10), ValueError, "not 9"),
    ((64, 128, 64), ValueError, "64 is there twice"),
    ((64, 0), ValueError, r"block_bytes\[1\] is 0"), ((64, -1), ValueError, "block_bytes is -1"),
    ((64, 1 << 64), ValueError, "possible"), ((64, "128"), TypeError, "integer"), ((64, 1.5), TypeError, "integer"),
    ("64", TypeError, "integer"), (b"@", TypeError, "integer"), (None, TypeError, "integer"),
    ({64, 128}, TypeError, "integer"), ((64, 1 << 20), kvcl.InvalidParam, "8 blocks of the largest"),
    (0, kvcl.InvalidParam, "block_bytes is 0"),
    ((64, 1 << 40), kvcl.InvalidParam, "1099511627776"),
])
def test_sizes_that_make_no_sense_are_refused(ctx, sizes, error, text):
    with pytest.raises(error, match=text):
        kvcl.Store(ctx.world, dram_bytes=1 << 16, block_bytes=sizes)


def test_a_size_that_breaks_off_leaves_nothing_behind(ctx):
    class Odd:
        def __index__(self):
            raise RuntimeError("no number")

    sizes = [64, Odd()]
    before = sys.getrefcount(sizes[1])
    for _ in range(10):
        with pytest.raises(RuntimeError, match="no number"):
            kvcl.Store(ctx.world, dram_bytes=1 << 16, block_bytes=sizes)
    assert sys.getrefcount(sizes[1]) <= before + 1  # the last traceback may have one
    with kvcl.Store(ctx.world) as store:  # no pool: no sizes
        assert store.stats()["sizes"] == [] and store.stats()["n_sizes"] == 0


def test_the_memory_of_a_put_is_free_at_once_and_that_of_a_get_until_it_is_over(store):
    keys, data = [kvcl.key_from_string("a")], bytearray(b"x" * 10000)
    request = store.put_values(keys, [data])
    data.extend(b"more")  # a bytearray that somebody looks at cannot grow
    request.wait(10)
    into = bytearray(10000)
    store.get_values(keys, [into]).wait(10)
    assert into == b"x" * 10000
    into.extend(b"more")
    before = sys.getrefcount(into)
    for _ in range(10):
        with pytest.raises(kvcl.NotFound):
            store.get_values(keys, [into]).wait(10)
        with pytest.raises((TypeError, ValueError, BufferError)):
            store.put_values(keys * 2, [[into, into], [into, None]])
    gc.collect()
    assert sys.getrefcount(into) == before
    into.extend(b"more")


def test_copies_are_told_when_the_put_is_over(store):
    request = store.put_value(kvcl.key_from_string("a"), b"x", replicas=3)
    request.wait(10)
    assert request.copies == [1]
    assert kvcl.Request().copies is None
    assert store.remove([kvcl.key_from_string("a")]).copies is None


def test_events_are_followed_from_now_on_or_not_kept(ctx, store):
    store.put_value(kvcl.key_from_string("before"), b"x").wait(10)
    follower = store.follow(0, timeout=0.5)
    first = store.rank_stats(0)["events"]
    assert list(follower) == []
    store.put_value(kvcl.key_from_string("after"), b"x", tenant=9).wait(10)
    events = list(store.follow(0, first, timeout=0.2))
    assert [(e.seq, e.kind, e.tier, e.tenant, e.to_rank) for e in events] == [
        (first + 1, kvcl.EventKind.STORED, kvcl.Tier.DRAM, 9, None)]
    assert events[0].key == kvcl.value_key(kvcl.key_from_string("after")) and events[0].nbytes == BLOCK
    with kvcl.Store(ctx.world, events=0) as silent, pytest.raises(kvcl.Unsupported):
        silent.events(0, 0)


def test_a_tier_outlives_its_store(ctx, tmp_path):
    how = {"dram_bytes": 16 * BLOCK, "block_bytes": BLOCK, "nvme": f"{tmp_path}/tier.%r:64M"}
    keys = [kvcl.key_from_string(f"k{i}") for i in range(12)]
    with kvcl.Store(ctx.world, **how) as store:
        store.put_values(keys, [bytes([i]) * BLOCK for i in range(12)]).wait(10)
    assert (tmp_path / "tier.0").exists()
    with kvcl.Store(ctx.world, **how) as store:
        assert store.stats()["nvme_blocks"] == 12
        for _ in range(1000):  # they are listed in the background
            if all(store.exists(keys)):
                break
            time.sleep(0.01)
        assert [store.get_value(key)[0] for key in keys] == list(range(12))
        assert store.stats()["hits_nvme"] == 12
        store.clear()
        assert store.exists(keys) == [False] * 12
    with pytest.raises(kvcl.KvclError):
        kvcl.Store(ctx.world, dram_bytes=16 * BLOCK, block_bytes=BLOCK, nvme="nonsense")


def test_queries_are_awaited(store):
    async def main():
        keys, nowhere = [kvcl.key_from_string(f"k{i}") for i in range(4)], kvcl.key_from_string("nowhere")
        heads = [kvcl.value_key(key) for key in keys]
        first = (await store.rank_stats_post(0))["events"]
        waiting = asyncio.ensure_future(store.events_post(0, first, wait=20.0))
        await asyncio.gather(*(store.put_value(key, b"x" * 9000, tenant=3) for key in keys))
        assert [e.seq for e in await waiting][0] == first + 1
        assert await store.match_post(heads + [nowhere]) == store.match(heads + [nowhere]) == 4
        assert await store.exists_post([nowhere] + heads) == store.exists([nowhere] + heads) == [False] + [True] * 4
        sizes = await store.value_sizes_post(keys + [nowhere])
        assert sizes == store.value_sizes(keys + [nowhere]) == [9000] * 4 + [None]
        blocks = await store.value_keys_post(keys[0])
        assert blocks == store.value_keys(keys[0]) and len(blocks) == 4 and blocks[0] == heads[0]
        with pytest.raises(kvcl.NoSpace, match="the value has 4 blocks"):
            await store.value_keys_post(keys[0], 3)
        assert await store.pin_post(blocks + [nowhere], 5, 60.0, soft=True) == [1] * 4 + [0]
        await store.unpin_post(blocks, 5)
        await store.quota_post(3, 1 << 20)
        items, cursor, newest = await store.items_post(0)
        assert cursor == 0 and newest == store.stats()["events"] and {i.key for i in items} >= set(heads)
        assert (await store.all_stats_post())[0]["published"] == store.stats()["published"] == 16
        await store.remove_values_post([keys[0], nowhere])
        assert store.value_sizes(keys[:1]) == [None]
        assert await store.clear_post(3) == 12

    asyncio.run(asyncio.wait_for(main(), 50))


def test_a_failed_query_has_the_sentence_of_the_library(store):
    with pytest.raises(kvcl.UnknownRank, match="rank is 7, but the store has ranks 0 to 0"):
        store.rank_stats_post(7)
    with pytest.raises(kvcl.InvalidParam, match="tenant is 0"):
        store.quota_post(0, 5)
    with pytest.raises(kvcl.NotFound, match="^kvcl_store_value_keys.*: no rank has it"):
        store.value_keys_post(kvcl.key_from_string("x")).wait(10)


def test_a_failed_get_has_the_sentence_of_the_library(ctx, store):
    keys = [kvcl.key_from_string("a"), kvcl.key_from_string("b")]
    absent = f"kvcl_store_get: 2 of 2 blocks are absent; the first is number 0 of the call, key {keys[0].hex()[:16]}"

    def polled(request):
        while not request.done():
            time.sleep(0.001)
        return request.result()

    async def awaited():
        await store.get(keys, cache, [0, 1])

    async def gathered():
        await asyncio.gather(*[store.get(keys, cache, [0, 1]) for _ in range(3)])

    with ctx.cache("some", kvcl.Layout.bytes(4, BLOCK)) as cache:
        for fail in (lambda: store.get(keys, cache, [0, 1]).wait(10), lambda: polled(store.get(keys, cache, [0, 1])),
                     lambda: kvcl.wait_all([store.get(keys, cache, [0, 1])], 10),
                     lambda: kvcl.wait_any([store.get(keys, cache, [0, 1])], 10)[1].result(),
                     lambda: asyncio.run(awaited()), lambda: asyncio.run(gathered())):
            with pytest.raises(kvcl.NotFound) as caught:
                fail()
            assert str(caught.value).startswith(absent) and "compute it and put it" in str(caught.value)


def test_a_get_into_blocks_that_no_pool_has_names_both_sizes():
    def body(ctx):
        with kvcl.Store(ctx.world, dram_bytes=16 * BLOCK, block_bytes=BLOCK, dir_entries=64) as store:
            with ctx.cache("half", kvcl.Layout.bytes(4, BLOCK // 2)) as cache:
                said = []
                for i in range(20):  # of both homes
                    with pytest.raises(kvcl.NotFound) as caught:
                        store.get([kvcl.key_from_string(f"{i}")], cache, [0]).wait(10)
                    said.append(str(caught.value))
            ctx.world.barrier(20)
        return said

    for said in run_ranks(2, body, path="loop") + run_ranks(2, body, path="shm"):
        for sentence in said:
            assert sentence.startswith("kvcl_store_get") and "blocks of 2048 bytes" in sentence, sentence
            assert "pools have blocks of 4096 bytes" in sentence, sentence


def test_a_query_that_is_dropped_goes_on(store):
    for i in range(200):
        store.exists_post([kvcl.key_from_string(f"{i}")] * 50)
        store.value_sizes_post([kvcl.key_from_string(f"{i}")] * 5)
    gc.collect()
    request = store.events_post(0, store.stats()["events"], wait=60.0)
    request.cancel()
    with pytest.raises(kvcl.Canceled):
        request.wait(10)


def test_the_state_of_a_rank_and_what_it_may_be_excluded_from(ctx, store):
    assert ctx.world.rank_state(0) is kvcl.RankState.ALIVE
    for rank in (-1, 1, None, "0"):
        with pytest.raises((TypeError, kvcl.UnknownRank)):
            ctx.world.rank_state(rank)
    with pytest.raises(kvcl.InvalidParam):
        store.exclude(0)


def test_a_put_to_a_rank_is_in_its_pool(ctx, store):
    with ctx.cache("of blocks", kvcl.Layout.bytes(4, BLOCK)) as cache:
        cache.write(0, b"y" * BLOCK)
        keys = [kvcl.key_from_string("to")]
        store.put(keys, cache, [0], to=0).wait(10)
        assert {item.key for item in store.items(0)} == set(keys)
        with pytest.raises(kvcl.UnknownRank):
            store.put(keys, cache, [0], to=1)


def test_a_put_whose_blocks_stay_takes_each_of_them_once(monkeypatch):
    monkeypatch.setenv("KVCL_INLINE_COPY", "0")
    keys = [kvcl.key_from_string(name) for name in ("one", "two")]
    with kvcl.Context(boot="self") as ctx:
        with kvcl.Store(ctx.world, dram_bytes=16 * BLOCK, block_bytes=BLOCK, dir_entries=4096) as store:
            with ctx.cache("mine", kvcl.Layout.bytes(4, BLOCK)) as cache:
                store.put(keys, cache, [1, 1], replicas=2).wait(10)
                store.remove(keys).wait(10)
                with pytest.raises(kvcl.Busy):
                    store.put(keys, cache, [1, 1], replicas=2, stays=True)
                store.put(keys, cache, [1, 2], replicas=2, stays=True).wait(10)
                assert store.exists(keys) == [True, True]


def test_a_tenant_sees_its_own_blocks_only(store):
    key, other = b"k" * 32, b"o" * 32
    with store.tenant(7, b"a secret of the first tenant") as a, store.tenant(8, b"a secret of the second one") as b:
        assert isinstance(a, kvcl.Store)
        a.put_value(key, b"a" * 100).wait()
        b.put_value(other, b"b" * 200).wait()
        assert bytes(a.get_value(key)) == b"a" * 100
        for by in (b, store):
            assert by.value_sizes([key]) == [None]
            with pytest.raises(kvcl.NotFound):
                by.get_value(key)
        head = kvcl.value_key(key)
        assert a.match([head]) == 1 and b.match([head]) == 0 and store.match([head]) == 0
        assert [item.key for item in a.items(0)] == [head]
        assert [event.key for event in a.events(0, 0) if event.kind == kvcl.EventKind.STORED] == [head]
        assert head not in [item.key for item in store.items(0)] and len(list(store.items(0))) == 2
        assert (a.stats()["blocks"], b.rank_stats(0)["blocks"], store.stats()["blocks"]) == (1, 1, 2)
        assert b.clear() == 1 and bytes(a.get_value(key)) == b"a" * 100
        skipped = b.events(0, b.stats()["events"] - 1)
        a.remove_values([key])
        assert a.value_sizes([key]) == [None]
        assert [event.kind for event in b.events(0, skipped[-1].seq)] == [kvcl.EventKind.SKIPPED]
        with pytest.raises(kvcl.Busy):
            store.close()


@pytest.mark.parametrize("call", [
    lambda s: s.tenant(0, b"x" * 32), lambda s: s.tenant(-1, b"x" * 32), lambda s: s.tenant(1, b"short"),
    lambda s: s.tenant(1), lambda s: s.tenant("1", b"x" * 32), lambda s: s.tenant(1, 5),
])
def test_a_tenant_needs_a_number_and_a_secret(store, call):
    with pytest.raises((TypeError, ValueError, OverflowError, kvcl.KvclError)):
        call(store)


@pytest.mark.parametrize("secret", ["x" * 32, bytearray(32), memoryview(bytearray(32)), ["x"] * 32])
def test_a_tenants_secret_is_bytes(store, secret):
    with pytest.raises(TypeError, match="bytes"):
        store.tenant(1, secret)


def test_a_tenant_has_its_number_only(store):
    with store.tenant(7, b"a secret of the first tenant") as a:
        for call in (lambda: a.quota(8, 5), lambda: a.clear(8), lambda: a.drain(), lambda: a.exclude(1),
                     lambda: a.tenant(9, b"x" * 32), lambda: a.put_value(b"k" * 32, b"x", tenant=8)):
            with pytest.raises(kvcl.KvclError):
                call()
        a.quota(7, 1 << 20)
