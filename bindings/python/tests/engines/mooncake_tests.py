"""Mooncake's own Python tests over kvcl.compat.mooncake: mooncake_tests.py CHECKOUT [FILE...], a checkout of
kvcache-ai/Mooncake. Its tests are unchanged; those that do not apply are named below, with the reason.
test_replicated_distributed_object_store.py needs MOONCAKE_KVCL to name a job of two ranks, which are its two stores.
"""

import importlib.util
import os
import runpy
import subprocess
import sys
import types
import unittest

from kvcl.compat import mooncake

ENGINE = "transfer_engine_initiator_test.py"  # between two processes: the other one runs transfer_engine_target.py
FILES = ["test_distributed_object_store.py", "test_put_get_tensor.py", "test_import_structure.py", ENGINE]

# A part of a test's id, and why it does not apply.
OTHER = {
    ".TestCodecInference.": "it asks a module of Mooncake alone, which no store takes part in",
    "TestZeroLocalBufferSize.test_zero_local_buffer_size": "KVCL has no local buffer that could be too small",
    "test_basic_get_hostname": "a client of KVCL opens no port of its own",
    "test_top_level_buffer_pool_alias": "buffer pools are not offered",
    "test_replication_failure_tolerance": "a rank that has left a job does not come back into it",
}


def tests_of(suite):
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from tests_of(one)
        else:
            yield one


def target(wheel):
    """The process that the tests of TransferEngine read and write; it listens when this returns."""
    process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--target", wheel], stdout=subprocess.PIPE,
                               text=True)
    for line in process.stdout:
        if "ready" in line:
            return process
    raise RuntimeError("Mooncake's target has not started")


def main():
    if sys.argv[1] == "--target":
        mooncake.install()
        sys.stdout.reconfigure(line_buffering=True)
        return runpy.run_path(os.path.join(sys.argv[2], "tests/transfer_engine_target.py"))
    os.environ.setdefault("MOONCAKE_KVCL", '{"pool": "960M", "block": "64K", "connect": 300, "timeout": 60}')
    os.environ["DEFAULT_KV_LEASE_TTL"] = "0"  # milliseconds: KVCL's store has no leases to wait for
    mooncake.install()
    wheel = os.path.join(sys.argv[1], "mooncake-wheel")
    sys.modules["mooncake"].__path__ = [os.path.join(wheel, "mooncake")]  # its parts that are Python alone
    if importlib.util.find_spec("msgpack") is None:  # that module imports it
        sys.modules["msgpack"] = types.ModuleType("msgpack")
    suite, apart = unittest.TestSuite(), {}
    for name in sys.argv[2:] or FILES:
        spec = importlib.util.spec_from_file_location(name[:-3], os.path.join(wheel, "tests", name))
        module = importlib.util.module_from_spec(spec)
        sys.modules[name[:-3]] = module
        spec.loader.exec_module(module)
        for test in tests_of(unittest.defaultTestLoader.loadTestsFromModule(module)):
            why = next((text for part, text in OTHER.items() if part in test.id()), None)
            if why is None:
                suite.addTest(test)
            else:
                apart[why] = apart.get(why, 0) + 1
    other = target(wheel) if ENGINE in (sys.argv[2:] or FILES) else None
    for why, n in apart.items():
        print(f"{n} do not apply: {why}")
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite)
    if other is not None:
        other.kill()
        other.wait()
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad - len(result.skipped)} passed, {bad} failed, {len(result.skipped)} skipped")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
