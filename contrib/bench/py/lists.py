"""The block lists of all measurements: named once, passed to each system in the same form."""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


@dataclass(frozen=True)
class BlockList:
    name: str
    unit: int
    count: int
    random: bool

    @property
    def bytes(self):
        return self.unit * self.count

    def spell(self):
        """The form for a command line: unit:count:order."""
        return f"{self.unit}:{self.count}:{'random' if self.random else 'seq'}"

    @staticmethod
    def parse(text):
        unit, count, order = text.split(":")
        return BlockList(text, int(unit), int(count), order == "random")


def size_name(size):
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def _blocks(unit, count):
    return BlockList(f"{count:,} x {size_name(unit)}", unit, count, True)


def _one(size, word):
    return BlockList(f"{word} {size_name(size)}", size, 1, False)


LISTS = [
    _blocks(4 * KIB, 81920),
    _blocks(32 * KIB, 32768),
    _blocks(72 * KIB, 7808),
    _one(GIB, "1 x"),
]
SMALL_RUNS = [_blocks(KIB, 262144)]
LATENCIES = [_one(4 * KIB, "one"), _one(64 * KIB, "one")]
SWEEP = [_one(KIB << shift, "one") for shift in range(0, 17, 2)]

QUICK_LISTS = [_blocks(4 * KIB, 8192), _blocks(72 * KIB, 256), _one(64 * MIB, "1 x")]
QUICK_SWEEP = [_one(size, "one") for size in (KIB, 64 * KIB, 4 * MIB)]
