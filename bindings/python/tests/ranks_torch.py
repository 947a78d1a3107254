"""Runs on each rank of test_torch.py: every collective by a kvcl group and by a gloo group, with the same result.

One argument: a directory, for the file by which the ranks meet.
"""

import datetime
import os
import sys

import torch
import torch.distributed as dist

import kvcl
import kvcl.torch

RANK, SIZE = (int(os.environ[f"OMPI_COMM_WORLD_{what}"]) for what in ("RANK", "SIZE"))
OPS = [dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX,
       dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR]
DTYPES = [torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
          torch.float64, torch.bool]
COUNTS = [1, 5000, 40000]
WHOLE = [torch.uint8, torch.int8, torch.int32, torch.int64]

gloo = None


def data(dtype, count, salt=0):
    """Small numbers: sums of eight ranks, and products of four, are exact in every type."""
    x = (torch.arange(count) * 7 + RANK * 3 + salt) % 3 + 1
    return (x % 2 == 0) if dtype == torch.bool else x.to(dtype)


def operands(op, dtype, count):
    """Other numbers at each rank, such that the result is exact in every type: of a product four ranks give ones."""
    return torch.ones(count, dtype=dtype) if op == dist.ReduceOp.PRODUCT and RANK >= 4 else data(dtype, count, RANK)


def both(what, call):
    """call(group) -> tensors, by both backends."""
    mine, theirs = call(None), call(gloo)
    assert len(mine) == len(theirs), what
    for a, b in zip(mine, theirs):
        assert a.dtype == b.dtype and a.shape == b.shape, what
        assert torch.equal(a, b), f"rank {RANK}: {what}: {a.flatten()[:8]} instead of {b.flatten()[:8]}"


def reductions():
    for dtype in DTYPES:
        for count in COUNTS:
            for op in OPS:
                if op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR) and dtype not in WHOLE:
                    continue
                if dtype == torch.bool and op not in (dist.ReduceOp.MIN, dist.ReduceOp.MAX):
                    continue
                if op == dist.ReduceOp.AVG and not dtype.is_floating_point:
                    continue

                def all_reduce(group):
                    x = operands(op, dtype, count)
                    dist.all_reduce(x, op, group=group)
                    return [x]

                def reduce(group):
                    x = operands(op, dtype, count)
                    dist.reduce(x, SIZE - 1, op, group=group)
                    return [x] if RANK == SIZE - 1 else []

                both(f"all_reduce {dtype} {count} {op}", all_reduce)
                if count == 5000:
                    both(f"reduce {dtype} {count} {op}", reduce)


def long_ones():
    """Of many pieces, three of them in flight."""
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        def three(group):
            xs = [data(dtype, 700001, salt) for salt in range(3)]
            for work in [dist.all_reduce(x, dist.ReduceOp.SUM, group=group, async_op=True) for x in xs]:
                work.wait()
            return xs

        both(f"three long all_reduce of {dtype}", three)


def movements():
    for dtype in DTYPES:
        for count in COUNTS[:2]:
            def shaped(n, salt=0):
                x = data(torch.int64, n, salt)
                return x.to(dtype) if dtype != torch.bool else x % 2 == 0

            def broadcast(group):
                x = shaped(count)
                dist.broadcast(x, SIZE - 1, group=group)
                return [x]

            def all_gather(group):
                out = [torch.zeros(count, dtype=dtype) for _ in range(SIZE)]
                dist.all_gather(out, shaped(count), group=group)
                return out

            def into_tensor(group):
                out = torch.zeros(SIZE * count, dtype=dtype)
                dist.all_gather_into_tensor(out, shaped(count), group=group)
                return [out]

            def gather(group):
                out = [torch.zeros(count, dtype=dtype) for _ in range(SIZE)] if RANK == 1 else None
                dist.gather(shaped(count), out, 1, group=group)
                return out or []

            def scatter(group):
                out = torch.zeros(count, dtype=dtype)
                dist.scatter(out, [shaped(count, r) for r in range(SIZE)] if RANK == 1 else None, 1, group=group)
                return [out]

            for call in (broadcast, all_gather, into_tensor, gather, scatter):
                both(f"{call.__name__} {dtype} {count}", call)
    for dtype in (torch.int16, torch.complex64, torch.float8_e4m3fn):  # gloo does not take all of these
        x = data(torch.int64, 10).to(dtype)
        out = [torch.zeros_like(x) for _ in range(SIZE)]
        dist.all_gather(out, x)
        assert torch.equal(out[RANK].view(torch.uint8), x.view(torch.uint8))


def exchanges():
    for count in COUNTS:
        def single(group):
            out = torch.zeros(SIZE * count)
            dist.all_to_all_single(out, data(torch.float32, SIZE * count), group=group)
            return [out]

        def uneven(group):
            out = torch.zeros(sum(r + RANK for r in range(SIZE)), 3)
            x = data(torch.float32, 3 * sum(r + RANK for r in range(SIZE))).view(-1, 3)
            split = [r + RANK for r in range(SIZE)]
            dist.all_to_all_single(out, x, split, split, group=group)
            return [out]

        def some_empty(group):
            given = [(count if (RANK + r) % 3 else 0) for r in range(SIZE)]
            taken = [(count if (RANK + r) % 3 else 0) for r in range(SIZE)]
            out = torch.zeros(sum(taken), dtype=torch.int16)
            dist.all_to_all_single(out, data(torch.int16, sum(given), RANK), taken, given, group=group)
            return [out]

        both(f"all_to_all_single {count}", single)
        both("all_to_all_single, uneven", uneven)
        whole = some_empty(None)[0]
        want = [(torch.arange(sum(count if (s + r) % 3 else 0 for r in range(SIZE))) * 7 + s * 4) % 3 + 1
                for s in range(SIZE)]
        ends = [[sum(count if (s + r) % 3 else 0 for r in range(n)) for n in range(SIZE + 1)] for s in range(SIZE)]
        assert torch.equal(whole, torch.cat([want[s][ends[s][RANK]:ends[s][RANK + 1]] for s in range(SIZE)]).short())
    try:
        dist.all_to_all_single(torch.zeros(3 * SIZE), torch.zeros(3 * SIZE), [3] * SIZE, [3] * (SIZE - 1) + [2])
        raise AssertionError("splits that are not the whole tensor were taken")
    except (ValueError, RuntimeError):
        pass
    mine = [torch.full((r + 1,), float(RANK)) for r in range(SIZE)]
    out = [torch.zeros(RANK + 1) for _ in range(SIZE)]
    dist.all_to_all(out, mine)
    assert all(torch.equal(out[r], torch.full((RANK + 1,), float(r))) for r in range(SIZE))
    for dtype in (torch.float32, torch.int64, torch.bfloat16):
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, *([dist.ReduceOp.AVG] if dtype.is_floating_point else [])):
            x, part = data(dtype, SIZE * 3000), torch.zeros(3000, dtype=dtype)
            dist.reduce_scatter_tensor(part, x, op)
            whole = x.clone()
            dist.all_reduce(whole, op, group=gloo)
            assert torch.equal(part, whole[RANK * 3000:(RANK + 1) * 3000])
            part.zero_()
            dist.reduce_scatter(part, list(x.chunk(SIZE)), op)
            assert torch.equal(part, whole[RANK * 3000:(RANK + 1) * 3000])


def lists_in_place():
    """Tensors of gather, scatter and all_to_all that have holes, or are the rank's own."""
    def views(count):
        return [torch.zeros(count, 2)[:, 0] for _ in range(SIZE)]

    for count in COUNTS:
        for root in range(SIZE):
            out = views(count) if RANK == root else None
            if out is not None:
                out[RANK] = data(torch.float32, count)
            dist.gather(out[RANK] if out is not None else data(torch.float32, count), out, root)
            assert RANK != root or all(torch.equal(out[r], ((torch.arange(count) * 7 + r * 3) % 3 + 1).float())
                                       for r in range(SIZE))
            given = [data(torch.float32, 2 * count, r)[::2] for r in range(SIZE)] if RANK == root else None
            got = given[RANK] if given is not None else views(count)[0]
            dist.scatter(got, given, root)
            want = ((torch.arange(2 * count) * 7 + root * 3 + RANK) % 3 + 1).float()[::2]
            assert torch.equal(got, want), (count, root)
        out = views(count)
        dist.all_to_all(out, [data(torch.float32, 2 * count, r)[::2] for r in range(SIZE)])
        for r in range(SIZE):
            assert torch.equal(out[r], ((torch.arange(2 * count) * 7 + r * 3 + RANK) % 3 + 1).float()[::2])
    for wrong in ([torch.zeros(2)] * SIZE, [torch.zeros(3, dtype=torch.int32)] * SIZE, [torch.zeros(3)] * (SIZE - 1)):
        try:
            dist.distributed_c10d._get_default_group().gather([wrong], [torch.zeros(3)], _rooted(RANK))
            raise AssertionError("tensors that do not fit were taken")
        except ValueError:
            pass


def _rooted(root):
    opts = dist.GatherOptions()
    opts.rootRank = root
    return opts


def messages():
    peer = (RANK + 1) % SIZE
    for count in (0, 1, 100000):
        x, y = data(torch.float32, count), torch.zeros(count)
        works = [dist.isend(x, peer, tag=5), dist.irecv(y, (RANK - 1) % SIZE, tag=5)]
        for work in works:
            work.wait()
        assert torch.equal(y, (torch.arange(count) * 7 + ((RANK - 1) % SIZE) * 3) % 3 + 1.0)
    if RANK == 0:
        seen = set()
        for _ in range(SIZE - 1):
            y = torch.zeros(1)
            seen.add((dist.recv(y), int(y)))
        assert seen == {(r, r) for r in range(1, SIZE)}
    else:
        dist.send(torch.tensor([float(RANK)]), 0)


def kinds_of_tensors():
    """Messages of tensors that are not simply their memory."""
    peer, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    for count in (4, 40000):
        turned = torch.complex(torch.ones(count), torch.arange(count) + float(RANK))
        given = {
            "bf16": data(torch.bfloat16, count), "bool": data(torch.bool, count), "learned": torch.ones(count) + RANK,
            "rows": data(torch.float32, count).view(2, -1).t(), "one": torch.tensor(3.0 + RANK).expand(count),
            "part": data(torch.int64, 2 * count)[::2], "negative": turned.conj().imag, "complex": turned,
            "last": turned.conj().imag[:1], "scalar": torch.tensor(5 + RANK),
        }
        given["learned"].requires_grad_()
        for what, x in given.items():
            boxes = [None] * SIZE
            dist.all_gather_object(boxes, x.detach().resolve_neg(), group=gloo)
            y, wide = torch.zeros_like(x.detach()).contiguous(), torch.zeros((*x.shape, 2), dtype=x.dtype)
            for target in (y, wide[..., 1]):
                works = [dist.irecv(target, before), dist.isend(x, peer)]
                for work in works:
                    work.wait()
                assert torch.equal(target, boxes[before]), (what, count, target, boxes[before])
            assert not wide[..., 0].any(), what


def objects():
    out = [None] * SIZE
    dist.all_gather_object(out, {"rank": RANK, "text": "x" * RANK * 1000})
    assert out == [{"rank": r, "text": "x" * r * 1000} for r in range(SIZE)]
    box = [("from", RANK)] if RANK == 1 else [None]
    dist.broadcast_object_list(box, 1)
    assert box == [("from", 1)]
    out = [None] * SIZE if RANK == 0 else None
    dist.gather_object([RANK] * 3, out, 0)
    assert RANK != 0 or out == [[r] * 3 for r in range(SIZE)]
    got = [None]
    dist.scatter_object_list(got, [f"for {r}" for r in range(SIZE)] if RANK == 0 else None, 0)
    assert got == [f"for {RANK}"]


def few_bytes_are_given_at_once():
    """Nobody waits until others take them, and the tensors may change."""
    x, y, mine = torch.zeros(3), torch.zeros(3), torch.full((3,), -2.0)
    if RANK != 0:
        for turn in range(3):
            dist.gather(x.fill_(10 * turn + RANK), None, 0)
            dist.send(x.fill_(100 * turn + RANK), 0, tag=turn)
        x.fill_(-1)
    dist.barrier(group=gloo)  # rank 0 has called nothing yet
    for turn in range(3 if RANK == 0 else 0):
        out = [torch.zeros(3) for _ in range(SIZE)]
        dist.gather(mine, out, 0)
        assert torch.equal(out[0], mine)
        for r in range(1, SIZE):
            assert out[r].tolist() == [10 * turn + r] * 3, (turn, r, out[r])
            dist.recv(y, r, tag=turn)
            assert y.tolist() == [100 * turn + r] * 3, (turn, r, y)
    if RANK == 0:
        for turn in range(3):
            dist.broadcast(x.fill_(turn), 0)
            parts = [torch.full((3,), 10.0 * turn + r) for r in range(SIZE)]
            dist.scatter(mine, parts, 0)
            assert mine.tolist() == [10 * turn] * 3
            [part.fill_(-1) for part in parts]
        x.fill_(-1)
    dist.barrier(group=gloo)  # the others have called nothing yet
    for turn in range(3 if RANK != 0 else 0):
        dist.broadcast(x, 0)
        dist.scatter(mine, None, 0)
        assert x.tolist() == [turn] * 3 and mine.tolist() == [10 * turn + RANK] * 3, (turn, x, mine)


def refused(what, error, said, call):
    """On all ranks alike, before anything is sent."""
    try:
        call()
    except error as got:
        assert said in str(got), (what, got)
    else:
        raise AssertionError(f"{what} was taken")


def the_rest():
    x = torch.arange(100.0).view(10, 10).t()
    want = x.clone()
    dist.all_reduce(x, dist.ReduceOp.AVG)
    assert torch.equal(x, want)  # not contiguous
    refused("an average of integers", ValueError, "floating-point tensors are needed",
            lambda: dist.all_reduce(torch.ones(3, dtype=torch.int32), dist.ReduceOp.AVG))
    refused("another operation", ValueError, "not by ", lambda: dist.all_reduce(x, dist._make_nccl_premul_sum(2.0)))
    refused("a sparse tensor", ValueError, "takes dense tensors", lambda: dist.all_reduce(torch.eye(3).to_sparse()))
    refused("a timeout below 0", ValueError, "a time above 0",
            lambda: dist.new_group(backend="kvcl", timeout=datetime.timedelta(seconds=-1)))
    refused("pg_options", TypeError, "the kvcl backend has none",
            lambda: dist.new_group(backend="kvcl", pg_options=object()))
    for call in (dist.all_gather_into_tensor, dist.reduce_scatter_tensor):  # of as many bytes
        many, one = (torch.ones(n, dtype=d) for n, d in ((SIZE, torch.float16), (1, torch.bfloat16)))
        refused("another type", ValueError, "one type is needed",
                lambda: call(*((one, many) if call == dist.reduce_scatter_tensor else (many, one))))
    refused("a rank that is none", kvcl.UnknownRank, f"rank {SIZE} is not in",
            lambda: kvcl.torch.activate_ranks(None, [SIZE]))
    if SIZE > 1:
        refused("half an element", ValueError, "are no equal parts",
                lambda: dist.all_to_all_single(torch.zeros(2 * SIZE + 1), torch.zeros(2 * SIZE + 1)))
    x = torch.arange(100.0).view(10, 10).t()
    want = x * SIZE
    dist.all_reduce(x)
    assert torch.equal(x, want)  # not contiguous
    work = dist.all_reduce(torch.ones(50000), async_op=True)
    future = work.get_future()
    assert torch.equal(future.wait()[0], torch.full((50000,), float(SIZE))) and work.is_completed()
    dist.barrier()
    pairs = [dist.new_group([r, (r + 1) % SIZE]) for r in range(SIZE if SIZE > 2 else 1)]
    for first, group in enumerate(pairs):
        if RANK in (first, (first + 1) % SIZE):
            y = torch.tensor([float(RANK)])
            dist.all_reduce(y, group=group)
            assert y.item() == first + (first + 1) % SIZE
    try:
        dist.all_reduce(torch.ones(4 + (RANK == 0)))
        raise AssertionError("other lengths were taken")
    except kvcl.InvalidParam:
        pass
    dist.barrier()
    if SIZE > 1:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
        model(torch.full((4, 3), float(RANK))).sum().backward()
        grad = [p.grad.clone() for p in model.parameters()]
        assert torch.allclose(grad[0], torch.full((2, 3), 4 * (SIZE - 1) / 2)), grad


def main():
    global gloo
    dist.init_process_group("kvcl", init_method=f"file://{sys.argv[1]}/meet", rank=RANK, world_size=SIZE,
                            timeout=datetime.timedelta(seconds=50))
    assert dist.get_backend() == "kvcl"
    gloo = dist.new_group(backend="gloo")
    for part in (reductions, long_ones, movements, exchanges, lists_in_place, messages, kinds_of_tensors, objects,
                 few_bytes_are_given_at_once, the_rest):
        part()
    dist.barrier()
    last = torch.tensor([float(RANK)])
    for _ in range(5):
        dist.gather(last, [torch.zeros(1) for _ in range(SIZE)] if RANK == 0 else None, 0)
    dist.destroy_process_group()  # what is given arrives first
    print("torch: all right", flush=True)


main()
