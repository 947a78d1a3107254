"""Ranks as processes: running and following a store. Run by test_ranks.py."""

import sys

import kvcl

LAYOUT = kvcl.Layout.bytes(64, 4096)
POOL = 32


def key(name, rank, i):
    return kvcl.key_from_string(f"{name} {rank} {i}")


def keys_of(name, rank, n):
    return [key(name, rank, i) for i in range(n)]


def content(k):
    return k * (LAYOUT.block_bytes // 32)


def put(store, cache, keys, **how):
    for i, k in enumerate(keys):
        cache.write(i, content(k))
    request = store.put(keys, cache, range(len(keys)), **how)
    request.wait(60)
    return request.copies


def holds(store, rank):
    return {item.key for item in store.items(rank)}


def copies(world, store, cache):
    """replicas, statistics of all ranks, copies and moves between them."""
    want = min(2, world.size)
    mine = keys_of("copies", world.rank, 8)
    assert put(store, cache, mine, replicas=2) == [want] * 8
    world.barrier(60)
    stats = store.all_stats()
    assert len(stats) == world.size and all(s["pool_blocks"] == POOL for s in stats), stats
    assert sum(s["blocks"] for s in stats) == 8 * want * world.size, stats
    assert store.rank_stats(0)["blocks"] == stats[0]["blocks"]
    world.barrier(60)
    if world.rank == 0:
        last = world.size - 1
        assert store.copy(mine[:4] + [key("nobody", 0, 0)], last) == [True] * 4 + [False]
        assert set(mine[:4]) <= holds(store, last)
        assert store.move(mine[:4], 0) == [True] * 4
        assert last == 0 or not set(mine[:4]) & holds(store, last)
        try:
            store.copy(mine, world.size)
            raise AssertionError("copied to a rank that is not there")
        except kvcl.UnknownRank:
            pass
    world.barrier(60)
    store.get(keys_of("copies", 0, 8), cache, range(8)).wait(60)
    assert all(cache.read(i) == content(k) for i, k in enumerate(keys_of("copies", 0, 8)))
    world.barrier(60)


def far(world, store, cache):
    """A put goes to the rank it names; an excluded rank is not queried, and is again when it is included."""
    other = (world.rank + 1) % world.size
    mine = keys_of("far", world.rank, 2)
    assert world.rank_state(world.rank) is kvcl.RankState.ALIVE
    if world.size > 1:
        put(store, cache, mine, to=other)
        assert world.rank_state(other) is kvcl.RankState.ALIVE
        assert set(mine) <= holds(store, other) and not set(mine) & holds(store, world.rank)
        world.barrier(60)  # a rank that has excluded a home lists no copies there
        store.exclude(other)
        try:
            store.rank_stats(other)
            raise AssertionError("an excluded rank was asked")
        except kvcl.Unreachable:
            pass
        assert store.all_stats()[other] is None
        store.exclude(other, False)
        assert store.rank_stats(other)["blocks"] >= 2
    world.barrier(60)
    store.remove(mine).wait(60)
    world.barrier(60)


def upserts(world, store, cache):
    """Other bytes under a key, found by all ranks."""
    one = [key("upsert", 0, 0)]
    if world.rank == 0:
        put(store, cache, one)
    world.barrier(60)
    if world.rank == world.size - 1:
        cache.write(0, b"new " * 1024)
        request = store.upsert(one, cache, [0])
        request.wait(60)
        assert request.copies == [1]
    world.barrier(60)
    store.get(one, cache, [1]).wait(60)
    assert cache.read(1) == b"new " * 1024
    world.barrier(60)


def pins(world, store, cache):
    """What another rank has pinned is not evicted; tenants have quotas and go at once."""
    mine, theirs = keys_of("pins", world.rank, 4), keys_of("pins", (world.rank + 1) % world.size, 4)
    assert store.clear() >= 0
    world.barrier(60)
    put(store, cache, mine)
    world.barrier(60)
    assert store.pin(theirs + [key("nobody", 1, 1)], 7, 60.0) == [1] * 4 + [0]
    world.barrier(60)
    for turn in range(6):
        put(store, cache, keys_of(f"turn {turn}", world.rank, 24))
    world.barrier(60)
    assert store.exists(theirs) == [True] * 4
    try:
        put(store, cache, keys_of("too many", world.rank, 29))
        raise AssertionError("29 beside 4 pinned of 32")
    except kvcl.NoSpace:
        pass
    world.barrier(60)
    store.unpin(theirs, 7)
    world.barrier(60)
    put(store, cache, keys_of("too many", world.rank, 29), wait=True, timeout=30)
    if world.rank == 0:
        store.quota(5, 4 * LAYOUT.block_bytes)
    world.barrier(60)
    for turn in range(4):
        put(store, cache, keys_of(f"tenant {turn}", world.rank, 2), tenant=5)
    world.barrier(60)
    tenants = [item for item in store.items(world.rank) if item.tenant == 5]
    assert len(tenants) == 4 and all(item.tier == kvcl.Tier.DRAM and item.nbytes == 4096 for item in tenants)
    world.barrier(60)
    if world.rank == 0:
        assert store.clear(tenant=5) == 4 * world.size
    world.barrier(60)
    assert not [item for item in store.items(world.rank) if item.tenant == 5]
    world.barrier(60)


def follows(world, store, cache):
    """A follower of every rank ends with what each rank says it holds."""
    router = world.size - 1
    mine = keys_of("events", world.rank, 12)
    if world.rank == router:
        seen = [store.snapshot(rank) for rank in range(world.size)]
    world.barrier(60)
    put(store, cache, mine)
    store.remove(mine[:4]).wait(60)
    world.barrier(60)
    if world.rank == router:
        for rank, (items, since) in enumerate(seen):
            held = {item.key for item in items}
            for event in store.follow(rank, since, timeout=1.0):
                assert event.seq == since + 1, (event, since)
                since = event.seq
                if event.kind == kvcl.EventKind.STORED:
                    held.add(event.key)
                elif event.kind in (kvcl.EventKind.EVICTED, kvcl.EventKind.REMOVED, kvcl.EventKind.MOVED):
                    held.discard(event.key)
            assert held == holds(store, rank), f"rank {rank}"
            assert set(keys_of("events", rank, 12)[4:]) <= held
            assert store.events(rank, since) == []
        try:
            store.events(0, 10**9)
            raise AssertionError("events of another life")
        except kvcl.Stale:
            pass
    world.barrier(60)


def groups(world, store, cache):
    """Each rank has a prefix of its own length; all are told the shortest."""
    names = keys_of("groups", world.rank, 8)
    put(store, cache, names[:world.rank + 3])
    assert store.match_all(names) == 3
    assert store.match_all(names, world) == 3
    assert store.match(names) == min(8, world.rank + 3)
    world.barrier(60)


def values(world, store):
    """Bytes of any length: one block, several, none; in pieces; whole or absent."""
    sizes = [0, 1, 4096, 4097, 30000]
    names = [key("values", world.rank, n) for n in sizes]
    data = [bytes((world.rank + i) % 251 for i in range(n)) for n in sizes]
    pieces = data[:4] + [[data[4][:100], bytearray(data[4][100:])]]
    for turn in range(world.size):  # one after the other: blocks that are being filled cannot make room for others
        if turn == world.rank:
            request = store.put_values(names, pieces, replicas=2)
            request.wait(60)
            assert request.copies == [min(2, world.size)] * 5
        world.barrier(60)
    other = (world.rank + 1) % world.size
    names = [key("values", other, n) for n in sizes]
    data = [bytes((other + i) % 251 for i in range(n)) for n in sizes]
    assert store.value_sizes(names + [key("nobody", 0, 0)]) == sizes + [None]
    into = [bytearray(n) for n in sizes[:4]] + [[bytearray(20000), bytearray(10000)]]
    store.get_values(names, into).wait(60)
    assert [bytes(b) for b in into[:4]] == data[:4] and bytes(into[4][0] + into[4][1]) == data[4]
    assert store.get_value(names[4]) == data[4]
    assert store.get_value(names[4], limit=len(data[4])) == data[4]
    try:
        store.get_value(names[4], limit=len(data[4]) - 1)
        assert False, "longer than its limit"
    except ValueError:
        pass
    wrong = store.get_values(names[3:], [bytearray(4096), bytearray(30000)])
    try:
        wrong.wait(60)
        raise AssertionError("a value of another length")
    except kvcl.NotFound:
        pass
    assert wrong.block_status == [kvcl.Status.ERR_NOT_FOUND, kvcl.Status.OK]
    assert len(store.value_keys(names[4])) == 9 and store.value_keys(names[4])[0] == kvcl.value_key(names[4])
    world.barrier(60)
    if world.rank == 0:
        store.upsert_values([names[4]], [b"short"]).wait(60)
        assert store.get_value(names[4]) == b"short"
    world.barrier(60)
    mine = [key("values", world.rank, n) for n in sizes]
    store.remove_values(mine)
    assert store.value_sizes(mine) == [None] * 5
    try:
        store.get_value(mine[0])
        raise AssertionError("a removed value")
    except kvcl.NotFound:
        pass
    world.barrier(60)


def drains(world, store, cache):
    """The last rank leaves: what only it has goes to the others."""
    assert store.clear() >= 0
    world.barrier(60)
    mine = keys_of("drain", world.rank, 6)
    put(store, cache, mine)
    world.barrier(60)
    if world.rank == world.size - 1:
        try:
            assert store.drain(30) == 6 and world.size > 1
        except kvcl.NoSpace:
            assert world.size == 1
        assert store.stats()["draining"] == 1
    world.barrier(60)
    others = set().union(*(holds(store, rank) for rank in range(world.size - 1))) if world.size > 1 else set()
    assert world.size == 1 or set(keys_of("drain", world.size - 1, 6)) <= others
    world.barrier(60)


def main():
    with kvcl.Context() as ctx:
        world = ctx.world
        assert world.size == int(sys.argv[1])
        cache = ctx.cache("main", LAYOUT)
        with kvcl.Store(world, dram_bytes=POOL * LAYOUT.block_bytes, block_bytes=LAYOUT.block_bytes,
                        events=4096) as store:
            far(world, store, cache)
            copies(world, store, cache)
            upserts(world, store, cache)
            pins(world, store, cache)
            follows(world, store, cache)
            groups(world, store, cache)
            store.clear()
            world.barrier(60)
            values(world, store)
            drains(world, store, cache)
            world.barrier(60)
        cache.close()
        world.barrier(60)
        if world.rank == 0:
            print("all well")


main()
