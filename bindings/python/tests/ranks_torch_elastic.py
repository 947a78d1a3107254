"""Runs on each rank of test_torch_elastic.py: steps of collectives, in the middle of which ranks are killed or stopped.

Arguments: the scenario, this rank, the ranks, the victims ("0,2"), a directory for the file by which the ranks meet.
"""

import datetime
import os
import select
import sys
import time

import torch
import torch.distributed as dist

import kvcl
import kvcl.torch

SCENARIO, RANK, SIZE = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
VICTIMS = [int(victim) for victim in sys.argv[4].split(",") if victim]
LIVING = [rank for rank in range(SIZE) if rank not in VICTIMS]


def ready(waits=True):
    """The test kills or stops the victims when all have said this: a quorum answers, so half of the ranks may die."""
    context, event = dist.group.WORLD._context, None
    while event is None or event.kind != kvcl.ViewEventKind.VIEW:
        select.select([context.event_fileno()], [], [])
        event = context.event()
    assert kvcl.torch.agree(True)
    print("ready", flush=True)
    if RANK in VICTIMS and waits:
        sys.stdin.readline()


def step(group=None):
    """Whether the sum of all ranks came; it is of those that take part."""
    x = torch.full((5000,), 1 << RANK, dtype=torch.int64)
    try:
        dist.all_reduce(x, group=group)
    except kvcl.KvclError:
        return False, x
    return True, x


def go_on():
    """Steps until one of them is right at all that are left, and those are all but the victims."""
    while True:
        ok, x = step()
        if not kvcl.torch.agree(ok):
            kvcl.torch.sync_after_failure()
            continue
        group = dist.group.WORLD
        assert torch.equal(x, torch.full((5000,), sum(1 << rank for rank in group.participants)))
        if group.participants == LIVING:
            return


def shaped(count, rank=RANK):
    return torch.arange(count, dtype=torch.float32) + 100 * rank


def holes():
    """Every collective over the living; the parts of the dead keep what they have."""
    one, n = torch.full((7,), -1.0), len(LIVING)
    out = [one.clone() for _ in range(SIZE)]
    dist.all_gather(out, shaped(7))
    assert all(torch.equal(out[r], shaped(7, r) if r in LIVING else one) for r in range(SIZE)), out
    flat = torch.full((SIZE * 7,), -1.0)
    dist.all_gather_into_tensor(flat, shaped(7))
    assert torch.equal(flat, torch.cat(out))
    columns = torch.full((7, SIZE), -1.0).t()  # not contiguous
    dist.all_gather_into_tensor(columns, shaped(7))
    assert torch.equal(columns.reshape(-1), flat)

    want = sum(r + 1 for r in LIVING) * torch.arange(7, dtype=torch.float32) + RANK * n
    rows = [(RANK + 1) * torch.arange(7, dtype=torch.float32) + r for r in range(SIZE)]
    part = torch.zeros(7)
    dist.reduce_scatter(part, rows)
    assert torch.equal(part, want), (part, want)
    part.zero_()
    dist.reduce_scatter_tensor(part, torch.cat(rows))
    assert torch.equal(part, want)

    flat.fill_(-1)
    dist.all_to_all_single(flat, torch.cat([shaped(7) + r for r in range(SIZE)]))
    assert torch.equal(flat, torch.cat([shaped(7, r) + RANK if r in LIVING else one for r in range(SIZE)]))
    lengths = [r + RANK + 1 for r in range(SIZE)]
    flat = torch.full((sum(lengths),), -1.0)
    dist.all_to_all_single(flat, torch.cat([shaped(n) for n in lengths]), lengths, lengths)
    uneven = [shaped(lengths[r], r) if r in LIVING else torch.full((lengths[r],), -1.0) for r in range(SIZE)]
    assert torch.equal(flat, torch.cat(uneven))
    out = [torch.full((n,), -1.0) for n in lengths]
    dist.all_to_all(out, [shaped(n) for n in lengths])
    assert torch.equal(torch.cat(out), flat)

    root = LIVING[-1]
    x = shaped(7)
    dist.broadcast(x, root)
    assert torch.equal(x, shaped(7, root))
    out = [one.clone() for _ in range(SIZE)] if RANK == root else None
    dist.gather(shaped(7), out, root)
    assert out is None or all(torch.equal(out[r], shaped(7, r) if r in LIVING else one) for r in range(SIZE))
    dist.scatter(part, [shaped(7, r) for r in range(SIZE)] if RANK == root else None, root)
    assert torch.equal(part, shaped(7))
    x = shaped(7)
    dist.reduce(x, root, dist.ReduceOp.MAX)
    assert RANK != root or torch.equal(x, shaped(7, LIVING[-1]))
    said = [None] * SIZE
    dist.all_gather_object(said, RANK) if not VICTIMS else None  # torch reads the parts of all
    dist.barrier()


def talk():
    """Messages in a ring, in both directions."""
    for hop in (1, -1):
        to, source = (LIVING[(LIVING.index(RANK) + n) % len(LIVING)] for n in (hop, -hop))
        out, got = torch.full((5,), RANK), torch.zeros(5, dtype=torch.int64)
        sent = dist.isend(out, to)
        dist.recv(got, source)
        sent.wait()
        assert got.tolist() == [source] * 5


def queries():
    group = dist.group.WORLD
    assert (group.size(), group.rank(), dist.get_world_size(), dist.get_rank()) == (SIZE, RANK, SIZE, RANK)
    mask = kvcl.torch.get_active_ranks()
    assert mask.dtype == torch.int32 and mask.tolist() == [int(r in LIVING) for r in range(SIZE)]
    assert kvcl.torch.get_peer_state(None, VICTIMS) == [False] * len(VICTIMS)
    while kvcl.torch.get_num_synced_ranks() != len(LIVING):  # one may be suspected on a busy machine
        time.sleep(0.01)
    assert kvcl.torch.get_current_epoch() > 1
    for victim in VICTIMS:
        for call in (lambda: dist.broadcast(torch.zeros(1), victim), lambda: dist.send(torch.zeros(1), victim)):
            try:
                call()
                raise AssertionError("a dead rank answered")
            except (kvcl.RankFailed, kvcl.Stale):
                pass


def survive():
    ready()
    go_on()
    queries()
    holes()
    group = dist.new_group(LIVING)
    ok, x = step(group)
    assert ok and x[0] == sum(1 << r for r in LIVING) and dist.get_world_size(group) == len(LIVING)
    assert kvcl.torch.sync_after_failure(group) == kvcl.torch.Sync.NO_PENDING
    assert step(group)[0]


def stopped():
    ready()
    if RANK in VICTIMS:  # it goes on after its exclusion
        while True:
            try:  # the call of the others: what they announced in it may be handled before the news of the exclusion
                dist.all_reduce(torch.full((5000,), 1 << RANK, dtype=torch.int64))
            except (kvcl.Stale, kvcl.RankFailed, kvcl.Revoked):
                break
        try:
            kvcl.torch.sync_after_failure(timeout=30)
            raise AssertionError("an excluded rank came back")
        except (kvcl.Stale, kvcl.RankFailed, kvcl.NoQuorum, kvcl.TimedOut):
            return
    go_on()
    queries()
    holes()
    print("went on", flush=True)
    sys.stdin.readline()  # until the stopped one has read of its exclusion


def shrink():
    ready()
    smaller = kvcl.torch.shrink(timeout=60)
    while smaller.size() != len(LIVING):
        dist.destroy_process_group(smaller)
        smaller = kvcl.torch.shrink(timeout=60)
    assert dist.get_rank(smaller) == LIVING.index(RANK) and dist.get_process_group_ranks(smaller) == LIVING
    x = torch.full((9,), RANK)
    dist.broadcast(x, LIVING[-1], group=smaller)
    assert torch.equal(x, torch.full((9,), LIVING[-1]))
    out = [torch.zeros(7) for _ in LIVING]
    dist.all_gather(out, shaped(7), group=smaller)
    assert torch.equal(torch.cat(out), torch.cat([shaped(7, r) for r in LIVING]))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2), process_group=smaller)
    model(torch.full((4, 3), float(RANK))).sum().backward()
    grad = [p.grad for p in model.parameters()]
    assert torch.allclose(grad[0], torch.full((2, 3), 4 * sum(LIVING) / len(LIVING))), grad
    dist.barrier(smaller)
    del model
    dist.destroy_process_group(smaller)


def reconfigure():
    """As torch 2.14 calls it, by handles from a store."""
    group = dist.group.WORLD
    assert group.supports_reconfigure
    handles = [None] * SIZE
    dist.all_gather_object(handles, group.get_reconfigure_handle())
    minute = datetime.timedelta(seconds=60)
    for wrong in (["gloo:1:2"], handles[1:] if RANK == 0 else handles[:1], handles + handles[:1],
                  [handles[RANK], f"kvcl:{SIZE}:x"]):
        try:
            group.reconfigure(1, wrong, minute)
            raise AssertionError(f"{wrong} was taken")
        except kvcl.InvalidParam:
            pass
    if RANK != SIZE - 1:  # one does not make the call: the group is as it was
        try:
            group.reconfigure(2, handles, datetime.timedelta(seconds=1))
            raise AssertionError("it did without a rank")
        except kvcl.TimedOut:
            pass
    assert step()[0]
    ready()
    order = list(reversed([handles[rank] for rank in LIVING]))
    options = kvcl.torch.ReconfigureOptions(uuid=3, handles=order, timeout=minute)
    assert group.reconfigure(options).wait()
    assert (group.size(), group.rank()) == (len(LIVING), len(LIVING) - 1 - LIVING.index(RANK))
    assert dist.get_world_size() == len(LIVING) and dist.get_rank() == group.rank()
    ok, x = step()
    assert ok and x[0] == sum(1 << r for r in LIVING)
    x = torch.full((3,), RANK)
    dist.broadcast(x, 0)
    assert x[0] == LIVING[-1]
    assert group.reconfigure(4, order, timeout=minute).wait() and step()[0]
    assert kvcl.torch.agree(True)


def revoke():
    """Nobody waits for a rank that has given up; messages between two living ranks go on."""
    ready(waits=False)
    group, x, began = dist.group.WORLD, torch.zeros(1 << 20), time.monotonic()
    try:
        while True:
            dist.broadcast(x, LIVING[0])
    except kvcl.KvclError as error:
        assert isinstance(error, (kvcl.RankFailed, kvcl.Revoked)), error
    while not group.revoked:  # each hears of it
        time.sleep(0.001)
    try:
        dist.barrier()
        raise AssertionError("a collective of a revoked group was done")
    except (kvcl.RankFailed, kvcl.Revoked):
        pass
    assert time.monotonic() - began < 50, "a rank waited for its deadline"
    talk()
    go_on()
    assert not group.revoked
    assert kvcl.torch.agree(True)


def evict():
    ready()
    if RANK in VICTIMS:
        try:
            while True:
                kvcl.torch.agree()
        except (kvcl.Stale, kvcl.RankFailed):
            return
    status = kvcl.torch.ChangeStatus
    if RANK == LIVING[0]:
        epoch = kvcl.torch.get_current_epoch()
        change = kvcl.torch.deactivate_ranks(None, VICTIMS)
        assert change.status == status.APPLIED and change.new_epoch > epoch and change.dropped_ranks == [], change
        change = kvcl.torch.deactivate_ranks(None, VICTIMS)
        assert change.status == status.APPLIED_WITH_DROPPED_RANKS and change.dropped_ranks == VICTIMS, change
        for wrong, error in (([RANK], kvcl.InvalidParam), ([SIZE], kvcl.UnknownRank)):
            try:
                kvcl.torch.deactivate_ranks(None, wrong)
                raise AssertionError(f"{wrong} was taken")
            except error:
                pass
    go_on()
    queries()
    holes()


def rejoin():
    """A killed rank comes back in its place as another process, in which KVCL_JOIN is set."""
    if os.environ.get("KVCL_JOIN"):
        kvcl.torch.join_group()
    else:
        ready()
        go_on()
        change = kvcl.torch.recover_ranks(None, VICTIMS)
        assert (change.status, change.dropped_ranks) == (kvcl.torch.ChangeStatus.APPLIED, []), change
    LIVING[:] = range(SIZE)
    VICTIMS.clear()
    group = dist.group.WORLD
    assert group.participants == LIVING and kvcl.torch.get_active_ranks().tolist() == [1] * SIZE
    for _ in range(10):
        ok, x = step()
        assert ok and x[0] == (1 << SIZE) - 1
    holes()
    talk()
    assert kvcl.torch.agree(True)


def apart():
    """A process that has joined, before it is a member of the group: its collectives are its own."""
    group = dist.group.WORLD
    assert (group.rank(), group.size(), dist.get_world_size()) == (RANK, SIZE, SIZE) and group.participants == [RANK]
    x = torch.full((5000,), 1 << RANK)
    dist.all_reduce(x)
    assert torch.equal(x, torch.full((5000,), 1 << RANK))
    out = [torch.full((7,), -1.0) for _ in range(SIZE)]
    dist.all_gather(out, shaped(7))
    assert all(torch.equal(out[r], shaped(7) if r == RANK else torch.full((7,), -1.0)) for r in range(SIZE))
    dist.barrier()
    try:
        dist.broadcast(x, 0)
        raise AssertionError("a process that waits was answered")
    except kvcl.RankFailed:
        pass


def all_know(ranks, waits):
    """Members see that these have come. Those that wait are in no view: steps and agreements go on without them."""
    while True:
        here = all(kvcl.torch.get_peer_state(None, ranks))
        if waits:
            ok, x = step()
            assert ok and x[0] == sum(1 << r for r in LIVING)
            here = kvcl.torch.agree(here)
        if here:
            return
        time.sleep(0.001)


def as_one(size):
    """All take part, in each collective and in messages, and the group says so."""
    global SIZE
    SIZE = size
    VICTIMS[:] = [r for r in range(SIZE) if r not in LIVING]
    group, slots = dist.group.WORLD, int(os.environ["KVCL_SLOTS"])
    assert (group.size(), dist.get_world_size(), dist.get_rank()) == (SIZE, SIZE, RANK), group.size()
    assert dist.get_process_group_ranks(group) == list(range(SIZE)) and group.participants == LIVING
    assert kvcl.torch.get_active_ranks().tolist() == [int(r in LIVING) for r in range(slots)]
    ok, x = step()
    assert ok and x[0] == sum(1 << r for r in LIVING)
    holes()
    talk()
    pair = [LIVING[0], LIVING[-1]]
    group = dist.new_group(pair)
    if RANK in pair:
        ok, x = step(group)
        assert ok and x[0] == sum(1 << r for r in pair) and dist.get_world_size(group) == 2


def extend():
    """A group grows beyond its first size, in stages: GROWS has the ranks of each."""
    stages = [[int(rank) for rank in stage.split(",")] for stage in os.environ["GROWS"].split(";")]
    waits, size = os.environ["KVCL_JOIN_WAITS"] == "yes", int(os.environ["BEGAN"])
    LIVING[:] = range(size)
    if not os.environ.get("KVCL_JOIN"):
        assert dist.get_world_size() == size
        as_one(size)
    for stage in stages:
        size = max(size, *(rank + 1 for rank in stage))
        if RANK in stage:
            apart()
            kvcl.torch.join_group()
        elif RANK in LIVING:
            if RANK == 0:
                print("ready", flush=True)
            all_know(stage, waits)
            change = kvcl.torch.activate_ranks(None, stage)
            assert (change.status, change.dropped_ranks) == (kvcl.torch.ChangeStatus.APPLIED, []), change
        LIVING[:] = sorted(LIVING + stage)
        if RANK in LIVING:
            as_one(size)
    assert kvcl.torch.agree(True)
    print("grown", flush=True)
    gone = stages[0][0]  # one that has come is killed: its place is a hole, as any other
    if RANK == gone:
        sys.stdin.readline()
    LIVING.remove(gone)
    go_on()
    as_one(size)
    assert kvcl.torch.agree(True)


def main():
    meet = f"file://{sys.argv[5]}/{os.environ.get('MEET', 'meet')}"
    dist.init_process_group("kvcl", init_method=meet, rank=RANK, world_size=SIZE,
                            timeout=datetime.timedelta(seconds=100))
    {"survive": survive, "stopped": stopped, "shrink": shrink, "reconfigure": reconfigure, "revoke": revoke,
     "evict": evict, "rejoin": rejoin, "extend": extend}[SCENARIO]()
    print("right", flush=True)
    sys.stdout.flush()
    os._exit(0) if RANK in VICTIMS else dist.destroy_process_group()


main()
