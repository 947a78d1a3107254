"""Stands in for SGLang's kernels, which need a GPU, so that the engine runs on a CPU for tests of its cache.

Kernels are mocks, streams and events do nothing since all work is done when it is posted, and the copies between the
"device" and the host are in kvcacheio.py.
"""

import builtins
import importlib
import importlib.abc
import importlib.machinery
import sys
from unittest.mock import MagicMock

import torch


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return MagicMock()


class _Loader(importlib.abc.Loader):
    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__getattr__ = __getattr__


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.startswith("sgl_kernel."):
            return importlib.machinery.ModuleSpec(name, _Loader(), is_package=True)
        return None


sys.meta_path.append(_Finder())


class _Runtime:
    cudaError = type("cudaError", (), {"success": 0})

    def cudaHostRegister(self, *unused):
        return 0

    def cudaHostUnregister(self, *unused):
        return 0

    def cudaGetErrorString(self, error):
        return str(error)


class _Event:
    def __init__(self, *unused, **unused_too):
        pass

    def record(self, stream=None):
        pass

    def wait(self, stream=None):
        pass

    def query(self):
        return True

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return 0.0


class _Stream(torch.cpu.Stream):
    def synchronize(self):
        pass

    def wait_stream(self, stream):
        pass

    def wait_event(self, event):
        pass

    def record_event(self, event=None):
        return event or _Event()

    def query(self):
        return True


torch.cuda.cudart = _Runtime
torch.cpu.Stream, torch.cpu.Event = _Stream, _Event
_current = _Stream()
torch.cpu.current_stream = lambda *unused, **unused_too: _current

# Not "from sgl_kernel import kvcacheio": that asks __getattr__ first, and copies of a mock copy nothing.
_io = importlib.import_module("sgl_kernel.kvcacheio")
for _name in ("transfer_kv_direct", "transfer_kv_all_layer_direct_lf_pf", "transfer_kv_per_layer_direct_pf_lf"):
    setattr(builtins, _name, getattr(_io, _name))  # SGLang imports them on a GPU only
