"""What the tests share: contexts, ranks as threads of this process, ranks as processes under mpirun."""

import contextlib
import faulthandler
import fcntl
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT = 300  # seconds a test may take: on a busy machine an import of vLLM alone takes more than 60
TRACES = int(os.environ.get("TEST_TRACES", "2"))  # pytest keeps what is written to 2, and this ends pytest

import kvcl  # noqa: E402


@pytest.fixture(autouse=True)
def no_hang():
    """A test that hangs says where, and ends the run."""
    faulthandler.dump_traceback_later(LIMIT + 5, exit=True, file=TRACES)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def ctx():
    """A context alone: rank 0 of 1."""
    with kvcl.Context(boot="self") as context:
        yield context


@pytest.fixture
def layout():
    return kvcl.Layout(layers=2, blocks=16, tokens=4, heads=2, head_dim=8)


def run_ranks(n, body, **how):
    """body(ctx) on n ranks, each a thread with a context of its own; their results. They meet through a dict."""
    meeting, results, errors = {}, [None] * n, []

    def one(rank):
        try:
            with kvcl.Context(oob=meeting, rank=rank, size=n, **how) as context:
                results[rank] = body(context)
                context.world.barrier()
        except BaseException as error:  # noqa: B902
            errors.append((rank, error))

    threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    if errors:
        raise errors[0][1]
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    return results


def chance():
    """Random numbers of the seed TEST_SEED, or of the clock. A test that fails shows the seed."""
    seed = int(os.environ.get("TEST_SEED") or str(time.time_ns()), 0)
    print(f"TEST_SEED={seed}")
    return random.Random(seed)


class Ports:
    """Ports of this host at which ranks meet, as test/multi/ports.sh gives them: below the ephemeral ports, and no
    other test's, since a file that is locked while this process lives reserves a range of 64."""

    before, used = 0, 0

    @classmethod
    def lock(cls):
        for turn in range(300):
            number = (os.getpid() + turn) % 300
            path = f"{os.environ.get('TMPDIR') or '/tmp'}/kvcl-test-ports.{os.geteuid()}.{number}"
            file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(file)
            else:
                cls.before = 9999 + 64 * number
                return
        raise RuntimeError("all ranges of ports are locked")


def free_ports(n=1):
    """The first of n ports in a row at which no process listens."""
    if Ports.before == 0:
        Ports.lock()
    while True:
        first = Ports.used + 1 if Ports.used + n < 64 else 1
        Ports.used = first + n - 1
        with contextlib.ExitStack() as stack:
            try:
                for port in range(Ports.before + first, Ports.before + first + n):
                    one = stack.enter_context(socket.socket())
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    one.bind(("127.0.0.1", port))
                return Ports.before + first
            except OSError:
                pass


def views(dead):
    """Settings of ranks that exclude one that is silent for so many seconds. The default of one is less than a rank
    waits for a processor on a busy machine: where ranks are stopped or leave, 3; where they are only killed, which the
    system proves, 10."""
    return {"KVCL_VIEWS": "yes", "KVCL_DEAD": f"{1000 * dead}ms", "KVCL_LEASE": f"{800 * dead}ms"}


def mpirun(n, program, *args, env=None, timeout=LIMIT):
    """Run a Python program on n ranks; its output."""
    if shutil.which("mpirun") is None:
        pytest.skip("no mpirun (Debian: openmpi-bin)")
    full = dict(os.environ, **(env or {}))
    command = ["mpirun", "--oversubscribe"]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    for name in ("PYTHONPATH", "LD_LIBRARY_PATH", "PYTHONDONTWRITEBYTECODE", *(env or {})):
        if name in full:
            command += ["-x", name]
    command += ["-n", str(n), sys.executable, "-X", "faulthandler", program, *args]
    try:
        done = subprocess.run(command, env=full, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout,
                              stdin=subprocess.DEVNULL, text=True)
    except subprocess.TimeoutExpired as late:
        out = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout
        pytest.fail(f"{program} on {n} ranks did not end in {timeout} s\n{out}")
    assert done.returncode == 0, f"{program} on {n} ranks: exit {done.returncode}\n{done.stdout}"
    return done.stdout


def pytest_terminal_summary(terminalreporter):
    """The line that contrib/ci/count-tests sums, and every skip with its reason."""
    stats = terminalreporter.stats
    for report in stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.write_line(f"SKIP: {report.nodeid}: {reason}")
    n = {name: len(stats.get(name, [])) for name in ("passed", "failed", "error", "skipped")}
    terminalreporter.write_line(f"{n['passed']} passed, {n['failed'] + n['error']} failed, {n['skipped']} skipped")
