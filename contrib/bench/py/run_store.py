"""One run of a store's benchmark: KVCL's by kvcl_perf, or any store's by its Python API (store_peer.py)."""

import contextlib
import glob
import json
import os
import socket
import subprocess
import tempfile
import time

import run_kvcl
from run_kvcl import Cores, Failed, free_port

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.join(HERE, "..", "..", "..", "bindings", "python", "kvcl")
TIMEOUT_S = 120


def by_perf(perf, path, keys, memory_keys):
    """The same figures by kvcl_perf: C on both sides."""
    block = ["--unit", "4K", "--count", str(keys)]
    figures = {"wrong": 0}

    def one(test, arguments, **names):
        found = run_kvcl.run(perf, path, arguments, test)
        figures["wrong"] += found["wrong"]
        figures.update({ours: found[theirs] for ours, theirs in names.items()})

    one("store-put", [*block, "--batch", "1"], put_p50_us="p50_us", puts_per_s="ops_per_s")
    one("store-get", [*block, "--batch", "1", "--order", "random"], get_p50_us="p50_us", gets_per_s="ops_per_s")
    one("store-get", [*block, "--batch", "64", "--order", "random"], get64_keys_per_s="ops_per_s")
    one("lookup", ["--count", "65536", "--batch", "1024"], exists_keys_per_s="ops_per_s")
    one("store-keys", ["--count", str(memory_keys)], bytes_per_key="dir_bytes_per_key")
    return figures


@contextlib.contextmanager
def package(build):
    """A folder from which python imports the built package kvcl, and the library's folder."""
    found = glob.glob(os.path.join(build, "bindings", "python", "kvcl", ".libs", "_kvcl*.so"))
    if not found:
        raise Failed(f"no Python package in {build} (Debian: python3-dev, python3-pytest)")
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "kvcl"))
        for file in [*glob.glob(os.path.join(PACKAGE, "*.py")), found[0]]:
            os.symlink(os.path.abspath(file), os.path.join(folder, "kvcl", os.path.basename(file)))
        yield folder, os.path.abspath(os.path.join(build, ".libs"))


def _python(python, who, path, setting, address, keys, seconds, more=(), env=None):
    command = [python, os.path.join(HERE, "store_peer.py"), who, "--path", path, "--setting", setting, "--address",
               address, "--keys", str(keys), "--seconds", str(seconds), *more]
    if Cores.pair is not None:
        command += ["--cores", f"{Cores.pair[0]},{Cores.pair[1]}"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S,
                              check=False, env=env)
    except subprocess.TimeoutExpired as late:
        raise Failed(f"not done after {TIMEOUT_S} s") from late
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or len(lines) != 1:
        raise Failed(f"status {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(lines[0])


def by_package(python, build, path, keys, seconds):
    """KVCL by its Python package."""
    with package(build) as (folder, library):
        env = dict(os.environ, PYTHONPATH=folder, LD_LIBRARY_PATH=library)
        return _python(python, "kvcl", path, "default", f"tcp://127.0.0.1:{free_port()}", keys, seconds, env=env)


def _wait_for(port, process):
    end = time.monotonic() + 20
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise Failed("mooncake_master does not listen")


def by_mooncake(python, setting, keys, seconds):
    """Mooncake's, with a master of its own."""
    port = free_port()
    master = subprocess.Popen([os.path.join(os.path.dirname(python), "mooncake_master"), f"--rpc_port={port}",
                               f"--metrics_port={free_port()}"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, master)
        return _python(python, "mooncake", "tcp", setting, f"127.0.0.1:{port}", keys, seconds,
                       ["--master", str(master.pid)])
    finally:
        run_kvcl.end([master])
