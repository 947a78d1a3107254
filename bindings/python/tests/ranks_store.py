"""Ranks as processes: the store. Run by test_ranks.py."""

import sys

import kvcl

LAYOUT = kvcl.Layout(layers=2, blocks=64, tokens=16, heads=2, head_dim=32, elem_bytes=2)


def content(key):
    return (key * (LAYOUT.block_bytes // 32 + 1))[:LAYOUT.block_bytes]


def chain(salt, n):
    return kvcl.key_chain(kvcl.key_root(salt, "m"), range(16 * n), 16)


def parts(ctx, cache, store, keys):
    """Layers, heads and tokens of stored blocks."""
    vector, vectors = LAYOUT.head_dim * LAYOUT.elem_bytes, LAYOUT.layers * LAYOUT.kv * LAYOUT.tokens
    one_head = ctx.cache("one head", kvcl.Layout(layers=2, blocks=4, tokens=16, heads=1, head_dim=32, elem_bytes=2))
    get = store.get_part(keys[:3], one_head, range(3), stored=LAYOUT, stored_heads=(1, 2), layerwise=True)
    get.layer_wait(0, 60)
    get.layer_wait(1, 60)
    get.wait(60)
    assert get.block_status == [kvcl.Status.OK] * 3
    for i, key in enumerate(keys[:3]):
        whole = content(key)
        assert one_head.read(i) == b"".join(whole[(2 * j + 1) * vector:(2 * j + 2) * vector] for j in range(vectors))
    one_head.close()
    blank, half = bytes(LAYOUT.block_bytes), LAYOUT.block_bytes // 2
    cache.write(50, blank)
    store.get_part([keys[5]], cache, 50, layers=(1, 2)).wait(60)
    assert cache.read(50) == blank[:half] + content(keys[5])[half:]
    for wrong in (lambda: store.get_part(keys[:2], cache, [50]),
                  lambda: store.get_part([keys[0]], cache, [50], heads=(0, 9)),
                  lambda: store.get_part([keys[0]], cache, [50], stored=kvcl.Layout.bytes(4, 64))):
        try:
            wrong()
            raise AssertionError("a selection that does not fit")
        except (kvcl.BadLayout, kvcl.OutOfRange):
            pass


def engines_own_blocks(ctx, world, cache):
    """Publish, match, exists, get, withdraw, remove."""
    with kvcl.Store(world) as store:
        keys = chain(b"own", 20)
        if world.rank == 0:
            for i, key in enumerate(keys[:12]):
                cache.write(i, content(key))
            published = store.publish(keys[:12], cache, range(12))
            published.wait(60)
        world.barrier(60)
        assert store.match(keys) == 12 and store.match(b"".join(keys)) == 12
        assert store.exists([keys[3], keys[15], keys[0]]) == [True, False, True]
        assert store.match([]) == 0 and store.exists([]) == []
        at = kvcl.StorePlace(0, kvcl.Tier.CACHE, LAYOUT.block_bytes, False)
        assert store.where([keys[3], keys[15], keys[0]]) == [[at], [], [at]] and store.where([]) == []
        get = store.get(keys[:12], cache, range(20, 32))
        get.wait(60)
        assert get.block_status == [kvcl.Status.OK] * 12
        assert all(cache.read(20 + i) == content(key) for i, key in enumerate(keys[:12]))
        parts(ctx, cache, store, keys)
        partly = store.get([keys[0], keys[19], keys[1]], cache, [40, 41, 42])
        try:
            partly.wait(60)
            raise AssertionError("got a block that nobody has")
        except kvcl.NotFound:
            pass
        assert partly.block_status == [kvcl.Status.OK, kvcl.Status.ERR_NOT_FOUND, kvcl.Status.OK]
        assert cache.read(42) == content(keys[1])
        world.barrier(60)
        if world.rank == 0:
            try:
                cache.close()
                raise AssertionError("closed a cache whose blocks are published")
            except kvcl.Busy:
                pass
            store.withdraw(cache, [11, 50])
        world.barrier(60)
        try:
            store.get([keys[11]], cache, [43]).wait(60)
            assert world.size > 1 and False, "got a withdrawn block"
        except kvcl.NotFound:
            pass
        world.barrier(60)
        if world.rank == world.size - 1:
            store.remove(keys[:4]).wait(60)
        world.barrier(60)
        assert store.exists(keys[:6]) == [False] * 4 + [True] * 2
        stats = store.stats()
        assert stats["gets"] >= 12 and stats["corrupt"] == 0, stats
        world.barrier(60)


def store_managed(ctx, world):
    """alloc, publish, evict, pin; put into a pool; bcast."""
    cache = ctx.cache("managed", LAYOUT)
    with kvcl.Store(world, cache=cache, dram_bytes=32 * LAYOUT.block_bytes, block_bytes=LAYOUT.block_bytes) as store:
        keys = chain(b"managed %d" % world.rank, 80)
        for start in range(0, 80, 16):
            ids = store.alloc(16)
            assert len(set(ids)) == 16
            for key, block in zip(keys[start:], ids):
                cache.write(block, content(key))
            store.publish(keys[start:start + 16], cache, ids).wait(60)
        assert store.stats()["evicted"] >= 16, store.stats()
        here = store.pin_local(keys[79])
        assert here is not None and cache.read(here) == content(keys[79])
        store.unpin_local(here)
        assert store.pin_local(kvcl.key_from_string("nobody has it")) is None
        world.barrier(60)

        pooled = chain(b"pool %d" % world.rank, 8)
        ids = store.alloc(8)
        for key, block in zip(pooled, ids):
            cache.write(block, content(key))
        store.put(pooled, cache, ids).wait(60)
        store.free(ids)
        world.barrier(60)
        others = chain(b"pool %d" % ((world.rank + 1) % world.size), 8)
        assert store.match(others) == 8
        ids = store.alloc(8)
        store.get(others, cache, ids).wait(60)
        assert all(cache.read(block) == content(key) for key, block in zip(others, ids))
        world.barrier(60)

        hot = chain(b"pool 0", 8)
        store.bcast(hot, cache, ids).wait(60)
        assert all(cache.read(block) == content(key) for key, block in zip(hot, ids))
        world.barrier(60)
    cache.close()


def wrong(ctx, world, cache):
    """Calls that make no sense raise, and the store works on."""
    with kvcl.Store(world) as store:
        key = kvcl.key_from_string("x")
        other = ctx.cache("other", kvcl.Layout.bytes(4, 64))
        for call in (lambda: store.match([b"short"]), lambda: store.match("text"), lambda: store.match(b"x" * 33),
                     lambda: store.exists([None]), lambda: store.get([key], cache, [64]).wait(60),
                     lambda: store.get([key], cache, [1, 2]), lambda: store.get([key], None, [1]),
                     lambda: store.publish([key], cache, [-1]), lambda: store.alloc(-1), lambda: store.alloc(1),
                     lambda: store.free([99]), lambda: store.pin_local([key, key]), lambda: store.withdraw(None, [1]),
                     lambda: store.withdraw(cache, "1"), lambda: store.put([key], cache, [1]).wait(60),
                     lambda: store.get([key], cache, [1], timeout=-1)):
            try:
                call()
            except (TypeError, ValueError, kvcl.KvclError):
                continue
            raise AssertionError("no exception")
        other.close()
        world.barrier(60)
        assert store.match([key]) == 0
        world.barrier(60)
    try:
        store.match([key])
        raise AssertionError("a closed store answers")
    except kvcl.Shutdown:
        pass


def main():
    with kvcl.Context() as ctx:
        world = ctx.world
        assert world.size == int(sys.argv[1])
        cache = ctx.cache("main", LAYOUT)
        engines_own_blocks(ctx, world, cache)
        store_managed(ctx, world)
        wrong(ctx, world, cache)
        cache.close()
        world.barrier(60)
        if world.rank == 0:
            print("all well")


main()
