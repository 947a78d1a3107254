"""examples/moe.py, whose ranks are killed."""

import importlib.util
import os
import subprocess
import sys

import pytest

from conftest import HERE

if importlib.util.find_spec("numpy") is None:
    pytest.skip("NumPy is absent: examples/moe.py needs it", allow_module_level=True)


def test_a_model_goes_on_without_the_rank_that_is_killed():
    program = os.path.join(HERE, os.pardir, "examples", "moe.py")
    done = subprocess.run([sys.executable, program, "--ranks", "3", "--seconds", "3", "--kill", "0"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0 and "all ranks that lived were right" in done.stdout, done.stdout
    assert done.stdout.count("experts were restored") == 2 and done.stdout.count(", wrong 0") == 2, done.stdout
