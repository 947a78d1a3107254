"""Clients of a job's store: processes that are no ranks, through kvcl_serve --clients."""

import os
import signal
import struct
import subprocess
import sys
import threading
import time

import kvcl
import pytest
from kvcl import _client

from conftest import LIMIT, free_ports

SERVE = os.path.join(os.environ.get("top_builddir", ""), "src/tools/kvcl_serve")
BLOCK = 4096


class Server:
    """A kvcl_serve alone, with the address of its clients in a file. One that a test leaves ends with the test."""

    started = []

    def __init__(self, tmp, *options, env=None):
        self.file = str(tmp / "store")
        full = dict(os.environ, HOME=str(tmp))
        for name in ("KVCL_RENDEZVOUS", "KVCL_SIZE", "KVCL_RANK"):
            full.pop(name, None)
        full.update(env or {})
        self.process = subprocess.Popen(
            [SERVE, "--block", str(BLOCK), "--pool", "1M", "--clients", self.file, *options], env=full,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        Server.started.append(self)
        line = self.process.stdout.readline()
        assert "blocks of" in line, line + self.process.stdout.read()

    def end(self, number=signal.SIGTERM):
        """What it has said since its start."""
        self.process.send_signal(number)
        return self.process.communicate(timeout=LIMIT)[0]

    def threads(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def until_threads(self, n):
        """Until no more than so many are left."""
        until = time.monotonic() + LIMIT
        while self.threads() > n:
            assert time.monotonic() < until, f"{self.threads()} threads"
            time.sleep(0.01)

    def stop(self):
        """Returns when all its threads stand still, which SIGSTOP alone does not wait for."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)


def secret(tmp, name, text):
    """A secret's file."""
    (tmp / name).write_text(text)
    (tmp / name).chmod(0o600)
    return str(tmp / name)


@pytest.fixture
def home(tmp_path, monkeypatch):
    if not os.access(SERVE, os.X_OK):
        pytest.skip(f"no {SERVE}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KVCL_SECRET_FILE", secret(tmp_path, "secret", "a secret of 24 letters.."))
    yield tmp_path
    while Server.started:
        one = Server.started.pop()
        if one.process.poll() is None:
            one.end(signal.SIGKILL)
        one.process.stdout.close()


@pytest.fixture
def server(home):
    return Server(home)


@pytest.fixture
def connected(server):
    with kvcl.Context(boot="self") as context:
        client = kvcl.StoreClient(context, block_bytes=BLOCK, text="one")
        client.connect(server.file)
        yield context, client


def keys(n, salt="k"):
    return [kvcl.key_from_string(f"{salt} {i}") for i in range(n)]


def fill(cache, ids, salt):
    for i in ids:
        cache.write(i, bytes([(i * 7 + salt) % 251]) * BLOCK)


def test_blocks_travel_to_the_store_and_back(connected):
    context, client = connected
    layout = kvcl.Layout(layers=2, kv=1, blocks=64, head_dim=BLOCK // 2, elem_bytes=1, base="layer")
    cache = context.cache("own", layout)
    fill(cache, range(16), 3)
    names = keys(20)
    assert client.wait(client.match(names)) == 0
    assert client.wait(client.put(names[:16], cache, range(16))) == [kvcl.Status.OK] * 16
    assert client.wait(client.match(names)) == 16
    assert client.wait(client.exists(names)) == [True] * 16 + [False] * 4
    status = client.wait(client.get(names, cache, range(20, 40)))
    assert status == [kvcl.Status.OK] * 16 + [kvcl.Status.ERR_NOT_FOUND] * 4
    for i in range(16):
        assert cache.read(20 + i) == cache.read(i)
    client.wait(client.remove(names[:1]))
    assert client.wait(client.match(names)) == 0


def test_a_save_sends_only_what_is_missing(connected):
    context, client = connected
    cache = context.cache("own", kvcl.Layout.bytes(8, BLOCK))
    fill(cache, range(8), 1)
    names = keys(8)
    client.wait(client.put(names[:3], cache, range(3)))
    before = context.stats()["bytes_out"]
    assert client.wait(client.save(names, cache, range(8))) == [kvcl.Status.OK] * 8
    assert 5 * BLOCK <= context.stats()["bytes_out"] - before < 6 * BLOCK
    assert client.wait(client.match(names)) == 8


LAYERS = kvcl.Layout(layers=4, kv=1, blocks=64, head_dim=BLOCK // 4, elem_bytes=1, base="layer")


def turn(client, what, call):
    """Progress until what() holds, or the call is done."""
    until = time.monotonic() + LIMIT
    while not what() and not call.done:
        assert time.monotonic() < until, "nothing happens"
        client.progress()
        time.sleep(0.001)


@pytest.fixture
def by_layer(server):
    with kvcl.Context(boot="self") as context:
        client = kvcl.StoreClient(context, block_bytes=BLOCK, layers=4)
        client.connect(server.file)
        yield context, client


def test_a_save_reads_a_layer_when_it_is_marked_and_not_before(by_layer, connected):
    context, client = by_layer
    names, layers = keys(40), kvcl.Layers()
    cache = context.cache("layers", LAYERS)
    call = client.save(names, cache, range(40), layers=layers)
    sent = context.stats()["bytes_out"]
    for layer in range(4):
        cache.bases[layer][:] = bytes([layer + 1]) * len(cache.bases[layer])
        layers.ready(layer)
        turn(client, lambda: context.stats()["bytes_out"] - sent >= (layer + 1) * 40 * BLOCK // 4, call)
        assert layer == 3 or not call.done
    assert client.wait(call) == [kvcl.Status.OK] * 40
    assert client.wait(client.save(names, cache, range(40), layers=kvcl.Layers())) == [kvcl.Status.OK] * 40
    other, whole = connected
    back = other.cache("back", kvcl.Layout.bytes(40, BLOCK))
    assert whole.wait(whole.get(names, back, range(40))) == [kvcl.Status.OK] * 40
    want = b"".join(bytes([layer + 1]) * (BLOCK // 4) for layer in range(4))
    assert all(back.read(i) == want for i in range(40))


def test_a_get_by_layers_tells_which_have_arrived(by_layer, connected):
    context, client = by_layer
    other, whole = connected
    source = other.cache("source", kvcl.Layout.bytes(8, BLOCK))
    fill(source, range(8), 2)
    names = keys(9)
    whole.wait(whole.put(names[:8], source, range(8)))
    cache, layers = context.cache("layers", LAYERS), kvcl.Layers()
    status = client.wait(client.get(names, cache, range(10, 19), layers=layers))
    assert status == [kvcl.Status.OK] * 8 + [kvcl.Status.ERR_NOT_FOUND] and layers.there == {0, 1, 2, 3}
    assert all(cache.read(10 + i) == source.read(i) for i in range(8))
    layers = kvcl.Layers()
    assert client.wait(client.get(keys(2, "none"), cache, [0, 1], layers=layers)) == [kvcl.Status.ERR_NOT_FOUND] * 2
    assert not layers.there


def test_a_dropped_save_fails_alone_and_stores_nothing(by_layer):
    context, client = by_layer
    cache, layers, names = context.cache("layers", LAYERS), kvcl.Layers(), keys(4)
    call = client.save(names, cache, range(4), layers=layers)
    sent = context.stats()["bytes_out"]
    layers.ready(0)
    turn(client, lambda: context.stats()["bytes_out"] - sent >= 4 * BLOCK // 4, call)
    layers.drop()
    with pytest.raises(kvcl.Canceled, match="were not computed"):
        client.wait(call)
    assert client.connected and client.wait(client.exists(names)) == [False] * 4
    for _ in range(3):  # the buffer is free again
        assert client.wait(client.put(names, cache, range(4))) == [kvcl.Status.OK] * 4


def test_layers_that_do_not_fit_are_refused(by_layer, connected):
    context, client = by_layer
    with pytest.raises(kvcl.InvalidParam, match="no 3 layers of equal size"):
        kvcl.StoreClient(context, block_bytes=BLOCK, layers=3)
    other, whole = connected
    cache = other.cache("layers", LAYERS)
    with pytest.raises(kvcl.InvalidParam, match="the cache has 4, this client was made for 0"):
        whole.wait(whole.get(keys(1), cache, [0], layers=kvcl.Layers()))


def test_more_blocks_than_the_buffer_and_many_calls_at_once(home):
    server = Server(home, "--client-buffer", str(4 * BLOCK), "--pool", "4M")
    with kvcl.Context(boot="self") as context:
        client = kvcl.StoreClient(context, block_bytes=BLOCK)
        client.connect(server.file)
        cache = context.cache("own", kvcl.Layout.bytes(200, BLOCK))
        fill(cache, range(100), 9)
        names = keys(100)
        calls = [client.put(names[i:i + 10], cache, range(i, i + 10)) for i in range(0, 100, 10)]
        for call in calls:
            assert client.wait(call) == [kvcl.Status.OK] * 10
        calls = [client.get(names[i:i + 20], cache, range(100 + i, 120 + i)) for i in range(0, 100, 20)]
        for call in calls:
            assert client.wait(call) == [kvcl.Status.OK] * 20
        assert all(cache.read(100 + i) == cache.read(i) for i in range(100))
    server.end()


def test_clients_come_and_go_and_see_each_others_blocks_and_texts(server):
    names = keys(4)
    for turn in range(3):
        with kvcl.Context(boot="self") as context:
            client = kvcl.StoreClient(context, block_bytes=BLOCK, text=f"turn {turn}")
            client.connect(server.file)
            assert client.others == [f"turn {i}" for i in range(turn)]
            cache = context.cache("own", kvcl.Layout.bytes(8, BLOCK))
            if turn == 0:
                fill(cache, range(4), 5)
                client.wait(client.put(names, cache, range(4)))
            else:
                assert client.wait(client.get(names, cache, range(4, 8))) == [kvcl.Status.OK] * 4
                assert cache.read(5) == bytes([(1 * 7 + 5) % 251]) * BLOCK


def test_a_client_that_is_killed_leaves_the_others_alone(server, connected):
    context, client = connected
    body = ("import kvcl, os, sys; c = kvcl.Context(boot='self');"
            f"s = kvcl.StoreClient(c, block_bytes={BLOCK}); s.connect(sys.argv[1]);"
            f"k = c.cache('own', kvcl.Layout.bytes(8, {BLOCK}));"
            "n = [kvcl.key_from_string(f'k {i}') for i in range(8)];"
            "s.wait(s.put(n, k, range(8))); s.put(n, k, range(8)); print('in', flush=True);"
            "os.kill(os.getpid(), 9)")
    done = subprocess.run([sys.executable, "-c", body, server.file], stdout=subprocess.PIPE, timeout=LIMIT, text=True)
    assert done.stdout == "in\n"
    assert client.wait(client.match(keys(8))) == 8


def test_sessions_that_a_living_process_has_left_end(server):
    """More than may be connected, of one context, as an engine's that introduces itself and takes up a lost store."""
    before = server.threads()
    with kvcl.Context(boot="self") as context:
        for turn in range(300):
            client = kvcl.StoreClient(context, text=f"turn {turn % 5}")
            client.connect(server.file)
            client._other_form() if turn % 3 == 0 else client.close()
        server.until_threads(before)
        client.connect(server.file)
        assert client.wait(client.match(keys(2))) == 0
    assert server.end() == ""


def test_clients_that_send_no_requests_do_not_fill_the_log(server):
    before = server.threads()
    with kvcl.Context(boot="self") as context:
        for _ in range(9):
            bad = kvcl.StoreClient(context)
            bad.connect(server.file)
            bad._comm.send_bytes(0, _client.TAG_REQUEST, b"x").wait(LIMIT)
        server.until_threads(before)
    lines = server.end().splitlines()
    assert [line[-14:] for line in lines] == [f"({n} such so far)"[-14:] for n in (1, 2, 4, 8)], lines


@pytest.mark.parametrize("blocks", [0, 3])
def test_a_server_alone_says_which_blocks_end_with_it_and_nothing_else(server, blocks):
    """Whether clients wait or are being answered."""
    with kvcl.Context(boot="self") as context:
        client = kvcl.StoreClient(context, block_bytes=BLOCK)
        client.connect(server.file)
        cache = context.cache("own", kvcl.Layout.bytes(8, BLOCK))
        assert client.wait(client.put(keys(blocks), cache, range(blocks))) == [kvcl.Status.OK] * blocks
        busy = kvcl.StoreClient(context)
        busy.connect(server.file)
        calls = [busy.exists(keys(1) * 4096) for _ in range(2000)]  # longer than the server takes to end
        said = server.end()
        busy.close()
        while busy.progress():
            time.sleep(0.001)
        assert all(call.done for call in calls)
    assert said == (f"kvcl_serve: rank 0 of 1: no rank is left to take its blocks: {blocks} in memory end with it\n"
                    if blocks else "")


def test_a_killed_server_ends_the_calls_and_another_is_taken_up(home):
    server = Server(home)
    with kvcl.Context(boot="self") as context:
        client = kvcl.StoreClient(context, block_bytes=BLOCK, timeout=20)
        client.connect(server.file)
        cache = context.cache("own", kvcl.Layout.bytes(8, BLOCK))
        names = keys(8)
        client.wait(client.put(names, cache, range(8)))
        server.end(signal.SIGKILL)
        with pytest.raises(kvcl.KvclError):
            client.wait(client.get(names, cache, range(8)))
        assert not client.connected
        with pytest.raises(kvcl.KvclError):
            client.wait(client.match(names))
        with pytest.raises((kvcl.KvclError, OSError)):
            client.connect(server.file, 1.0)
        again = Server(home)
        client.connect(again.file)
        assert client.wait(client.match(names)) == 0
        assert client.wait(client.put(names, cache, range(8))) == [kvcl.Status.OK] * 8
        again.end()


def test_the_file_goes_with_the_server(home):
    server = Server(home)
    assert os.path.exists(server.file)
    server.end()
    assert not os.path.exists(server.file)
    with kvcl.Context(boot="self") as context, pytest.raises(FileNotFoundError):
        kvcl.StoreClient(context).connect(server.file)


@pytest.mark.parametrize("bytes_", [b"", b"\xff\n", b"http://127.0.0.1:1\n"])
def test_a_file_without_an_address_is_named(home, bytes_):
    (home / "other").write_bytes(bytes_)
    with kvcl.Context(boot="self") as context:
        for file in (str(home / "other"), "/dev/zero"):
            with pytest.raises(kvcl.InvalidParam, match=f"{file} holds no address: name the file that kvcl_serve"):
                kvcl.StoreClient(context).connect(file)


def test_another_secret_is_refused(home):
    server = Server(home)
    with kvcl.Context(boot="self", secret_file=secret(home, "b", "another of 24 letters...")) as context:
        with pytest.raises(kvcl.AuthFailed):
            kvcl.StoreClient(context).connect(server.file, 3.0)
    with kvcl.Context(boot="self") as context:
        client = kvcl.StoreClient(context)
        client.connect(server.file)
        assert client.wait(client.match(keys(2))) == 0
    server.end()


def test_clients_need_a_secret(home):
    env = {name: value for name, value in os.environ.items() if name != "KVCL_SECRET_FILE"}
    done = subprocess.run([SERVE, "--block", "4096", "--clients", str(home / "store")], env=env, text=True,
                          stderr=subprocess.PIPE, timeout=LIMIT)
    assert done.returncode == 2 and "set KVCL_SECRET_FILE" in done.stderr


def test_blocks_of_another_size_are_refused(home):
    server = Server(home)
    with kvcl.Context(boot="self") as context:
        client = kvcl.StoreClient(context, block_bytes=2 * BLOCK)
        client.connect(server.file)
        cache = context.cache("own", kvcl.Layout.bytes(4, 2 * BLOCK))
        status = client.wait(client.put(keys(4), cache, range(4)))
        assert status == [kvcl.Status.ERR_BAD_LAYOUT] * 4
        assert client.connected
        with pytest.raises(ValueError):
            client.wait(client.put(keys(4), cache, range(3)))
    server.end()


def test_a_client_takes_no_more_memory_of_the_server_than_its_buffer(home):
    server = Server(home, "--client-buffer", "64K")
    with kvcl.Context(boot="self") as context:
        for bytes_ in ((1 << 32) - 2, (64 << 10) + 1):
            with pytest.raises(kvcl.InvalidParam, match="larger than a client's buffer"):
                kvcl.StoreClient(context, block_bytes=bytes_).connect(server.file)
        for bytes_, blocks in ((64 << 10, 1), (BLOCK, 16)):
            client = kvcl.StoreClient(context, block_bytes=bytes_)
            client.connect(server.file)
            assert len(client._free) == blocks
    assert server.process.poll() is None
    server.end()
    server = Server(home, "--client-buffer", "1K")  # less than a block of the store: it has room for one
    with kvcl.Context(boot="self") as context:
        client = kvcl.StoreClient(context, block_bytes=BLOCK)
        client.connect(server.file)
        assert len(client._free) == 1
    server.end()


def test_a_failed_exists_is_an_error_and_no_answer(home, monkeypatch):
    """Many of the keys are listed at the other rank, which must be queried, and stands still."""
    meeting = f"tcp://127.0.0.1:{free_ports()}"
    monkeypatch.setenv("KVCL_PATH", "tcp")
    monkeypatch.setenv("KVCL_NET", "lo")
    job = {"KVCL_RENDEZVOUS": meeting, "KVCL_SIZE": "2"}
    other = subprocess.Popen([SERVE, "--block", str(BLOCK), "--pool", "1M", "--replicas", "1"],
                             env=dict(os.environ, KVCL_RANK="1", **job), stdout=subprocess.DEVNULL)
    server = Server(home, "--replicas", "1", env=dict(job, KVCL_RANK="0"))
    try:
        with kvcl.Context(boot="self") as context:
            client = kvcl.StoreClient(context)
            client.connect(server.file)
            names = keys(256)
            request = _client._REQUEST.pack(_client.VERSION, _client.EXISTS, 7, 1, 0, len(names), 0) + b"".join(names)
            other.send_signal(signal.SIGSTOP)
            os.waitpid(other.pid, os.WUNTRACED)  # all its threads stand still
            with pytest.raises(kvcl.TimedOut):
                client.wait(client._post(client._exchange(7, request, len(names))))
            other.send_signal(signal.SIGCONT)
            assert client.wait(client.exists(names)) == [False] * len(names)
    finally:
        other.kill()
        other.wait()
        server.end(signal.SIGKILL)


@pytest.mark.parametrize("data", [b"x" * 100, struct.pack("<IIQQQII", 1, 1, 5, 0, BLOCK, 3, 0)])  # 3 layers of 4096
def test_bytes_that_are_no_request_end_that_client_only(server, connected, data):
    _, client = connected
    with kvcl.Context(boot="self") as context:
        bad = kvcl.StoreClient(context)
        bad.connect(server.file)
        bad._comm.send_bytes(0, 1, data).wait(LIMIT)
        with pytest.raises(kvcl.KvclError):
            bad._timeout = 2.0
            bad.wait(bad.match(keys(2)))
    assert client.wait(client.match(keys(2))) == 0
    assert server.process.poll() is None


@pytest.mark.parametrize("wrong, value, body", [
    (_client.HELLO, 0, b"x" * 71), (_client.HELLO, 0, struct.pack("<II64s", 1 << 21, 0, b"buffer")),
    (_client.MATCH, 3, b""), (_client.EXISTS, 0, b"\1"), (_client.GET, 0, bytes(4))],
    ids=["a short welcome", "a buffer of too many blocks", "more than were asked for", "bytes for one key",
         "a status for one key"])
def test_replies_of_another_form_end_the_connection(home, wrong, value, body):
    """Of a server that has the secret, and answers for two keys as no kvcl_serve does."""
    welcome = _client._WELCOME.pack(4, 0, b"buffer")

    def serve():
        try:
            inter, buffer = theirs.world.accept(LIMIT), bytearray(1 << 16)
            while True:
                inter.recv_bytes(0, _client.TAG_REQUEST, buffer, timeout=LIMIT).wait()
                _, kind, number, *_ = _client._REQUEST.unpack_from(buffer)
                n, text = (value, body) if kind == wrong else (0, welcome)
                inter.send_bytes(0, _client.TAG_REPLY,
                                 _client._REPLY.pack(_client.VERSION, 0, number, n, len(text), 0) + text).wait()
        except kvcl.KvclError:
            pass

    with kvcl.Context(boot="self") as theirs:
        (home / "file").write_text(theirs.address)
        thread = threading.Thread(target=serve)
        thread.start()
        with kvcl.Context(boot="self") as mine:
            client = kvcl.StoreClient(mine, block_bytes=BLOCK)
            cache = mine.cache("own", kvcl.Layout.bytes(2, BLOCK))
            with pytest.raises(kvcl.ProtocolError, match="another form"):
                client.connect(str(home / "file"), LIMIT)
                client.wait({_client.MATCH: client.match, _client.EXISTS: client.exists,
                             _client.GET: lambda names: client.get(names, cache, [0, 1])}[wrong](keys(2)))
            assert not client.connected
    thread.join(LIMIT)
    assert not thread.is_alive()
