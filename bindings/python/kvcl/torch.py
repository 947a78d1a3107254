"""torch.distributed over KVCL.

    import kvcl.torch
    torch.distributed.init_process_group("kvcl")

registers the backend "kvcl" for tensors on the CPU and on CUDA devices. The store of init_process_group introduces the
ranks to each other, so torchrun, a rendezvous file and TCP work as for other backends; the KVCL_* variables hold.
Broadcast, all-gather, all-reduce, reduce, reduce-scatter, all-to-all, gather, scatter, send, recv, barrier and the
object collectives; a group made by new_group() is a communicator of the same context. On the CPU all ranks get the same
bits of a reduction.

A collective that fails raises a KvclError (RankFailed, TimedOut, InvalidParam if ranks differ in their arguments) from
wait(). The timeout is the group's. Tensors that are not contiguous are copied.

Collectives of tensors on a device begin after the current stream's work, and go by NCCL or by the host (kvcl_coll.h);
all ranks give such tensors. wait() waits for the result, not for a stream. send and recv take tensors on the CPU.
"""

import collections
import datetime
import queue
import threading
from typing import Any, Callable, Deque, List, Optional, Sequence

import torch
import torch.distributed as dist

from . import ANY_SOURCE, Comm, Context, Request

_OPS = ((dist.ReduceOp.SUM, "sum"), (dist.ReduceOp.PRODUCT, "prod"), (dist.ReduceOp.MIN, "min"),
        (dist.ReduceOp.MAX, "max"), (dist.ReduceOp.BAND, "and"), (dist.ReduceOp.BOR, "or"),
        (dist.ReduceOp.BXOR, "xor"))


def _op(opts: Any) -> str:
    op = getattr(opts, "reduceOp", dist.ReduceOp.SUM)
    for known, name in _OPS:
        if op == known:
            return name
    raise ValueError(f"kvcl reduces by {', '.join(name for _, name in _OPS)}, not by {op}")


def _root(opts: Any) -> int:
    return getattr(opts, "rootRank", 0)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type not in ("cpu", "cuda") or tensor.is_sparse:
        raise ValueError(f"the kvcl backend takes dense tensors on the CPU or a CUDA device, not on {tensor.device}")
    return tensor.detach().reshape(-1).view(torch.uint8)


def _stream(tensor: torch.Tensor) -> int:
    """The current stream of the tensor's device; none on the CPU."""
    if tensor.device.type != "cuda":
        return 0
    return torch.cuda.current_stream(tensor.device).cuda_stream or 1  # CU_STREAM_LEGACY: the null stream


def _one(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    if len(tensors) != 1:
        raise ValueError(f"one tensor is needed, not {len(tensors)}")
    return tensors[0]


class _Finisher(threading.Thread):
    """Completes the futures of a group's works, in the order in which they were asked for."""

    def __init__(self) -> None:
        super().__init__(name="kvcl-futures", daemon=True)
        self.works: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self.start()

    def run(self) -> None:
        while True:
            work = self.works.get()
            if work is None:
                return
            work._complete_future()


class Work(dist.Work):
    """A collective, send or recv in flight: some requests, and what is to be done once they are complete."""

    def __init__(self, group: "ProcessGroup", requests: List[Request[Any]], result: List[torch.Tensor],
                 after: Sequence[Callable[[], Any]] = (), keep: Any = None) -> None:
        super().__init__()
        self._group = group
        self._requests = requests
        self._result = result
        self._after = list(after)
        self._keep = keep
        device = next((tensor.device for tensor in result if tensor.device.type == "cuda"), None)
        self._post_stream = None if device is None else torch.cuda.current_stream(device)
        self._lock = threading.Lock()
        self._over = False
        self._error: Optional[BaseException] = None
        self._source = -1
        self._future: Optional[torch.futures.Future] = None

    def _finish(self, seconds: Optional[float]) -> None:
        with self._lock:
            if self._over:
                return
            try:
                for request in self._requests:
                    info = request.wait(seconds)
                    self._source = getattr(info, "source", self._source)
                self._run_steps()
            except BaseException as error:
                if any(not request.done() for request in self._requests):
                    raise  # a wait that ended early
                self._error = error
            self._over = True
            self._keep = None
            self._after = []

    def _run_steps(self) -> None:
        """On a device they follow the post on its stream, whichever thread runs them, and are waited for."""
        if self._post_stream is None or not self._after:
            for step in self._after:
                step()
            return
        with torch.cuda.stream(self._post_stream):
            for step in self._after:
                step()
        self._post_stream.synchronize()

    def then(self, steps: Sequence[Callable[[], Any]]) -> None:
        """Before anyone waits for it: steps that follow the others."""
        self._after += steps

    def wait(self, timeout: Optional[datetime.timedelta] = None) -> bool:  # type: ignore[override]
        seconds = timeout.total_seconds() if timeout is not None else 0.0
        self._finish(seconds if seconds > 0 else None)
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        if not self._over and all(request.done() for request in self._requests):
            self._finish(None)
        return self._over

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> Optional[BaseException]:  # type: ignore[override]
        return self._error

    def result(self) -> List[torch.Tensor]:
        self.wait()
        return self._result

    def _source_rank(self) -> int:
        return self._source

    def source_rank(self) -> int:
        return self._source

    def get_future(self) -> "torch.futures.Future[Any]":
        if self._future is None:
            self._future = torch.futures.Future()
            self._group._finisher().works.put(self)
        return self._future

    def _complete_future(self) -> None:
        try:
            self._finish(None)
        except BaseException as error:
            self._error = error
        assert self._future is not None
        if self._error is None:
            self._future.set_result(self._result)
        else:
            self._future.set_exception(self._error)


class ProcessGroup(dist.ProcessGroup):
    """The group that init_process_group("kvcl") and new_group(backend="kvcl") return."""

    def __init__(self, comm: Comm, context: Optional[Context], timeout: datetime.timedelta) -> None:
        super().__init__(comm.rank, comm.size)
        self.comm = comm
        self._context = context  # the group that owns it closes it
        self._timeout = timeout
        self._futures: Optional[_Finisher] = None
        self._spare: Deque[torch.Tensor] = collections.deque(maxlen=1)  # threads take and give without a lock

    # ---- what torch asks of a group ----

    def size(self) -> int:
        return self.comm.size

    def rank(self) -> int:
        return self.comm.rank

    def getBackendName(self) -> str:
        return "kvcl"

    def name(self) -> str:
        return "kvcl"

    @property
    def group_name(self) -> str:
        return dist.distributed_c10d._world.pg_names.get(self, "")

    @property
    def pg_name(self) -> str:
        return self.group_name

    def shutdown(self) -> None:
        if self._futures is not None:
            self._futures.works.put(None)
            self._futures = None
        if self._context is not None:
            self._context.close()
        elif not self.comm.closed:
            self.comm.close()

    def abort(self) -> None:
        self.shutdown()

    def _finisher(self) -> _Finisher:
        if self._futures is None:
            self._futures = _Finisher()
        return self._futures

    def _limit(self, opts: Any) -> float:
        given = getattr(opts, "timeout", None)
        seconds = given.total_seconds() if given is not None else -1.0
        return seconds if seconds > 0 else self._timeout.total_seconds()

    # ---- one buffer on each side ----

    def _into(self, tensor: torch.Tensor, after: List[Callable[[], Any]]) -> torch.Tensor:
        """Where the bytes of an output go: into the tensor, or into another one that is copied at the end."""
        if tensor.is_contiguous():
            return tensor
        whole = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        after.append(lambda: tensor.copy_(whole))
        return whole

    def _reduce_into(self, source: torch.Tensor, target: torch.Tensor, opts: Any, seconds: float) -> Request[None]:
        same = source is target
        return self.comm.all_reduce(_bytes(source), _op(opts), out=None if same else _bytes(target),
                                    dtype="u8" if source.dtype == torch.bool else str(source.dtype), timeout=seconds,
                                    stream=_stream(source))

    def allreduce(self, tensors: List[torch.Tensor], opts: Any = None) -> Work:
        return self.allreduce_coalesced([_one(tensors)], opts)

    def allreduce_coalesced(self, tensors: List[torch.Tensor], opts: Any = None) -> Work:
        after: List[Callable[[], Any]] = []
        requests = []
        for tensor in tensors:
            whole = self._into(tensor, after)
            if whole is not tensor:
                whole.copy_(tensor)
            requests.append(self._reduce_into(whole, whole, opts, self._limit(opts)))
        return Work(self, requests, list(tensors), after)

    def reduce(self, tensors: List[torch.Tensor], opts: Any = None) -> Work:
        tensor = _one(tensors)
        whole = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        request = self._reduce_into(tensor.contiguous(), whole, opts, self._limit(opts))
        after = [lambda: tensor.copy_(whole)] if _root(opts) == self.rank() else []
        return Work(self, [request], [tensor], after)

    def broadcast(self, tensors: List[torch.Tensor], opts: Any = None) -> Work:
        tensor, after = tensors[getattr(opts, "rootTensor", 0)], []  # type: ignore[var-annotated]
        whole = self._into(tensor, after)
        if whole is not tensor:
            whole.copy_(tensor)
        return Work(self, [self.comm.bcast_bytes(_root(opts), _bytes(whole), timeout=self._limit(opts),
                                                   stream=_stream(whole))], [tensor],
                    after if _root(opts) != self.rank() else [])

    def barrier(self, opts: Any = None) -> Work:
        return Work(self, [self.comm.ibarrier(timeout=self._limit(opts))], [])

    # ---- a part for each rank ----

    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor,
                          opts: Any = None) -> Work:
        after: List[Callable[[], Any]] = []
        request = self.comm.all_gather_into(_bytes(tensor.contiguous()), _bytes(self._into(output, after)),
                                            timeout=self._limit(opts), stream=_stream(tensor))
        return Work(self, [request], [output], after)

    def _take_spare(self) -> Optional[torch.Tensor]:
        try:
            return self._spare.pop()
        except IndexError:
            return None

    def _borrow(self, size: int, after: List[Callable[[], Any]]) -> torch.Tensor:
        """Bytes for a collective, given back at its end. The group keeps one such buffer: the pages of a new one of 64
        MiB cost more than the collective."""
        kept = self._take_spare()
        buffer = kept if kept is not None and kept.numel() >= size else torch.empty(size, dtype=torch.uint8)

        def give_back() -> None:
            kept = self._take_spare()
            self._spare.append(kept if kept is not None and kept.numel() > buffer.numel() else buffer)

        after.append(give_back)
        return buffer[:size]

    def _parts(self, like: torch.Tensor, parts: Sequence[torch.Tensor], what: str,
               after: List[Callable[[], Any]]) -> torch.Tensor:
        """A row for each rank."""
        if len(parts) != self.size() or any(p.numel() != like.numel() or p.dtype != like.dtype for p in parts):
            raise ValueError(f"{what}: a list of {self.size()} tensors of {like.numel()} elements of {like.dtype} is "
                             "needed, one for each rank")
        if like.device.type != "cpu":  # torch keeps freed memory of a device itself
            return torch.empty((self.size(), like.numel()), dtype=like.dtype, device=like.device)
        flat = self._borrow(self.size() * like.numel() * like.element_size(), after)
        return flat.view(like.dtype).view(self.size(), like.numel())

    @staticmethod
    def _give(flat: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
        for row, part in zip(flat, parts):
            part.copy_(row.view(part.shape))

    def _take(self, like: torch.Tensor, parts: Sequence[torch.Tensor], what: str,
              after: List[Callable[[], Any]]) -> torch.Tensor:
        flat = self._parts(like, parts, what, after)
        for row, part in zip(flat, parts):
            row.copy_(part.reshape(-1))
        return flat

    def allgather(self, outputs: List[List[torch.Tensor]], tensors: List[torch.Tensor],
                  opts: Any = None) -> Work:
        tensor, parts = _one(tensors), outputs[0]
        after: List[Callable[[], Any]] = []
        flat = self._parts(tensor, parts, "all_gather", after)
        request = self.comm.all_gather_into(_bytes(tensor.contiguous()), _bytes(flat), timeout=self._limit(opts),
                                            stream=_stream(tensor))
        return Work(self, [request], list(parts), [lambda: self._give(flat, parts), *after])

    def gather(self, outputs: List[List[torch.Tensor]], tensors: List[torch.Tensor],
               opts: Any = None) -> Work:
        tensor, here = _one(tensors), _root(opts) == self.rank()
        after: List[Callable[[], Any]] = []
        flat = self._parts(tensor, outputs[0], "gather", after) if here else None
        request = self.comm.gather(_root(opts), _bytes(tensor.contiguous()),
                                   None if flat is None else _bytes(flat), timeout=self._limit(opts),
                                   stream=_stream(tensor))
        return Work(self, [request], list(outputs[0]) if here else [],
                    [lambda: self._give(flat, outputs[0]), *after] if flat is not None else [])

    def scatter(self, outputs: List[torch.Tensor], tensors: List[List[torch.Tensor]],
                opts: Any = None) -> Work:
        output, after = _one(outputs), []  # type: ignore[var-annotated]
        flat = self._take(output, tensors[0], "scatter", after) if _root(opts) == self.rank() else None
        request = self.comm.scatter(_root(opts), None if flat is None else _bytes(flat),
                                    _bytes(self._into(output, after)), timeout=self._limit(opts),
                                    stream=_stream(output))
        return Work(self, [request], [output], after)

    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor,
                              opts: Any = None) -> Work:
        after: List[Callable[[], Any]] = []
        dtype = "u8" if tensor.dtype == torch.bool else str(tensor.dtype)
        request = self.comm.reduce_scatter(_bytes(tensor.contiguous()), _bytes(self._into(output, after)),
                                           _op(opts), dtype=dtype, timeout=self._limit(opts), stream=_stream(tensor))
        return Work(self, [request], [output], after)

    def reduce_scatter(self, outputs: List[torch.Tensor], tensors: List[List[torch.Tensor]],
                       opts: Any = None) -> Work:
        output, after = _one(outputs), []  # type: ignore[var-annotated]
        work = self.reduce_scatter_single(output, self._take(output, tensors[0], "reduce_scatter", after), opts)
        work.then(after)
        return work

    def _all(self, works: List[Work]) -> Work:
        return Work(self, [], [t for work in works for t in work._result], [work.wait for work in works])

    def all_gather_single_coalesced(self, outputs: List[torch.Tensor], tensors: List[torch.Tensor],
                                    opts: Any = None) -> Work:
        return self._all([self.all_gather_single(o, t, opts) for o, t in zip(outputs, tensors)])

    def reduce_scatter_single_coalesced(self, outputs: List[torch.Tensor], tensors: List[torch.Tensor],
                                        opts: Any = None) -> Work:
        return self._all([self.reduce_scatter_single(o, t, opts) for o, t in zip(outputs, tensors)])

    # ---- exchanges ----

    def all_to_all_single(self, output: torch.Tensor, tensor: torch.Tensor, output_sizes: List[int],
                          input_sizes: List[int], opts: Any = None) -> Work:
        after: List[Callable[[], Any]] = []
        whole, source = self._into(output, after), tensor.contiguous()
        if not output_sizes and not input_sizes:
            request = self.comm.all_to_all(_bytes(source), _bytes(whole), timeout=self._limit(opts),
                                           stream=_stream(source))
            return Work(self, [request], [output], after)
        request = self.comm.all_to_all(_bytes(source), _bytes(whole), lengths=self._row_bytes(source, input_sizes),
                                       out_lengths=self._row_bytes(whole, output_sizes), timeout=self._limit(opts),
                                       stream=_stream(source))
        return Work(self, [request], [output], after)

    def _row_bytes(self, tensor: torch.Tensor, rows: List[int]) -> List[int]:
        """The bytes of each rank's rows; without a list of rows, of equal shares."""
        rows = rows or [tensor.shape[0] // self.size()] * self.size()
        row = tensor.element_size()
        for n in tensor.shape[1:]:
            row *= n
        return [n * row for n in rows]

    def alltoall(self, outputs: List[torch.Tensor], tensors: List[torch.Tensor],
                 opts: Any = None) -> Work:
        return self._exchange(outputs, tensors, opts)

    def _exchange(self, outputs: List[torch.Tensor], tensors: List[torch.Tensor], opts: Any) -> Work:
        """Tensors of any lengths, by way of one buffer on each side."""
        if len(outputs) != self.size() or len(tensors) != self.size():
            raise ValueError(f"all_to_all: {self.size()} tensors are needed on each side, one for each rank")
        lengths = [t.numel() * t.element_size() for t in outputs]
        flat = torch.empty(sum(lengths), dtype=torch.uint8, device=outputs[0].device)
        source = torch.cat([_bytes(t.contiguous()) for t in tensors])
        request = self.comm.all_to_all(source, flat, lengths=[t.numel() * t.element_size() for t in tensors],
                                       out_lengths=lengths, timeout=self._limit(opts), stream=_stream(source))

        def give() -> None:
            for tensor, part in zip(outputs, flat.split(lengths)):
                tensor.copy_(part.view(tensor.dtype).view(tensor.shape))

        return Work(self, [request], list(outputs), [give])

    def send(self, tensors: List[torch.Tensor], rank: int, tag: int = 0) -> Work:
        tensor = _one(tensors).contiguous()
        return Work(self, [self.comm.send_bytes(rank, tag & 0xffffffff, _bytes(tensor),
                                                timeout=self._timeout.total_seconds())], [tensor])

    def recv(self, tensors: List[torch.Tensor], rank: int, tag: int = 0) -> Work:
        tensor, after = _one(tensors), []  # type: ignore[var-annotated]
        request = self.comm.recv_bytes(rank, tag & 0xffffffff, _bytes(self._into(tensor, after)),
                                       timeout=self._timeout.total_seconds())
        return Work(self, [request], [tensor], after)

    def recv_anysource(self, tensors: List[torch.Tensor], tag: int = 0) -> Work:
        return self.recv(tensors, ANY_SOURCE, tag)

    # What earlier versions of torch, and its C++, call them.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single


def _create(opts: Any, _: Any) -> ProcessGroup:
    """A group: of the default group's context if that is KVCL's, else with one of its own."""
    ranks = list(opts.global_ranks_in_group)
    default = dist.group.WORLD if dist.is_initialized() else None
    if ranks and isinstance(default, ProcessGroup):
        return ProcessGroup(default.comm.create(ranks), None, opts.timeout)
    context = Context(oob=opts.store, rank=opts.group_rank, size=opts.group_size)
    return ProcessGroup(context.world, context, opts.timeout)


dist.Backend.register_backend("kvcl", _create, extended_api=True, devices=["cpu", "cuda"])
