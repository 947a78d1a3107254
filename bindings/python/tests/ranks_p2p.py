"""Ranks as processes: bytes, blocks, one-sided, collectives, asyncio. Run by test_ranks.py."""

import asyncio
import sys

import kvcl

LAYOUT = kvcl.Layout(layers=3, blocks=32, tokens=8, heads=2, head_dim=32, elem_bytes=2)


def block(rank, i):
    return bytes((rank * 31 + i * 7 + at) & 255 for at in range(LAYOUT.block_bytes))


def ring_of_bytes(world):
    """Small, and larger than anything inline; all at once."""
    right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    for size in (0, 1, 100, 9000, 3 << 20):
        buf = bytearray(size)
        recv = world.recv_bytes(left, size, buf)
        send = world.send_bytes(right, size, bytes([world.rank]) * size)
        info, _ = kvcl.wait_all([recv, send], 60)
        assert info == (left, size, size) and buf == bytes([left]) * size


def any_source(world):
    if world.rank == 0:
        buf = bytearray(8)
        seen = set()
        for _ in range(world.size - 1):
            info = world.recv_bytes(kvcl.ANY_SOURCE, 5, buf).wait(60)
            assert buf[0] == info.source
            seen.add(info.source)
        assert seen == set(range(1, world.size))
    else:
        world.send_bytes(0, 5, bytes([world.rank]) * 8).wait(60)


def blocks(ctx, world):
    """From a library cache into the user's buffers, of another layout."""
    mine = ctx.cache("main", LAYOUT, writable=True)
    for i in range(8):
        mine.write(i, block(world.rank, i))
    other = kvcl.Layout(layers=3, blocks=16, tokens=8, heads=2, head_dim=32, elem_bytes=2, order="HND", base="layer")
    buffers = [bytearray(other.base_bytes) for _ in range(3)]
    theirs = ctx.cache("theirs", other, buffers)
    world.barrier(60)
    peer = (world.rank + 1) % world.size
    get = world.get(peer, theirs, remote=[7, 0, 3], local=[1, 2, 15], remote_cache="main")
    get.wait(60)
    assert get.block_status == [kvcl.Status.OK] * 3
    assert [theirs.read(i) for i in (1, 2, 15)] == [block(peer, i) for i in (7, 0, 3)]
    world.put(peer, mine, local=[1, 2], remote=[20, 21]).wait(60)
    world.barrier(60)
    left = (world.rank - 1) % world.size
    assert [mine.read(20), mine.read(21)] == [block(left, 1), block(left, 2)]
    recv = world.recv(left, 9, mine, [30, 31], layers=(1, 3))
    send = world.send(peer, 9, mine, [4, 5], layers=(1, 3))
    kvcl.wait_all([recv, send], 60)
    third = LAYOUT.block_bytes // 3
    assert mine.read(30)[third:] == block(left, 4)[third:] and mine.read(30)[:third] == bytes(third)
    try:
        world.get(peer, mine, [0], [0], remote_cache="absent").wait(60)
        raise AssertionError("got from a cache that is not there")
    except kvcl.NotRegistered:
        pass
    world.bcast(world.size - 1, mine, range(8, 16) if world.rank != world.size - 1 else range(8)).wait(60)
    at = 0 if world.rank == world.size - 1 else 8
    assert all(mine.read(at + i) == block(world.size - 1, i) for i in range(8))
    world.barrier(60)
    mine.close()
    theirs.close()


def pieces(ctx, world, mem, remote, peer):
    """Many pieces at once, of a buffer and of registered memory."""
    left = (world.rank - 1) % world.size
    mine, n = bytes((world.rank * 7 + i) & 255 for i in range(4000)), 40
    remote.put_vec([i * 1000 for i in range(n)], mine, [(n - 1 - i) * 100 for i in range(n)], 100).wait(60)
    world.barrier(60)
    theirs = bytes((left * 7 + i) & 255 for i in range(4000))
    assert all(bytes(mem.view()[i * 1000:i * 1000 + 100]) == theirs[(n - 1 - i) * 100:(n - i) * 100] for i in range(n))
    buf = bytearray(300)
    remote.get_vec([0, 5000, 39000], buf, [200, 0, 100], [100, 40, 100]).wait(60)
    assert buf == mine[3400:3440] + bytes(60) + mine[0:100] + mine[3900:4000]
    with ctx.alloc(4096) as local:
        remote.get_vec([1000], local, [96], 100).wait(60)
        assert bytes(local.view()[96:196]) == mine[3800:3900]
        for bad in (lambda: remote.get_vec([0], local, [4000], 97), lambda: remote.get_vec([0, 1], local, [0], 1),
                    lambda: remote.put_vec([0], local, [0], [1, 2])):
            try:
                bad()
                raise AssertionError("pieces that do not fit were taken")
            except ValueError:
                pass
        try:
            remote.get_vec([0, 65530], local, [0, 8], 8)
            raise AssertionError("a piece beyond the memory was taken")
        except kvcl.OutOfRange as error:
            assert "piece 1" in str(error)


def notifications(ctx, world):
    """After a put and a get of each kind, and alone."""
    right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    with ctx.alloc(4096) as mem:
        export = mem.export(write=True)
        exports = world.allgather(bytes([len(export) >> 8, len(export) & 255]) + export.ljust(1024, b"\0"), 60)
        remote = world.attach(right, exports[right][2:2 + int.from_bytes(exports[right][:2], "big")])
        cache = ctx.cache("notified", LAYOUT, writable=True)
        assert world.notify_recv() is None
        world.barrier(60)
        posted = [remote.put(0, b"x" * 8, notify=b"put"), remote.put_vec([8], b"y" * 8, [0], 8, notify=b"put_vec"),
                  remote.get(0, bytearray(8), notify=b"get"), remote.get_vec([8], bytearray(8), [0], 8, notify=b""),
                  world.put(right, cache, [0], [1], notify=b"blocks in"),
                  world.get(right, cache, [0], [2], notify=b"blocks out"), world.notify(right, b"alone")]
        kvcl.wait_all(posted, 60)
        got = [world.notify_recv(60) for _ in posted]
        assert {source for source, _ in got} == {left}
        assert sorted(text for _, text in got) == [b"", b"alone", b"blocks in", b"blocks out", b"get", b"put",
                                                   b"put_vec"]
        assert bytes(mem.view()[:16]) == b"x" * 8 + b"y" * 8 and world.notify_recv(0.001) is None
        world.barrier(60)
        cache.close()
        remote.close()


def exported(ctx, world):
    with ctx.alloc(1 << 16) as mem:
        export = mem.export(write=True)
        exports = world.allgather(bytes([len(export) >> 8, len(export) & 255]) + export.ljust(1024, b"\0"), 60)
        peer = (world.rank + 1) % world.size
        remote = world.attach(peer, exports[peer][2:2 + int.from_bytes(exports[peer][:2], "big")])
        for i in range(10):
            remote.put(4096 * i, bytes([world.rank + 1]) * 4096, signal=(remote, 65528, 1)).wait(60)
        mem.signal_wait(65528, 10, timeout=60)
        left = (world.rank - 1) % world.size
        assert bytes(mem.view()[:40960]) == bytes([left + 1]) * 40960
        buf = bytearray(40960)
        remote.get(0, buf).wait(60)
        assert buf == bytes([world.rank + 1]) * 40960
        world.barrier(60)
        pieces(ctx, world, mem, remote, peer)
        world.barrier(60)
        remote.close()


async def talk(world):
    peer = (world.rank + 1) % world.size
    left = (world.rank - 1) % world.size
    bufs = [bytearray(64) for _ in range(50)]
    recvs = [world.recv_bytes(left, 1000 + i, buf) for i, buf in enumerate(bufs)]
    sends = [world.send_bytes(peer, 1000 + i, bytes([i]) * 64) for i in range(50)]
    await asyncio.gather(*recvs, *sends)
    assert all(buf == bytes([i]) * 64 for i, buf in enumerate(bufs))


def main():
    with kvcl.Context() as ctx:
        world = ctx.world
        assert world.size == int(sys.argv[1])
        assert world.allgather(bytes([world.rank]), 60) == [bytes([i]) for i in range(world.size)]
        ring_of_bytes(world)
        any_source(world)
        blocks(ctx, world)
        exported(ctx, world)
        notifications(ctx, world)
        asyncio.run(asyncio.wait_for(talk(world), 60))
        half = world.split(world.rank % 2)
        assert half.allgather(bytes([world.rank]), 60) == [bytes([i]) for i in range(world.rank % 2, world.size, 2)]
        buf = bytearray(b"x" * 100000 if world.rank == 0 else 100000)
        world.bcast_bytes(0, buf).wait(60)
        assert buf == b"x" * 100000
        paths = {world.path(i) for i in range(world.size) if i != world.rank}
        world.barrier(60)
        if world.rank == 0:
            print("all well over", *sorted(paths))


main()
