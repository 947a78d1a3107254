"""Several processes under mpirun."""

import os

import pytest

from conftest import HERE, mpirun

EXAMPLE = os.path.join(HERE, "..", "examples", "reuse_prefix.py")
ROUTER = os.path.join(HERE, "..", "examples", "route_by_cache.py")


def over(path):
    return {"KVCL_PATH": path, "KVCL_NET": "lo" if path == "tcp" else ""}


@pytest.mark.parametrize("n, path", [(1, "auto"), (2, "shm"), (3, "tcp"), (4, "auto")])
def test_bytes_blocks_memory_collectives(n, path):
    assert "all well" in mpirun(n, os.path.join(HERE, "ranks_p2p.py"), str(n), env=over(path))


@pytest.mark.parametrize("n, path", [(1, "auto"), (2, "tcp"), (3, "shm")])
def test_the_store(n, path):
    assert "all well" in mpirun(n, os.path.join(HERE, "ranks_store.py"), str(n), env=over(path))


@pytest.mark.parametrize("n, path", [(1, "auto"), (2, "tcp"), (4, "auto")])
def test_running_and_following_a_store(n, path):
    assert "all well" in mpirun(n, os.path.join(HERE, "ranks_store_admin.py"), str(n), env=over(path))


@pytest.mark.parametrize("n", [2, 4])
def test_the_router(n):
    out = mpirun(n, ROUTER)
    assert out.count("0 wrong") == n - 1 and "where the blocks were: 100%" in out, out


# The router waits for blocks before it has the snapshot, which has them all: no event tells of them.
LATE = """
import queue, runpy, sys, threading, kvcl

waits, snapshot = threading.Event(), kvcl.Store.snapshot

class News(queue.Queue):
    def get(self, *how, **more):
        waits.set()
        return super().get(*how, **more)

def late(store, rank):
    waits.wait()
    return snapshot(store, rank)

queue.Queue, kvcl.Store.snapshot = News, late
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def test_the_router_waits_for_blocks_that_only_its_snapshot_has():
    out = mpirun(2, "-c", LATE, ROUTER)
    assert out.count("0 wrong") == 1 and "where the blocks were: 100%" in out, out


@pytest.mark.parametrize("n", [2, 3, 4])
def test_the_example(n):
    out = mpirun(n, EXAMPLE)
    assert out.count("24 reused, 0 wrong") == n and out.count(" 0 reused, 0 wrong") == 1, out
