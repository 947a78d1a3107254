"""Tensors of a real CUDA device: the calls that engines make. Skipped without torch and a GPU; test_device.py and
test_transfer.py run on a driver without a device. Random numbers of a seed that is printed."""

import faulthandler
import importlib.util
import os
import random
import subprocess
import sys
import time

import pytest

import kvcl
from conftest import HERE, run_ranks
from test_client import SERVE, Server, home, secret  # noqa: F401: home is a fixture

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is absent", allow_module_level=True)
import torch  # noqa: E402

if not torch.cuda.is_available():
    pytest.skip("no GPU here", allow_module_level=True)

LAYERS, BLOCKS = 4, 32
LAYOUT = kvcl.Layout(layers=LAYERS, blocks=BLOCKS, tokens=16, heads=4, head_dim=64, elem_bytes=2, base="layer")
SEED = int(os.environ.get("TEST_SEED", time.time_ns() & 0xffffffff))
WAIT = 60


@pytest.fixture(autouse=True)
def seeded():
    faulthandler.dump_traceback_later(305, exit=True)  # torch and CUDA are slow to load
    print(f"TEST_SEED={SEED}")
    torch.manual_seed(SEED)
    random.seed(SEED)
    yield
    torch.cuda.synchronize()


def tensors(device, fill=True):
    """One for each layer; its first dimension counts bytes of all blocks, K first."""
    shape = (LAYOUT.base_bytes,)
    return [torch.randint(0, 256, shape, dtype=torch.uint8, device=device) if fill else
            torch.zeros(shape, dtype=torch.uint8, device=device) for _ in range(LAYERS)]


def block(layers, i):
    """The bytes of a block, over all layers, K and V."""
    return torch.cat([x.view(2, BLOCKS, -1)[:, i].reshape(-1) for x in layers]).cpu()


def busy(stream):
    """Work for the stream, of some 20 ms."""
    with torch.cuda.stream(stream):
        torch.cuda._sleep(40_000_000)


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("sides", [("cuda", "cuda"), ("cpu", "cuda"), ("cuda", "cpu")])
def test_blocks_of_tensors_move(n, sides):
    """Gets and puts of blocks at random, between ranks that are threads."""
    mapping = list(zip(random.sample(range(BLOCKS), 20), random.sample(range(BLOCKS), 20)))
    theirs, mine = [b for b, _ in mapping], [a for _, a in mapping]
    first, second = tensors(sides[0]), tensors(sides[1], fill=False)
    torch.cuda.synchronize()

    def body(ctx):
        target = ctx.size - 1
        if ctx.rank == target:
            source = ctx.cache("first", LAYOUT, first, writable=True)  # kept until the end
            assert source.on_device == (sides[0] == "cuda")
        if ctx.rank == 0:
            cache = ctx.cache("second", LAYOUT, second, writable=True)
        ctx.world.barrier()
        if ctx.rank == 0:
            ctx.world.get(target, cache, theirs, mine, remote_cache="first").wait(WAIT)
            for a, b in zip(theirs, mine):
                assert torch.equal(block(first, a), block(second, b))
            for x in second:
                x.random_(0, 256)
            torch.cuda.synchronize()
            ctx.world.put(target, cache, mine, theirs, remote_cache="first").wait(WAIT)
            for a, b in zip(theirs, mine):
                assert torch.equal(block(first, a), block(second, b))
        ctx.world.barrier()

    run_ranks(n, body)


def test_registered_tensors(ctx):
    """Plain memory of a device: attach, get, put, vectors."""
    x = torch.randint(0, 256, (1 << 20,), dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    with ctx.register(x) as mem:
        assert ctx.register(torch.zeros(8, dtype=torch.uint8)) is not None
        remote = ctx.world.attach(0, mem.export(write=True))
        got = bytearray(1 << 20)
        remote.get(0, got).wait(WAIT)
        assert bytes(got) == bytes(x.cpu().numpy())
        remote.put(1000, b"abc" * 100).wait(WAIT)
        assert bytes(x[1000:1300].cpu().numpy()) == b"abc" * 100
        pieces = bytearray(3000)
        at = [i * 1000 for i in range(1000)]
        remote.get_vec(at, pieces, [i * 3 for i in range(1000)], 3).wait(WAIT)
        want = x.cpu()
        assert bytes(pieces) == b"".join(bytes(want[i:i + 3].numpy()) for i in at)


def test_a_transfer_follows_the_stream(ctx):
    """A put is posted while the stream that computes its blocks is busy: the bytes are those that it computes."""
    stream = torch.cuda.Stream()
    x, y = tensors("cuda", fill=False), tensors("cuda", fill=False)
    want = tensors("cuda")
    torch.cuda.synchronize()
    one, two = (ctx.cache(name, LAYOUT, t, writable=True) for name, t in (("one", x), ("two", y)))
    busy(stream)
    with torch.cuda.stream(stream):
        for a, b in zip(x, want):
            a.copy_(b, non_blocking=True)
    every = list(range(BLOCKS))
    put = ctx.world.put(0, one, every, every, remote_cache="two", stream=stream)
    assert not put.test()
    put.wait(WAIT)
    assert all(torch.equal(a, b) for a, b in zip(y, want))
    busy(stream)
    done = ctx.stream_done(stream, timeout=WAIT)
    assert not done.test()
    done.wait(WAIT)
    assert stream.query()
    assert ctx.stream_done(torch.cuda.current_stream(), timeout=WAIT).wait(WAIT) is None


def test_a_stream_that_is_captured_is_refused(ctx):
    x = tensors("cuda")
    cache = ctx.cache("one", LAYOUT, x, writable=True)
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        x[0].add_(1)
        with pytest.raises(kvcl.InvalidParam, match="captured"):
            ctx.world.put(0, cache, [1], [2], stream=stream)
    graph.replay()
    torch.cuda.synchronize()


def test_a_put_by_layers(ctx):
    """send and recv layer by layer, each layer marked when its stream's work is done."""
    x, y = tensors("cuda", fill=False), tensors("cuda", fill=False)
    want = tensors("cuda")
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    mine, theirs = ctx.cache("one", LAYOUT, x), ctx.cache("two", LAYOUT, y)
    recv = ctx.world.recv(0, 3, theirs, [5, 6], timeout=WAIT)
    send = ctx.world.send(0, 3, mine, [7, 8], layerwise=True, timeout=WAIT)
    for layer in range(LAYERS):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(1_000_000)
            x[layer].copy_(want[layer], non_blocking=True)
        ctx.stream_done(stream, timeout=WAIT).wait(WAIT)
        send.layer_ready(layer)
        recv.layer_wait(layer, WAIT)
        assert torch.equal(y[layer].view(2, BLOCKS, -1)[:, 5:7], want[layer].view(2, BLOCKS, -1)[:, 7:9])
    send.wait(WAIT)
    recv.wait(WAIT)


@pytest.mark.parametrize("n", [1, 2])
def test_a_store_keeps_blocks_of_a_device(n):
    keys = [kvcl.key_from_string(f"gpu {i}") for i in range(BLOCKS)]
    first, second = tensors("cuda"), tensors("cuda", fill=False)
    torch.cuda.synchronize()
    every = list(range(BLOCKS))

    def body(ctx):
        store = kvcl.Store(ctx.world, dram_bytes=4 * BLOCKS * LAYOUT.block_bytes, block_bytes=LAYOUT.block_bytes)
        with store:
            ctx.world.barrier()
            if ctx.rank == 0:
                cache = ctx.cache("one", LAYOUT, first)
                store.put(keys, cache, every).wait(WAIT)
            ctx.world.barrier()
            if ctx.rank == ctx.size - 1:
                cache = ctx.cache("two", LAYOUT, second)
                store.get(keys, cache, every[::-1]).wait(WAIT)
            ctx.world.barrier()

    run_ranks(n, body)
    for i in every:
        assert torch.equal(block(first, i), block(second, BLOCKS - 1 - i))


def test_a_client_saves_by_layers(home, monkeypatch):  # noqa: F811
    """As vLLM's connector: a save posted before the step, its layers marked on the stream, then a get into others."""
    import test_client

    # A block's bytes of a layer lie together, as the server's do.
    layout = kvcl.Layout(layers=LAYERS, kv=1, blocks=BLOCKS, head_dim=LAYOUT.block_bytes // LAYERS, elem_bytes=1,
                         base="layer")
    monkeypatch.setattr(test_client, "BLOCK", LAYOUT.block_bytes)
    server = Server(home, "--pool", str(4 * BLOCKS * LAYOUT.block_bytes))
    try:
        with kvcl.Context(boot="self") as ctx:
            client = kvcl.StoreClient(ctx, block_bytes=LAYOUT.block_bytes, layers=LAYERS)
            client.connect(server.file)
            keys = [kvcl.key_from_string(f"layers {i}") for i in range(BLOCKS)]
            x, y, want = tensors("cuda", fill=False), tensors("cuda", fill=False), tensors("cuda")
            torch.cuda.synchronize()
            one, two = ctx.cache("one", layout, x), ctx.cache("two", layout, y)
            stream, layers = torch.cuda.Stream(), kvcl.Layers()
            call = client.save(keys, one, range(BLOCKS), layers=layers)
            for layer in range(LAYERS):
                with torch.cuda.stream(stream):
                    torch.cuda._sleep(1_000_000)
                    x[layer].copy_(want[layer], non_blocking=True)
                layers.ready(layer, stream)
            assert client.wait(call) == [kvcl.Status.OK] * BLOCKS
            assert client.wait(client.get(keys, two, range(BLOCKS), layers=kvcl.Layers())) == [kvcl.Status.OK] * BLOCKS
            assert all(torch.equal(a, b) for a, b in zip(y, want))
            client.close()
    finally:
        server.end()


GROUP = """
import os, sys
import torch
import torch.distributed as dist
import kvcl.torch

rank, size = int(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("kvcl", init_method="file://" + sys.argv[3], rank=rank, world_size=size)
for dtype in (torch.float32, torch.bfloat16, torch.int64):
    for count in (1, 5000, 700001):
        x = ((torch.arange(count, device="cuda") * 7 + rank * 3) % 3 + 1).to(dtype)
        want = sum(((torch.arange(count, device="cuda") * 7 + r * 3) % 3 + 1).to(dtype) for r in range(size))
        out = [torch.zeros_like(x) for _ in range(size)]
        mine = x.clone()
        dist.all_gather(out, x)
        assert torch.equal(out[rank], mine), "all_gather"
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(4_000_000)
            x.mul_(2)
            work = dist.all_reduce(x, async_op=True)
            work.wait()
            assert torch.equal(x, want * 2), "all_reduce after work of the stream"
        dist.broadcast(mine, 0)
        assert torch.equal(mine, ((torch.arange(count, device="cuda") * 7) % 3 + 1).to(dtype)), "broadcast"
        parts = torch.arange(size * 1000, device="cuda") + rank * 1000000
        got = torch.zeros_like(parts)
        dist.all_to_all_single(got, parts)
        for r in range(size):
            want_part = torch.arange(rank * 1000, rank * 1000 + 1000, device="cuda") + r * 1000000
            assert torch.equal(got[r * 1000:(r + 1) * 1000], want_part), "all_to_all"
x = torch.nn.Linear(64, 64).cuda()
model = torch.nn.parallel.DistributedDataParallel(x) if size > 1 else x
model(torch.ones(4, 64, device="cuda")).sum().backward()
assert all(p.grad is not None for p in model.parameters())
dist.barrier()
dist.destroy_process_group()
print("group: all right")
"""


@pytest.mark.parametrize("size", [1, 2])
def test_a_group_of_device_tensors(size, tmp_path):
    """One rank goes by NCCL where it is there, two on one GPU by the host."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_", "KVCL_RENDEZVOUS", "KVCL_SIZE"))}
    ranks = [subprocess.Popen([sys.executable, "-c", GROUP, str(rank), str(size), str(tmp_path / "meet")], env=env,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=HERE)
             for rank in range(size)]
    for rank in ranks:
        out, _ = rank.communicate(timeout=240)
        assert rank.returncode == 0 and "group: all right" in out, out
