"""KVCL's targets against its floors: for each target a line with the measured value and whether it suffices."""

from lists import KIB

MEMCPY = "memcpy"
MEMCPY2 = "memcpy, two threads"
RAW = "raw UCX"
FRAMES = "raw UCX, 1 MiB frames"
IPERF = "iperf3"
OURS = "KVCL"


class Targets:
    def __init__(self, results):
        self.results = results
        self.lines = []

    def _add(self, what, value, least=None, most=None):
        bound = f"at least {least}" if least is not None else f"at most {most}"
        if value is None:
            self.lines.append((what, "-", bound, "not measured"))
            return
        good = value >= least if least is not None else value <= most
        self.lines.append((what, f"{value:.2f}", bound, "reached" if good else "SHORT"))

    def _ratio(self, path, name, figure, other, than=OURS):
        return self.results.ratio((path, name, than), (path, name, other), figure)

    def _speed(self, path, name, other, than=OURS):
        """By the medians of single iterations, which other load on the machine affects least; by rates if there are
        no iterations."""
        slower = self._ratio(path, name, "p50_us", than, other)
        return slower if slower is not None else self._ratio(path, name, "gbps", other, than)

    def shared_memory(self, blocks):
        where = f"{blocks.name}, shared memory"
        self._add(f"{where}: speed beside {MEMCPY}", self._speed("shm", blocks.name, MEMCPY),
                  least=0.9 if blocks.unit <= 4 * KIB else 0.95)
        self._add(f"{where}: ns of posting a run", self.results.median(("shm", blocks.name, OURS), "post_ns_per_run"),
                  most=100 if blocks.unit <= 4 * KIB else 1000)
        self._add(f"{where}: processor time beside {MEMCPY}", self._ratio("shm", blocks.name, "cpu_s_per_gib", MEMCPY),
                  most=1.1)
        machine = self._speed("shm", blocks.name, MEMCPY, MEMCPY2)
        if machine is not None and machine >= 1.6:
            self._add(f"{where}: two cores, speed beside {MEMCPY}", self._speed("shm", blocks.name, MEMCPY), least=1.6)
        else:
            gain = "-" if machine is None else f"{machine:.2f}"
            self.lines.append((f"{where}: two cores", "-", "at least 1.6", f"no second core: two memcpys make {gain}"))

    def tcp(self, blocks):
        where = f"{blocks.name}, TCP"
        self._add(f"{where}: speed beside {FRAMES}", self._speed("tcp", blocks.name, FRAMES), least=0.95)
        self._add(f"{where}: speed beside one {IPERF} stream", self._speed("tcp", blocks.name, IPERF), least=0.9)
        self._add(f"{where}: processor time beside {IPERF}", self._ratio("tcp", blocks.name, "cpu_s_per_gib", IPERF),
                  most=1.2)

    def small_beside_bulk(self, path, times):
        self._add(f"one 4 KiB, {path}: p99 beside a bulk transfer, times that of an idle link", times, most=3)

    def text(self):
        width = max(len(line[0]) for line in self.lines)
        return "\n".join(f"    {what.ljust(width)}  {value:>8}  {bound:14}  {verdict}"
                         for what, value, bound, verdict in self.lines) + "\n"
