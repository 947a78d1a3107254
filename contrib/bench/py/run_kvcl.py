"""One run of kvcl_perf, two ranks that meet at an address of their own on loopback; no launcher is needed."""

import json
import os
import random
import socket
import subprocess

TIMEOUT_S = 300


class Failed(Exception):
    """A run without figures, with the reason."""


def free_port():
    """A port at which nobody listens, below the ephemeral ones: those the system may give to another process meanwhile,
    as to a rank that starts sooner. Above those of the tests (test/multi/ports.sh)."""
    while True:
        port = random.randrange(29200, 32768)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def find_perf(build):
    for path in (os.path.join(build, "src", "tools", "kvcl_perf"), os.path.join(build, "bin", "kvcl_perf")):
        if os.access(path, os.X_OK):
            return path
    raise Failed(f"no kvcl_perf in {build}: build KVCL first (contrib/quickstart), or name the folder by --build")


def end(processes):
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()


class Cores:
    """If two cores are named, the two processes of each system are bound to one each."""

    pair = None

    @classmethod
    def wrap(cls, side, command):
        return command if cls.pair is None else ["taskset", "-c", str(cls.pair[side]), *command]


def run(perf, path, arguments, test="get"):
    """The JSON object of kvcl_perf TEST ARGUMENTS over path, as a dict."""
    address = f"tcp://127.0.0.1:{free_port()}"
    ranks = []
    try:
        for rank in range(2):
            env = dict(os.environ, KVCL_PATH=path, KVCL_NET="lo", KVCL_RENDEZVOUS=address, KVCL_SIZE="2", KVCL_RANK=str(rank))
            ranks.append(subprocess.Popen(Cores.wrap(rank, [perf, test, "--json", *arguments]), env=env,
                                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                          text=True))
        out, err = ranks[0].communicate(timeout=TIMEOUT_S)
        _, far_err = ranks[1].communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as late:
        raise Failed(f"kvcl_perf {test} {' '.join(arguments)}: not done after {TIMEOUT_S} s") from late
    finally:
        end(ranks)
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if ranks[0].returncode != 0 or len(lines) != 1:
        raise Failed(f"kvcl_perf {test} {' '.join(arguments)}: status {ranks[0].returncode}\n{out}{err}{far_err}")
    return json.loads(lines[0])


def of_list(blocks):
    order = "random" if blocks.random else "seq"
    return ["--unit", str(blocks.unit), "--count", str(blocks.count), "--order", order]
