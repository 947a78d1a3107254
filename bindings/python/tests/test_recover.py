"""Going on after failures: views, agree, shrink (KVCL_VIEWS)."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

import kvcl
from conftest import free_ports, views

RANK = """
import os, signal, sys, kvcl
with kvcl.Context() as ctx:
    world = ctx.world
    assert world.agree(7) == (7, True) and world.active() == [True] * 3 and world.failed() == []
    print("met", flush=True)
    if world.rank == 1:
        signal.pause()
    flags, acked = 7, True
    while acked:  # until the death is known
        flags, acked = world.agree(7 - world.rank)
    assert flags == 5, flags
    while world.failed() != [1]:
        pass
    assert world.ack_failed(5) == 1
    assert world.agree(3) == (3, True)
    assert world.active() == [True, False, True] and world.view == 2
    with world.shrink() as left:
        assert (left.size, left.rank) == (2, world.rank // 2)
        left.barrier()
    assert not world.is_revoked() and world.agree(1) == (1, True)
    try:
        pending = world.recv_bytes(2 - world.rank, 9, bytearray(4))
        if world.rank == 0:
            world.revoke()
        pending.wait()
        raise SystemExit("a recv that waits was not revoked")
    except kvcl.Revoked as error:
        assert error.status == kvcl.Status.ERR_REVOKED
    assert world.is_revoked() and world.agree(5) == (5, True)
    with world.shrink() as left:
        assert not left.is_revoked()
        left.barrier()
    if world.rank == 0:
        assert world.deactivate([1, 2]) == (3, [1])
        sys.stdin.read()  # until the removed one knows: the word of a rank that has ended may be lost
    else:
        try:
            while True:
                world.agree(1)
        except kvcl.Stale:
            pass
"""

EVENTS = """
import asyncio, signal, select, kvcl
from kvcl import ViewEventKind as Kind

async def told(ctx):
    got = []
    async for event in ctx.events():
        if event.kind not in (Kind.SUSPECT, Kind.ALIVE_AGAIN):  # a busy machine
            got.append((event.kind, event.ranks, event.view))
            assert event.seconds > 0 and event.view_id != 0 and event.lost == 0
        if got and got[-1] == (Kind.VIEW, (0, 1, 2), 1):
            print("met", flush=True)
            if ctx.rank == 1:
                signal.pause()
        if got and got[-1][:2] == (Kind.VIEW, (0, 2)):
            return got

with kvcl.Context() as ctx:
    ctx.phase(True)
    assert ctx.world.agree(1) == (1, True)
    ctx.phase(False)
    got = asyncio.run(told(ctx))
    assert got == [(Kind.VIEW, (0, 1, 2), 1), (Kind.FAILED, (1,), 1), (Kind.VIEW, (0, 2), 2)], got
    assert ctx.event() is None and select.select([ctx.event_fileno()], [], [], 0) == ([], [], [])
    while ctx.world.agree(1) != (1, True):  # nobody leaves before the other has looked
        ctx.world.ack_failed(len(ctx.world.failed()))
"""


# Rank 1 is killed. Its next process waits in its slot, until rank 2 activates it.
WAITS = """
import asyncio, os, signal, kvcl
from kvcl import ViewEventKind as Kind

async def told(ctx, kind):
    async for event in ctx.events():
        if event.kind == kind:
            return event.ranks

with kvcl.Context() as ctx:
    world = ctx.world
    if "KVCL_JOIN" in os.environ:
        try:
            world.agree(1)
            raise SystemExit("a process that waits agrees with others")
        except kvcl.NoQuorum:
            pass
        calls = {"barrier": world.barrier, "create": lambda: world.create([0, 1]),
                 "activate": lambda: world.activate([0]),
                 "recv": lambda: world.recv_bytes(0, 1, bytearray(1)).wait()}
        for name, call in calls.items():
            try:
                call()
                raise SystemExit(f"a process that waits works with others: {name}")
            except kvcl.RankFailed:
                pass
        assert world.active() == [False] * 3 and world.waiting() == [False] * 3
        print("waits", flush=True)
        assert world.sync() == (3, [])
    else:
        assert world.agree(1) == (1, True)
        print(ctx.join_address(), flush=True)
        if world.rank == 1:
            signal.pause()
        assert asyncio.run(told(ctx, Kind.FAILED)) == (1,)
        assert world.sync() == (2, [1])
        assert asyncio.run(told(ctx, Kind.WAITING)) == (1,) and world.active() == [True, False, True]
        assert world.waiting() == [False, True, False]
        if world.rank == 2:
            assert world.activate([1, 2]) == (3, [])
        else:
            assert asyncio.run(told(ctx, Kind.JOINED)) == (1,)
        assert world.sync() == (3, [])
    assert world.active() == [True] * 3 and world.agree(3) == (3, True) and world.waiting() == [False] * 3
    world.barrier()
"""


def test_a_rank_alone(monkeypatch):
    monkeypatch.setenv("KVCL_VIEWS", "yes")
    with kvcl.Context(boot="self") as ctx:
        assert ctx.world.agree(2**64 - 1) == (2**64 - 1, True)
        for flags in (-1, 2**64):  # not cut off to 64 bits
            with pytest.raises(ValueError, match="flags is"):
                ctx.world.agree(flags)
        assert ctx.world.active() == [True] and ctx.world.failed() == [] and ctx.world.ack_failed(3) == 0
        assert ctx.join_address() is None
        assert ctx.world.activate([0]) == (1, []) and ctx.world.sync() == (1, []) and ctx.world.waiting() == [False]
        with pytest.raises(kvcl.UnknownRank):
            ctx.world.activate([0, 1])
        with pytest.raises(kvcl.InvalidParam):
            ctx.world.activate([])
        with pytest.raises(kvcl.InvalidParam, match="kvcl_leave"):
            ctx.world.deactivate([0])
        with pytest.raises(kvcl.UnknownRank):
            ctx.world.deactivate([1])
        ctx.world.revoke()
        with ctx.world.shrink() as left:
            assert left.size == 1
            left.barrier()
        with pytest.raises(kvcl.Revoked, match="kvcl_comm_shrink"):
            ctx.world.barrier()
        ctx.leave()


async def anext_of(events):
    return await events.__anext__()


def test_without_views():
    with kvcl.Context(boot="self") as ctx:
        ctx.phase(True)
        assert ctx.world.active() == [True] and ctx.world.view == 1
        assert not ctx.world.is_revoked()
        for call in (lambda: ctx.world.agree(1), ctx.world.shrink, ctx.world.failed, lambda: ctx.world.ack_failed(1),
                     ctx.world.revoke, ctx.leave, lambda: ctx.world.deactivate([0]), ctx.event, ctx.event_fileno,
                     lambda: ctx.world.activate([0]), ctx.world.sync, ctx.world.waiting,
                     lambda: asyncio.run(anext_of(ctx.events()))):
            with pytest.raises(kvcl.Unsupported, match="KVCL_VIEWS=yes"):
                call()


def start(program, tmp_path, **more):
    """Three ranks, and their environment."""
    secret = tmp_path / "secret"
    secret.write_bytes(os.urandom(32))
    secret.chmod(0o600)
    env = dict(os.environ, **views(3), KVCL_SIZE="3", KVCL_RENDEZVOUS=f"tcp://127.0.0.1:{free_ports()}",
               KVCL_SECRET_FILE=str(secret), **more)
    return env, [subprocess.Popen([sys.executable, "-c", program], env=dict(env, KVCL_RANK=str(r)),
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE) for r in range(3)]


def end(ranks):
    for rank in ranks:
        rank.kill()
        rank.wait()
        if rank.stdin is not None:
            rank.stdin.close()
        rank.stdout.close()


def test_a_process_that_joins_waits_until_it_is_activated(tmp_path):
    env, ranks = start(WAITS, tmp_path, KVCL_NET="lo", KVCL_JOIN_AT="127.0.0.1:0", KVCL_JOIN_WAITS="yes")
    try:
        addresses = [rank.stdout.readline().decode().strip() for rank in ranks]
        ranks[1].send_signal(signal.SIGKILL)
        assert ranks[1].wait(timeout=100) == -signal.SIGKILL
        del env["KVCL_RENDEZVOUS"], env["KVCL_SIZE"]
        ranks.append(subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE,
                                      env=dict(env, KVCL_RANK="1", KVCL_JOIN=",".join(addresses))))
        assert ranks[3].stdout.readline() == b"waits\n"
        assert [rank.wait(timeout=100) for rank in ranks] == [0, -signal.SIGKILL, 0, 0]
    finally:
        end(ranks)


@pytest.mark.parametrize("program", [RANK, EVENTS], ids=["agree and shrink", "events"])
def test_two_go_on_when_the_third_is_killed(program, tmp_path):
    _, ranks = start(program, tmp_path)
    try:
        for rank in ranks:
            assert rank.stdout.readline() == b"met\n"
        ranks[1].send_signal(signal.SIGKILL)
        assert [ranks[i].wait(timeout=100) for i in (1, 2)] == [-signal.SIGKILL, 0]
        ranks[0].stdin.close()
        assert ranks[0].wait(timeout=100) == 0
    finally:
        end(ranks)
