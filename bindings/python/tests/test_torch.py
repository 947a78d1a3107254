"""torch.distributed over KVCL against gloo; ranks_torch.py and ranks_torch_async.py are what each rank runs."""

import faulthandler
import importlib.util
import os

import pytest

from conftest import HERE, mpirun

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is absent: nothing tests kvcl.torch", allow_module_level=True)


@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_every_collective_equals_gloo(size, tmp_path):
    faulthandler.dump_traceback_later(305, exit=True)  # torch is slow to load
    out = mpirun(size, os.path.join(HERE, "ranks_torch.py"), str(tmp_path), env={"OMP_NUM_THREADS": "1"}, timeout=300)
    assert out.count("torch: all right") == size, out


def test_works_in_flight(tmp_path):
    faulthandler.dump_traceback_later(305, exit=True)
    out = mpirun(2, os.path.join(HERE, "ranks_torch_async.py"), str(tmp_path), env={"OMP_NUM_THREADS": "1"},
                 timeout=300)
    assert out.count("torch: all right") == 2, out
