"""Runs on both ranks of test_torch.py: works that the other one has not taken part in yet.

One argument: a directory, for the file by which the ranks meet.
"""

import datetime
import os
import sys
import time

import torch
import torch.distributed as dist

import kvcl
import kvcl.torch

RANK = int(os.environ["OMPI_COMM_WORLD_RANK"])
OTHER = 1 - RANK

gloo = None


def no_send_waits_for_its_receiver():
    """Many are posted before any is received; what they give is what they had, in their order."""
    group = dist.new_group(backend="kvcl", timeout=datetime.timedelta(seconds=15))
    given = [torch.full((5,), 100.0 * i + RANK) for i in range(40)]
    taken = [torch.zeros(5) for _ in given]
    works = [dist.isend(x, OTHER, group=group) for x in given]
    for x in given:
        x.fill_(-1)
    assert not all(work.is_completed() for work in works)
    dist.barrier(group=gloo)  # all have posted theirs
    works += [dist.irecv(x, OTHER, group=group) for x in taken]
    for work in works:
        work.wait()
    assert all(torch.equal(x, torch.full((5,), 100.0 * i + OTHER)) for i, x in enumerate(taken)), taken
    if RANK == 0:
        works = [dist.broadcast(torch.full((5,), float(i)), 0, group=group, async_op=True) for i in range(20)]
    dist.barrier(group=gloo)  # rank 1 has called none yet
    for i in range(20 if RANK == 1 else 0):
        dist.broadcast(taken[0], 0, group=group)
        assert torch.equal(taken[0], torch.full((5,), float(i)))
    for work in works:
        work.wait()
    for i in range(30):  # here who is far ahead waits
        if RANK == 0:
            dist.send(given[0].fill_(i), 1, group=group)
        else:
            dist.recv(taken[0], 0, group=group)
            assert torch.equal(taken[0], torch.full((5,), float(i)))


def waits_end_by_their_timeout():
    """Of a work of several collectives, and of one that another thread waits for."""
    group, out = dist.group.WORLD, [[torch.zeros(3), torch.zeros(4)] for _ in range(2)]
    given, x, works = [torch.full((3,), float(RANK)), torch.full((4,), float(RANK))], torch.ones(5), []
    for rank in range(2):
        if RANK == rank:
            works = [group.allgather_coalesced(out, given), dist.all_reduce(x, async_op=True)]
            future = works[1].get_future()
        if RANK == 0 == rank:  # the other one has called nothing yet
            time.sleep(0.1)
            began = time.monotonic()
            for work in works:
                assert not work.is_completed()
                try:
                    work.wait(datetime.timedelta(milliseconds=50))
                    raise AssertionError("a wait that cannot end well did")
                except kvcl.WaitTimeout:
                    pass
            assert time.monotonic() - began < 20
        dist.barrier(group=gloo)
    assert all(work.wait(datetime.timedelta(seconds=40)) for work in works)
    assert all(torch.equal(t, torch.full_like(t, float(r))) for r in range(2) for t in out[r]), out
    assert future.wait()[0].tolist() == [2.0] * 5


def a_failure_is_told_when_nothing_is_in_flight():
    """Of two collectives in one work the first fails; the tensor of the second has its result by then."""
    wrong, x = torch.ones(4 + RANK), torch.ones(50000)
    try:
        work = dist.group.WORLD.allreduce_coalesced([wrong, x] if RANK == 0 else [wrong])
        work.wait()
        raise AssertionError("other lengths were taken")
    except kvcl.InvalidParam:
        pass
    if RANK == 1:
        time.sleep(0.5)
        dist.all_reduce(x)
    assert torch.equal(x, torch.full((50000,), 2.0)), x


def parameters_of_a_model():
    """Tensors that learn are results as others are, and stay leaves."""
    def learned(*shape):
        return torch.nn.Parameter(torch.full(shape, RANK + 1.0))

    x = learned(3)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    assert x.tolist() == [1.5] * 3 and x.is_leaf
    x = learned(3)
    dist.reduce(x, 0)
    assert RANK != 0 or x.tolist() == [3.0] * 3
    x = torch.nn.Parameter(torch.full((2, 3), RANK + 1.0).t())  # not contiguous
    dist.broadcast(x, 1)
    assert x.tolist() == [[2.0] * 2] * 3 and x.is_leaf
    dist.all_reduce(x)
    assert x.tolist() == [[4.0] * 2] * 3
    out, x = [learned(3) for _ in range(2)], learned(3)
    dist.all_gather(out, x)
    assert [t.tolist() for t in out] == [[1.0] * 3, [2.0] * 3] and all(t.is_leaf for t in out)
    x = torch.zeros(3)
    dist.reduce_scatter(x, out)
    assert x.tolist() == [2.0 * (RANK + 1)] * 3 and not x.requires_grad


def a_group_ends_with_a_work_in_flight():
    group = dist.new_group(backend="kvcl")
    x = torch.zeros(100000)
    never = dist.irecv(x, OTHER, group=group)
    dist.destroy_process_group(group)
    assert not never.is_completed()


def main():
    global gloo
    dist.init_process_group("kvcl", init_method=f"file://{sys.argv[1]}/meet", rank=RANK, world_size=2,
                            timeout=datetime.timedelta(seconds=50))
    gloo = dist.new_group(backend="gloo")
    for part in (no_send_waits_for_its_receiver, waits_end_by_their_timeout,
                 a_failure_is_told_when_nothing_is_in_flight, parameters_of_a_model,
                 a_group_ends_with_a_work_in_flight):
        part()
    dist.barrier()
    dist.destroy_process_group()
    print("torch: all right", flush=True)


main()
