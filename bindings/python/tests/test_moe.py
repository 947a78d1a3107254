"""examples/moe.py, whose ranks are killed."""

import importlib.util
import os
import re
import signal
import subprocess
import sys

import pytest

from conftest import HERE, views

if importlib.util.find_spec("numpy") is None:
    pytest.skip("NumPy is absent: examples/moe.py needs it", allow_module_level=True)


PROGRAM = os.path.join(HERE, os.pardir, "examples", "moe.py")


def test_a_process_comes_in_the_place_of_the_rank_that_is_killed(tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(os.urandom(32))
    secret.chmod(0o600)
    env = dict(os.environ, **views(10), KVCL_SECRET_FILE=str(secret))
    how = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "env": env}
    lines, pids, addresses, joined = [], {}, {}, None
    with subprocess.Popen([sys.executable, PROGRAM, "--ranks", "3", "--seconds", "100000"], **how) as first:
        try:
            for line in first.stdout:
                lines.append(line)
                met = re.match(r"rank (\d): pid (\d+), join at (.+)$", line)
                if met:
                    pids[int(met[1])], addresses[int(met[1])] = int(met[2]), met[3]
                if "alive 3 of 3" in line and joined is None and len(pids) == 3:
                    os.kill(pids[1], signal.SIGKILL)
                    joined = subprocess.Popen([sys.executable, PROGRAM, "--join", f"{addresses[0]},{addresses[2]}"],
                                              **how)
                if line.startswith("rank 0: all 3 ranks have experts again"):
                    break
            assert joined is not None, lines
            for line in first.stdout:  # it goes on with all
                lines.append(line)
                if "alive 3 of 3" in line:
                    break
            assert re.search(r"alive 3 of 3 .* wrong 0$", lines[-1]), lines
            assert any("rank 1: all 3 ranks" in line for line in joined.stdout)
        finally:
            for pid in pids.values():
                if pid != pids.get(1):
                    os.kill(pid, signal.SIGKILL)
            if joined is not None:
                joined.kill()
                joined.communicate()


def test_a_model_goes_on_without_the_rank_that_is_killed():
    done = subprocess.run([sys.executable, PROGRAM, "--ranks", "3", "--seconds", "3", "--kill", "0"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(os.environ, **views(10)))
    assert done.returncode == 0 and "all ranks that lived were right" in done.stdout, done.stdout
    assert done.stdout.count("experts were restored") == 2 and done.stdout.count(", wrong 0") == 2, done.stdout
