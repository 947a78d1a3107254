"""The package's own sources under mypy --strict, as its users' programs are (run_wheel.sh). Engines and torch are not
looked at, even where they are installed: what they give is Any."""

import os
import shutil
import subprocess

import pytest

SOURCES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "kvcl")


def test_mypy_strict(tmp_path):
    mypy = shutil.which("mypy")
    if mypy is None:
        pytest.skip("no mypy (Debian: mypy)")
    without = {name: value for name, value in os.environ.items() if not name.startswith(("LD_", "PYTHON", "MYPY"))}
    done = subprocess.run([mypy, "--strict", "--no-site-packages", "--ignore-missing-imports",
                           "--allow-subclassing-any", "--cache-dir", str(tmp_path), "--config-file", os.devnull,
                           SOURCES], env=without, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
