"""The package's own sources and a caller of kvcl.sched under mypy --strict, as programs of users are (run_wheel.sh).
Engines and torch are not looked at, even where they are installed: what they give is Any."""

import os
import shutil
import subprocess

import pytest

SOURCES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "kvcl")


CALLER = os.path.join(os.path.dirname(SOURCES), "examples", "route_with_sched.py")


@pytest.mark.parametrize("what", [SOURCES, CALLER], ids=["package", "caller of kvcl.sched"])
def test_mypy_strict(tmp_path, what):
    mypy = shutil.which("mypy")
    if mypy is None:
        pytest.skip("no mypy (Debian: mypy)")
    if not os.path.exists(what):
        pytest.skip(f"no {what}")
    without = {name: value for name, value in os.environ.items() if not name.startswith(("LD_", "PYTHON", "MYPY"))}
    without["MYPYPATH"] = os.path.dirname(SOURCES)
    done = subprocess.run([mypy, "--strict", "--no-site-packages", "--ignore-missing-imports",
                           "--allow-subclassing-any", "--cache-dir", str(tmp_path), "--config-file", os.devnull,
                           what], env=without, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
