"""Contexts that listen and contexts that connect to them: Context.listen, Context.connect, Comm.disconnect."""

import asyncio
import socket
import threading

import pytest

import kvcl


@pytest.fixture
def pair(tmp_path):
    """Two jobs of one rank each, with one secret."""
    path = tmp_path / "secret"
    path.write_text("a secret of 24 letters..")
    path.chmod(0o600)
    with kvcl.Context(boot="self", secret_file=str(path)) as a, kvcl.Context(boot="self", secret_file=str(path)) as b:
        yield a, b


@pytest.mark.parametrize("at", ["127.0.0.1:0", None])
def test_transfers_in_both_directions(pair, at):
    a, b = pair
    door = a.listen(at)
    assert door.address.startswith("127.0.0.1:" if at else "kvcl1:") and door.size == 0 and door.is_inter
    comm = b.connect(door.address, timeout=30)
    assert (comm.rank, comm.size, door.size, comm.address) == (0, 1, 1, None)
    mine, theirs = a.alloc(4096), b.alloc(4096)
    mine.view()[:5] = b"hello"
    far = comm.attach(0, mine.export())
    got = bytearray(5)
    far.get(0, got).wait(30)
    assert got == b"hello"
    near = door.attach(0, theirs.export(write=True))
    near.put(0, b"there").wait(30)
    assert bytes(theirs.view()[:5]) == b"there"
    comm.notify(0, b"to the door").wait(30)
    assert door.notify_recv(30) == (0, b"to the door")
    door.notify(0, b"to the caller").wait(30)
    assert comm.notify_recv(30) == (0, b"to the caller")
    buf = bytearray(10)
    recv = door.recv_bytes(kvcl.ANY_SOURCE, 3, buf)
    comm.send_bytes(0, 3, b"0123456789").wait(30)
    assert recv.wait(30) == (0, 3, 10) and buf == b"0123456789"


def test_each_connection_has_its_number(pair):
    a, b = pair
    door = a.listen()
    comms = [b.connect(door.address), b.connect(door.address), a.connect(door.address)]
    assert [comm.rank for comm in comms] == [0, 1, 2]
    for comm in reversed(comms):
        comm.notify(0, b"%d" % comm.rank).wait(30)
    assert sorted(door.notify_recv(30) for _ in comms) == [(0, b"0"), (1, b"1"), (2, b"2")]


def until_gone(comm, rank):
    while comm.rank_state(rank) != kvcl.RankState.FAILED:
        pass


def test_either_side_disconnects(pair):
    a, b = pair
    door = a.listen("localhost:0")
    first, second = b.connect(door.address), b.connect(door.address)
    first.close()
    until_gone(door, 0)
    with pytest.raises(kvcl.RankFailed, match="has disconnected"):
        door.notify(0, b"x")
    door.disconnect(1)
    until_gone(second, 0)
    with pytest.raises(kvcl.RankFailed):
        second.notify(0, b"x")
    address = door.address
    third = b.connect(address)
    door.close()
    until_gone(third, 0)
    with pytest.raises((kvcl.Unreachable, kvcl.NotFound)):  # the port may close a little later
        b.connect(address)
    with pytest.raises(kvcl.NotFound, match="kvcl_context_listen"):
        b.connect(a.address)
    with pytest.raises(kvcl.InvalidParam):
        a.world.disconnect(0)
    assert a.listen(address).address == address


def test_wrong_use_is_named(pair, tmp_path):
    a, b = pair
    for at in ("host", "host:x", "1.2.3.4.5.6:99999", ""):
        with pytest.raises(kvcl.InvalidParam, match="host:port"):
            a.listen(at)
        with pytest.raises(kvcl.InvalidParam, match="host:port"):
            a.connect(at)
    door = a.listen("127.0.0.1:0")
    with pytest.raises(kvcl.Exists):
        a.listen()
    with pytest.raises(kvcl.Busy, match=door.address):
        b.listen(door.address)
    with pytest.raises(TypeError):
        a.connect(None)
    other = tmp_path / "other"
    other.write_text("another of 24 letters...")
    other.chmod(0o600)
    with kvcl.Context(boot="self", secret_file=str(other)) as stranger:
        with pytest.raises(kvcl.AuthFailed, match=door.address):
            stranger.connect(door.address, timeout=30)
    assert door.size == 0


def test_a_connect_that_nobody_answers_ends_and_frees_the_gil(pair):
    a, _ = pair
    with socket.create_server(("127.0.0.1", 0)) as server:
        errors = []

        def connect():
            try:
                a.connect("127.0.0.1:%d" % server.getsockname()[1], timeout=0.3)
            except kvcl.KvclError as error:
                errors.append(error)

        thread = threading.Thread(target=connect)
        thread.start()
        with server.accept()[0]:  # this thread runs while the other one waits
            thread.join(60)
        assert isinstance(errors[0], kvcl.TimedOut)


def test_posted_connects_are_awaited_together(pair):
    a, b = pair
    door = a.listen("127.0.0.1:0")

    async def connect_all():
        return await asyncio.gather(*(b.connect_post(address) for address in (door.address, a.address) * 4))

    comms = asyncio.run(connect_all())
    assert sorted(comm.rank for comm in comms) == list(range(8)) and door.size == 8
    for comm in comms:
        comm.notify(0, b"%d" % comm.rank).wait(30)
    assert sorted(door.notify_recv(30)[0] for _ in comms) == list(range(8))


def test_a_posted_connect_ends_by_its_deadline_by_cancel_and_when_dropped(pair):
    a, _ = pair
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = "127.0.0.1:%d" % silent.getsockname()[1]
        late = a.connect_post(where, timeout=0.2)
        canceled, dropped = a.connect_post(where), a.connect_post(where)
        with pytest.raises(kvcl.InProgress):
            canceled.result()
        canceled.cancel()
        with pytest.raises(kvcl.Canceled, match=where):
            canceled.wait(30)
        with pytest.raises(kvcl.TimedOut, match=where):
            late.wait(30)
        del dropped  # continues, detached; the context's close ends it
    with pytest.raises(kvcl.InvalidParam, match="host:port"):
        a.connect_post("host")
    with pytest.raises(kvcl.Unreachable, match=where):
        a.connect_post(where).wait(30)
