"""A program as users write it, for run_wheel.sh: mypy --strict accepts it, and any number of ranks run it."""

import sys
from typing import Dict, List

import kvcl

BLOCK = 4096


def transfers(world: kvcl.Comm, cache: kvcl.Cache) -> None:
    """Every rank reads a block of the next rank and writes one there."""
    after, before = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    cache.write(0, bytes([world.rank]) * BLOCK)
    world.barrier()
    moves: List[kvcl.Request[None]] = [world.get(after, cache, remote=[0], local=[1]),
                                       world.put(after, cache, local=[0], remote=[2])]
    kvcl.wait_all(moves)
    with world.prepare_get(after, cache, background=True) as fetch:
        again: kvcl.Request[None] = fetch.post(local=[1], remote=[0])
        again.wait()
    world.barrier()
    assert cache.read(1) == bytes([after]) * BLOCK, "the get brought other bytes"
    assert cache.read(2) == bytes([before]) * BLOCK, "the put brought other bytes"

    posted: kvcl.Request[kvcl.RecvInfo] = world.recv_bytes(before, 7, bytearray(8))
    world.send_bytes(after, 7, b"typed").wait()
    info: kvcl.RecvInfo = posted.wait()
    assert (info.source, info.bytes) == (before, 5)


def sharing(world: kvcl.Comm) -> None:
    """A value that rank 0 puts is found by all."""
    with kvcl.Store(world, dram_bytes=64 * BLOCK, block_bytes=BLOCK) as store:
        key: bytes = kvcl.key_from_string("a prompt")
        if world.rank == 0:
            store.put_value(key, b"a value").wait()
        world.barrier()
        assert store.get_value(key) == b"a value"
        stats: Dict[str, object] = store.stats()
        assert stats
        world.barrier()


def main() -> None:
    with kvcl.Context() as ctx:
        world = ctx.world
        transfers(world, ctx.cache("main", kvcl.Layout.bytes(blocks=3, block_bytes=BLOCK), writable=True))
        sharing(world)
        # one write for each line, so that mpirun does not join the lines of two ranks
        sys.stdout.write(f"rank {world.rank} of {world.size}: right\n")


if __name__ == "__main__":
    main()
