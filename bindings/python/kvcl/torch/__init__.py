"""torch.distributed over KVCL.

    import kvcl.torch
    torch.distributed.init_process_group("kvcl")

registers the backend "kvcl" for tensors on the CPU and on CUDA devices. The store of init_process_group introduces the
ranks to each other, so torchrun, a rendezvous file and TCP work as for other backends; the KVCL_* variables hold.
Broadcast, all-gather, all-reduce, reduce, reduce-scatter, all-to-all, gather, scatter, send, recv, barrier and the
object collectives; a group made by new_group() is a communicator of the same context. On the CPU all ranks get the same
bits of a reduction. Averages (AVG) are of floating-point tensors.

A collective that fails raises a KvclError (RankFailed, TimedOut, InvalidParam if ranks differ in their arguments) from
wait(). The timeout is the group's. Tensors that are not contiguous are copied.

A rank that only gives, in a gather, scatter, broadcast or send of at most 64 KiB of the CPU, gives a copy and goes on
at once, as by gloo; destroy_process_group(), and the end of the process, wait until it has arrived. Where it cannot,
since the receiver has died or its deadline passed, there is a RuntimeWarning; a failure known by then is raised.

Long tensors of the CPU are copied by the kernel, page by page. With THP_MEM_ALLOC_ENABLE=1 in the environment torch
asks for pages of 2 MiB, where /sys/kernel/mm/transparent_hugepage/enabled permits it (madvise): sends of 16 MiB and
more, and collectives that do not reduce, then take half to four fifths of the time (on an AMD EPYC).

Collectives of tensors on a device begin after the current stream's work, and go by NCCL or by the host (kvcl_coll.h);
all ranks give such tensors. wait() waits for the result, not for a stream. send and recv take tensors on the CPU.

Ranks may die (KVCL_VIEWS=yes on all ranks). A group keeps its numbers, and its collectives go on with holes:

    try:
        torch.distributed.all_reduce(x)
        ok = True
    except kvcl.KvclError:               # at some ranks, or at all
        ok = False
    if not kvcl.torch.agree(ok):         # the same at all that are left
        kvcl.torch.sync_after_failure()  # collectives run over those
        ...                              # repeat the step

A collective that fails since a rank has (RankFailed) ends those of all others (Revoked), so that nobody waits for a
rank that has given up; all do until sync_after_failure(). send and recv with living ranks go on.

deactivate_ranks() takes living ranks out. A process that was started anew with KVCL_JOIN (kvcl_view.h; with
KVCL_SECRET_FILE, as all ranks, whose KVCL_JOIN_AT it names) takes the slot of a rank that has ended, or a free one of
the job's KVCL_SLOTS. It calls init_process_group with that rank, a world_size above it and a store of its own. Its
collectives are those of itself alone, while it loads and captures, until join_group(), which waits for the members:

    if all(kvcl.torch.get_peer_state(None, [4])):  # local: each step may ask
        kvcl.torch.activate_ranks(None, [4])       # all members, in one order with their other collective calls
        ...                                        # get_world_size() is 5

KVCL_JOIN_WAITS=yes (on all ranks) keeps the process out of what the members do until then. The group's size is one
above the highest rank that has taken part, and never falls. Groups made before do not have the process: make them anew,
after join_group() there. Leave a job by Context.leave().

The names are those of Mooncake's process group, and what asks for a state is local, without a message. shrink() makes a
smaller group with new numbers instead. Do not name rank 0 in recovery code: it may be the one that is gone.
"""

import hashlib
import os
from typing import Any, List, Optional, Sequence

import torch
import torch.distributed as dist

from .. import Context, KvclError
from ._elastic import Change, ChangeStatus, Elastic, ReconfigureOptions, Sync
from ._work import Work
from ._world import register

ProcessGroup = Elastic  # what init_process_group("kvcl") and new_group(backend="kvcl") return

__all__ = ["Change", "ChangeStatus", "ProcessGroup", "ReconfigureOptions", "Sync", "Work", "activate_ranks", "agree",
           "deactivate_ranks", "get_active_ranks", "get_current_epoch", "get_num_synced_ranks", "get_peer_state",
           "join_group", "recover_ranks", "shrink", "sync_after_failure"]


def _of(group: Any) -> Elastic:
    group = dist.group.WORLD if group is None else group
    if not isinstance(group, Elastic):
        raise TypeError(f"a group of the kvcl backend is needed, not {type(group).__name__!r}")
    return group


def get_active_ranks(group: Any = None) -> torch.Tensor:
    """int32, one for each slot of the group (KVCL_SLOTS): 1: a member of the present view, as this rank knows it.
    Local."""
    return _of(group).get_active_ranks()


def get_peer_state(group: Any, ranks: Sequence[int]) -> List[bool]:
    """Of each of these ranks: is it connected, and neither failed nor suspected? True of one that waits to be activated
    too. Local."""
    return _of(group).get_peer_state(ranks)


def get_num_synced_ranks(group: Any = None) -> int:
    """How many ranks get_peer_state() is true for. Local."""
    return _of(group).get_num_synced_ranks()


def get_current_epoch(group: Any = None) -> int:
    """The number of the present view. Local."""
    return _of(group).get_current_epoch()


def agree(ok: bool = True, group: Any = None, timeout: Optional[float] = None) -> bool:
    """Whether ok was true at all living ranks of the group: the same at all. Collective over the living."""
    return _of(group).agree(ok, timeout)


def sync_after_failure(group: Any = None, timeout: Optional[float] = None) -> Sync:
    """The group's collectives go on over its living ranks. Collective over these; call it for each group, in the same
    order on all ranks."""
    return _of(group).sync_after_failure(timeout)


def deactivate_ranks(group: Any, ranks: Sequence[int], timeout: Optional[float] = None) -> Change:
    """Take living ranks, not this one, out of the job. One member calls it; all that stay call sync_after_failure()
    then. It takes about KVCL_DEAD."""
    return _of(group).deactivate_ranks(ranks, timeout)


def activate_ranks(group: Any, ranks: Sequence[int], timeout: Optional[float] = None) -> Change:
    """The group's collectives go on with ranks that have joined too, once they have; in free slots they make it larger.
    Collective over the members; the ranks that have joined call join_group()."""
    return _of(group).activate_ranks(ranks, timeout)


recover_ranks = activate_ranks


def join_group(group: Any = None, timeout: Optional[float] = None) -> None:
    """In a process that has joined, in a rank's place or a free slot: take part in the group's collectives. It waits
    for the members' activate_ranks()."""
    _of(group).join_group(timeout)


def shrink(group: Any = None, timeout: Optional[float] = None) -> Elastic:
    """A group of the living ranks of this one, numbered anew in their order, for all calls of torch.distributed.
    Collective over the living. destroy_process_group() ends it."""
    parent = _of(group)
    smaller, ranks = parent.shrunk(timeout)
    register(parent, smaller, ranks)
    return smaller


def _create(opts: Any, pg_options: Any) -> Elastic:
    """A group: of the default group's context if that is KVCL's, else with one of its own."""
    if pg_options is not None:
        raise TypeError(f"pg_options is {type(pg_options).__name__!r}: the kvcl backend has none (the KVCL_* variables "
                        "are its options)")
    if opts.timeout.total_seconds() <= 0:
        raise ValueError(f"timeout is {opts.timeout}: a time above 0 is needed")
    ranks = list(opts.global_ranks_in_group)
    default = dist.group.WORLD if dist.is_initialized() else None
    if ranks and isinstance(default, Elastic):
        return Elastic(default.comm.create(ranks), None, opts.timeout, default.incarnation)
    joins = bool(os.environ.get("KVCL_JOIN"))
    context = (Context(boot="join", rank=opts.group_rank, size=opts.group_size) if joins else
               Context(oob=opts.store, rank=opts.group_rank, size=opts.group_size))
    incarnation = hashlib.sha256(context.address.encode()).hexdigest()[:32]
    try:
        return Elastic(context.world, context, opts.timeout, incarnation, opts.group_size, joins)
    except KvclError:
        context.close()
        raise


dist.Backend.register_backend("kvcl", _create, extended_api=True, devices=["cpu", "cuda"])
