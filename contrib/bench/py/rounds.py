"""
Figures of several rounds: all systems in turn, round after round; min, median and max of each figure. A failure is kept
as a reason and does not stop the others; wrong bytes do.
"""

import statistics
import sys
import time

from run_kvcl import Failed

FIGURES = ("gbps", "p50_us", "p99_us", "post_ns_per_run", "cpu_s_per_gib")


class WrongBytes(Exception):
    """A system delivered wrong bytes."""


class Results:
    def __init__(self, names=FIGURES):
        self.names = names
        self.samples = {}  # (path, list name, system) -> figure -> values
        self.reasons = {}  # (path, list name, system) -> why there is none

    def add(self, key, figures):
        if figures.get("wrong", 0) != 0:
            raise WrongBytes(f"{key[2]}, {key[1]}, {key[0]}: {figures['wrong']} wrong blocks")
        kept = self.samples.setdefault(key, {})
        for name in self.names:
            if figures.get(name) is not None:
                kept.setdefault(name, []).append(float(figures[name]))

    def fail(self, key, reason):
        self.reasons[key] = reason.strip().splitlines()[-1] if reason.strip() else "no reason given"

    def spread(self, key, figure):
        """(min, median, max), or None."""
        values = self.samples.get(key, {}).get(figure)
        return (min(values), statistics.median(values), max(values)) if values else None

    def median(self, key, figure):
        found = self.spread(key, figure)
        return found[1] if found else None

    def ratio(self, over, under, figure):
        """The median of the rounds' ratios, or None."""
        above = self.samples.get(over, {}).get(figure, [])
        below = self.samples.get(under, {}).get(figure, [])
        pairs = [a / b for a, b in zip(above, below) if b > 0]
        return statistics.median(pairs) if pairs else None

    def keys(self):
        return list(dict.fromkeys(list(self.samples) + list(self.reasons)))


def measure(results, key, job, shown=("gbps", "GB/s")):
    """Run job() -> figures and file them under key; print that, with the figure to show."""
    start = time.monotonic()
    print(f"  {key[0]:4} {key[1]:18} {key[2]:24}", end=" ", flush=True)
    try:
        figures = job()
    except Failed as failure:
        results.fail(key, str(failure))
        print(f"failed: {failure}", flush=True)
        return None
    results.add(key, figures)
    print(f"{figures[shown[0]]:9.3f} {shown[1]}   {time.monotonic() - start:5.1f} s", flush=True)
    return figures


def announce(number, of):
    print(f"round {number} of {of}", flush=True)
    sys.stdout.flush()
