#!/usr/bin/env python3
"""Reuse a prefix that any rank has: the second program of the C examples, in Python.

    mpirun -n 4 python3 reuse_prefix.py

Every rank plays a worker that serves prompts. The first prompt's blocks are computed by rank 0 and published; then each
rank gets a prompt of its own that begins like it, queries the store for the longest leading run of blocks that any rank
has, fetches that run straight out of the holder's cache, and computes only the rest.
"""

import hashlib
import sys
from typing import List

import kvcl

TOKENS_PER_BLOCK = 16
SHARED, OWN = 24, 8  # blocks of the common prefix, and of each prompt's own end
LAYOUT = kvcl.Layout(layers=4, blocks=256, tokens=TOKENS_PER_BLOCK, heads=2, head_dim=64, elem_bytes=2)


def computed(key: bytes) -> bytes:
    """The bytes that a model would compute for this block; here they are derived from the key alone."""
    return hashlib.shake_128(key).digest(LAYOUT.block_bytes)


def serve(world: kvcl.Comm, store: kvcl.Store, cache: kvcl.Cache, free: List[int], tokens: List[int]) -> int:
    """One prompt; how many of its blocks were reused."""
    root = kvcl.key_root(b"a tenant's secret", "llama-tiny/bf16/16")
    keys = kvcl.key_chain(root, tokens, TOKENS_PER_BLOCK)  # equal key, equal prefix, tenant and model
    ids = [free.pop() for _ in keys]

    hit = store.match(keys)  # the longest leading run of blocks that any rank has
    request = store.get(keys[:hit], cache, ids[:hit])  # from the nearest live copy, verified
    try:
        request.wait()
    except kvcl.KvclError:  # evicted meanwhile, its rank failed, ...: absent blocks are computed
        hit = next(i for i, status in enumerate(request.block_status or []) if status != kvcl.Status.OK)

    for key, block in zip(keys[hit:], ids[hit:]):
        cache.write(block, computed(key))
    store.publish(keys[hit:], cache, ids[hit:]).wait()  # they stay where they are; every rank finds them

    wrong = sum(cache.read(block) != computed(key) for key, block in zip(keys, ids))
    # one write for each line, so that mpirun does not join the lines of two ranks
    sys.stdout.write(f"rank {world.rank}: {len(keys)} blocks, {hit} reused, {wrong} wrong\n")
    sys.stdout.flush()
    if wrong:
        sys.exit("wrong bytes")
    return hit


def main() -> None:
    with kvcl.Context() as ctx:
        world = ctx.world
        cache = ctx.cache("main", LAYOUT)
        free = list(range(LAYOUT.blocks))
        with kvcl.Store(world) as store:
            prefix = list(range(SHARED * TOKENS_PER_BLOCK))
            if world.rank == 0:
                assert serve(world, store, cache, free, prefix) == 0
            world.barrier()

            own = [1000 + world.rank] * (OWN * TOKENS_PER_BLOCK)
            assert serve(world, store, cache, free, prefix + own) == SHARED
            world.barrier()  # other ranks may still read this rank's blocks
        cache.close()


if __name__ == "__main__":
    main()
