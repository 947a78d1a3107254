"""Processes that join a job whose store is open, and leave it (KVCL_JOIN, Store(join=True))."""

import os
import signal
import subprocess
import sys

import pytest

import kvcl
from conftest import free_ports, views

# A member or a process that joins, maybe in the slot TEST_SLOT; the parent says by lines what it does next.
RANK = """
import os, sys, kvcl
KEYS = {rank: [kvcl.key_from_string(f"{rank}/{i}") for i in range(8)] for rank in range(2)}

def value(rank, i):
    return bytes([1 + 8 * rank + i]) * 3000

joins, slot = "KVCL_JOIN" in os.environ, os.environ.get("TEST_SLOT")
how = {} if slot is None else {"boot": "join", "rank": int(slot)}
with kvcl.Context(**how) as ctx, kvcl.Store(ctx.world, dram_bytes=256 * 4096, block_bytes=4096, replicas=2,
                                       join=joins) as store:
    me = ctx.rank
    if not joins and me in KEYS:
        for i, key in enumerate(KEYS[me]):
            store.put_value(key, value(me, i)).wait()
    print("open", me, ctx.join_address(), flush=True)
    for line in sys.stdin:
        if line == "get\\n":
            for rank, keys in KEYS.items():
                for i, key in enumerate(keys):
                    assert store.get_value(key) == value(rank, i), (rank, i)
            print("got", flush=True)
        elif line == "put\\n":
            key = kvcl.key_from_string(f"late/{me}")
            store.put_value(key, b"late").wait()
            assert store.get_value(key) == b"late"
            print("put", flush=True)
        elif line == "active\\n":
            print("active", sum(ctx.world.active()), flush=True)
        elif line == "leave\\n":
            ctx.leave()
            print("left", flush=True)
            break
        else:
            break
"""


class Rank:
    def __init__(self, env, **more):
        self.process = subprocess.Popen([sys.executable, "-c", RANK], env=dict(env, **more), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def opened(self):
        """Its rank; its address is kept."""
        word, rank, self.address = self.process.stdout.readline().split()
        assert word == "open"
        return int(rank)

    def do(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self):
        self.process.stdin.close()
        return self.process.wait(timeout=100)


def test_a_rank_without_a_size_is_taken(monkeypatch):
    for name in ("KVCL_RENDEZVOUS", "KVCL_SIZE", "KVCL_RANK", "KVCL_JOIN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(kvcl.InvalidParam, match="KVCL_RANK=3"):
        kvcl.Context(boot="self", rank=3)
    monkeypatch.setenv("KVCL_RANK", "3")
    with pytest.raises(kvcl.InvalidParam, match="KVCL_RANK=3"):
        kvcl.Context(boot="self")
    with kvcl.Context(boot="self", rank=0) as ctx:
        assert ctx.rank == 0


def test_a_process_joins_gets_and_leaves_and_another_takes_the_place_of_a_dead_one(tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(os.urandom(32))
    secret.chmod(0o600)
    port = free_ports()
    env = dict(os.environ, **views(3), KVCL_SLOTS="5", KVCL_SECRET_FILE=str(secret), KVCL_NET="lo",
               KVCL_JOIN_AT="127.0.0.1:0")
    ranks = [Rank(env, KVCL_SIZE="3", KVCL_RENDEZVOUS=f"tcp://127.0.0.1:{port}", KVCL_RANK=str(r)) for r in range(3)]
    try:
        assert [rank.opened() for rank in ranks] == [0, 1, 2]
        assert [rank.do("get") for rank in ranks] == ["got"] * 3

        guest = Rank(env, KVCL_JOIN=ranks[0].address, TEST_SLOT="4")  # 3 is free, too
        ranks.append(guest)
        assert guest.opened() == 4 and guest.do("get") == "got" and guest.do("put") == "put"
        assert guest.do("active") == "active 4"
        assert guest.do("leave") == "left" and guest.end() == 0
        assert [rank.do("get") for rank in ranks[:3]] == ["got"] * 3

        ranks[1].process.send_signal(signal.SIGKILL)
        assert ranks[1].process.wait(timeout=100) == -signal.SIGKILL
        ranks.append(Rank(env, KVCL_JOIN=f"{ranks[1].address},{ranks[2].address}", KVCL_RANK="1"))
        assert ranks[4].opened() == 1 and ranks[4].do("get") == "got" and ranks[4].do("put") == "put"
        assert ranks[0].do("get") == "got" and ranks[2].do("put") == "put"
        assert ranks[4].do("active") == "active 3"
        assert [ranks[r].end() for r in (4, 2, 0)] == [0, 0, 0]
    finally:
        for rank in ranks:
            rank.process.kill()
            rank.process.wait()
            rank.process.stdin.close()
            rank.process.stdout.close()
