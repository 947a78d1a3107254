"""
The bytes of the peers' runs: block i of generation g holds words that follow from (i, g) alone, so a missing, late or
foreign block is detected. Works in slices of a few MiB.
"""

import numpy as np

SLICE_BYTES = 8 << 20
BLOCK = np.uint64(0x9E3779B97F4A7C15)
GENERATION = np.uint64(0xBF58476D1CE4E5B9)
WORD = np.uint64(0x94D049BB133111EB)


def orders(blocks):
    """The local and the remote place of block i: shuffled independently, the same in every process."""
    here = np.arange(blocks.count, dtype=np.int64)
    there = here.copy()
    if blocks.random:
        np.random.default_rng(1).shuffle(here)
        np.random.default_rng(2).shuffle(there)
    return here, there


def _slices(blocks, order, generation):
    """The place of a slice (rows of the table, first and last word), and its expected words."""
    last = blocks.unit // 8
    step = min(last, SLICE_BYTES // 8)
    rows = max(1, SLICE_BYTES // blocks.unit)
    for first in range(0, blocks.count, rows):
        numbers = np.arange(first, min(first + rows, blocks.count), dtype=np.uint64)
        seeds = (numbers + np.uint64(1)) * BLOCK + np.array([generation], dtype=np.uint64) * GENERATION
        for word in range(0, last, step):
            words = np.arange(word, min(word + step, last), dtype=np.uint64) * WORD
            yield order[first : first + rows], slice(word, word + step), seeds[:, None] ^ words[None, :]


def _table(memory, blocks):
    return memory[: blocks.bytes].view(np.uint64).reshape(blocks.count, blocks.unit // 8)


def fill(memory, blocks, order, generation):
    table = _table(memory, blocks)
    for where, part, words in _slices(blocks, order, generation):
        table[where, part] = words


def wrong(memory, blocks, order, generation):
    """The number of blocks with wrong bytes."""
    table = _table(memory, blocks)
    bad = set()
    for where, part, words in _slices(blocks, order, generation):
        bad.update(where[(table[where, part] != words).any(axis=1)].tolist())
    return len(bad)
