"""The group that init_process_group("kvcl") returns: its collectives, sends and receives."""

import collections
import datetime
from typing import Any, Callable, Deque, List, Optional, Sequence

import torch
import torch.distributed as dist

from .. import ANY_SOURCE, Busy, Comm, Context, RankFailed, Request
from ._live import Live
from ._outbox import Outbox, few
from ._tensors import (averaged, bytes_of, check_dense, copy_of, one_of, op_of, place_of, root_of, same_type,
                       stream_of)
from ._work import Finisher, Message, Work


class Group(dist.ProcessGroup):
    """Ranks with fixed numbers, and a communicator of those that take part in collectives: _live. comm has all slots of
    the group, of which the ranks below size() have had processes."""

    def __init__(self, comm: Comm, context: Optional[Context], timeout: datetime.timedelta, live: Live) -> None:
        super().__init__(comm.rank, live.size)
        self.comm = comm
        self._live = live
        self._context = context  # the group that owns it closes it
        self._timeout = timeout
        self._futures: Optional[Finisher] = None
        self._outbox = Outbox()
        self._spare: Deque[torch.Tensor] = collections.deque(maxlen=1)  # threads take and give without a lock

    # ---- what torch asks of a group ----

    def size(self) -> int:
        return self._live.size

    def rank(self) -> int:
        return self.comm.rank

    def getBackendName(self) -> str:
        return "kvcl"

    def name(self) -> str:
        return "kvcl"

    @property
    def group_name(self) -> str:
        return str(dist.distributed_c10d._world.pg_names.get(self, ""))

    @property
    def pg_name(self) -> str:
        return self.group_name

    def shutdown(self) -> None:
        self._outbox.finish()
        if self._futures is not None:
            self._futures.works.put(None)
            self._futures = None
        if self._context is not None:
            self._context.close()
            return
        for comm in (self._live.comm, self.comm):
            try:
                comm.close()
            except Busy:  # works are in flight: the last one to end closes it
                pass

    def abort(self) -> None:
        self._outbox.drop()
        self.shutdown()

    def _given(self, request: Request[Any], result: List[torch.Tensor],
               after: Sequence[Callable[[], Any]] = ()) -> Work:
        """Of a collective that gives copies and takes nothing: it has ended, where the outbox has room."""
        try:
            kept = self._outbox.give(request)
        except RankFailed:
            self._live.revoke()
            raise
        return Work(self, [] if kept else [request], result, after, self._outbox)

    def finisher(self) -> Finisher:
        if self._futures is None:
            self._futures = Finisher()
        return self._futures

    def _limit(self, opts: Any) -> float:
        given = getattr(opts, "timeout", None)
        seconds: float = given.total_seconds() if given is not None else -1.0
        return seconds if seconds > 0 else self._timeout.total_seconds()

    # ---- one buffer on each side ----

    def _into(self, tensor: torch.Tensor, after: List[Callable[[], Any]], keep: bool = False) -> torch.Tensor:
        """Where the bytes of an output go: into the tensor, or into another one that is copied at the end. keep: not
        all of it may be written."""
        check_dense(tensor)
        if tensor.is_contiguous():
            return tensor
        whole = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        if keep:
            whole.copy_(tensor)
        after.append(lambda: tensor.copy_(whole))
        return whole

    def _reduce_into(self, source: torch.Tensor, target: torch.Tensor, opts: Any, seconds: float) -> Request[None]:
        same = source is target
        return self._live.post(Comm.all_reduce, place_of(source), op_of(opts), out=None if same else place_of(target),
                               dtype="u8" if source.dtype == torch.bool else str(source.dtype), timeout=seconds,
                               stream=stream_of(source))

    def allreduce(self, tensors: List[torch.Tensor], opts: Any = None) -> Work:
        return self.allreduce_coalesced([one_of(tensors)], opts)

    def allreduce_coalesced(self, tensors: List[torch.Tensor], opts: Any = None) -> Work:
        after: List[Callable[[], Any]] = []
        divide: List[Callable[[], Any]] = []
        requests = []
        for tensor in tensors:
            whole = self._into(tensor, after)
            if whole is not tensor:
                whole.copy_(tensor)
            divide += averaged(opts, whole, self._live.comm.size)
            requests.append(self._reduce_into(whole, whole, opts, self._limit(opts)))
        return Work(self, requests, list(tensors), [*divide, *after])

    def reduce(self, tensors: List[torch.Tensor], opts: Any = None) -> Work:
        tensor = one_of(tensors)
        check_dense(tensor)
        whole = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        divide = averaged(opts, whole, self._live.comm.size)
        request = self._reduce_into(tensor.contiguous(), whole, opts, self._limit(opts))
        self._live.root(root_of(opts))  # that it takes part
        after = [*divide, lambda: tensor.copy_(whole)] if root_of(opts) == self.rank() else []
        return Work(self, [request], [tensor], after)

    def broadcast(self, tensors: List[torch.Tensor], opts: Any = None) -> Work:
        tensor, after = tensors[getattr(opts, "rootTensor", 0)], []  # type: ignore[var-annotated]
        here = root_of(opts) == self.rank()
        copies = here and few(tensor)
        whole = tensor.clone(memory_format=torch.contiguous_format) if copies else self._into(tensor, after)
        if whole is not tensor and not copies:
            whole.copy_(tensor)
        request = self._live.post(Comm.bcast_bytes, self._live.root(root_of(opts)), place_of(whole),
                                  timeout=self._limit(opts), stream=stream_of(whole))
        if copies:
            return self._given(request, [tensor])
        return Work(self, [request], [tensor], after if not here else [])

    def barrier(self, opts: Any = None) -> Work:
        return Work(self, [self._live.post(Comm.ibarrier, timeout=self._limit(opts))], [])

    # ---- a part for each rank ----

    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor,
                          opts: Any = None) -> Work:
        same_type(output, tensor, "all_gather")
        after: List[Callable[[], Any]] = []
        source, whole = tensor.contiguous(), self._into(output, after, keep=not self._live.whole)
        raw, steps = self._spread(bytes_of(whole), "all_gather")
        request = self._live.post(Comm.all_gather_into, bytes_of(source), raw, timeout=self._limit(opts),
                                  stream=stream_of(tensor))
        return Work(self, [request], [output], [*steps, *after])

    def _spread(self, raw: torch.Tensor, what: str) -> "tuple[torch.Tensor, List[Callable[[], Any]]]":
        """Where a row for each rank that takes part goes: a buffer in which all of these are, and what puts them into
        the rows of the group, of which the others keep what they have."""
        if self._live.whole:
            return raw, []
        rows = self._live.rows(raw, what)
        flat = torch.empty(len(rows) * rows[0].numel(), dtype=torch.uint8, device=raw.device)

        def spread() -> None:
            for row, part in zip(rows, flat.view(len(rows), -1)):
                row.copy_(part)

        return flat, [spread]

    def _gathered(self, raw: torch.Tensor, what: str) -> torch.Tensor:
        """The rows of the ranks that take part, one behind another."""
        return raw if self._live.whole else torch.cat(self._live.rows(raw, what))

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

    @staticmethod
    def _check(like: torch.Tensor, parts: Sequence[torch.Tensor], what: str) -> None:
        if any(p.numel() != like.numel() or p.dtype != like.dtype for p in parts):
            raise ValueError(f"{what}: a list of tensors of {like.numel()} elements of {like.dtype} is needed, one for "
                             "each rank")

    def _parts(self, like: torch.Tensor, parts: Sequence[torch.Tensor], what: str,
               after: List[Callable[[], Any]]) -> torch.Tensor:
        """A row for each of the ranks that take part, whose tensors these are."""
        self._check(like, parts, what)
        if like.device.type != "cpu":  # torch keeps freed memory of a device itself
            return torch.empty((len(parts), like.numel()), dtype=like.dtype, device=like.device)
        flat = self._borrow(len(parts) * like.numel() * like.element_size(), after)
        return flat.view(like.dtype).view(len(parts), like.numel())

    @staticmethod
    def _give(flat: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
        for row, part in zip(flat, parts):
            part.copy_(row.view(part.shape))

    def _take(self, like: torch.Tensor, given: Sequence[torch.Tensor], what: str,
              after: List[Callable[[], Any]]) -> torch.Tensor:
        parts = self._live.pick(given, what)
        flat = self._parts(like, parts, what, after)
        for row, part in zip(flat, parts):
            row.copy_(part.detach().reshape(-1))
        return flat

    def _swap(self, given: Sequence[Optional[torch.Tensor]], taken: Sequence[Optional[torch.Tensor]], opts: Any,
              after: List[Callable[[], Any]]) -> Request[None]:
        """Tensors of the host for and from each rank that takes part, in their own memory."""
        sources = [None if one is None else one.contiguous() for one in given]
        targets = [None if one is None else self._into(one, after) for one in taken]
        me = self._live.comm.rank
        source, target = sources[me], targets[me]
        if source is not None and target is not None and source.data_ptr() == target.data_ptr():
            sources[me] = targets[me] = None  # it has its own already
        return self._live.post(Comm.exchange, [None if one is None else place_of(one) for one in sources],
                               [None if one is None else place_of(one) for one in targets], timeout=self._limit(opts))

    def _nobody(self) -> List[Optional[torch.Tensor]]:
        return [None] * self._live.comm.size

    def allgather(self, outputs: List[List[torch.Tensor]], tensors: List[torch.Tensor],
                  opts: Any = None) -> Work:
        tensor, parts = one_of(tensors), self._live.pick(outputs[0], "all_gather")
        after: List[Callable[[], Any]] = []
        flat = self._parts(tensor, parts, "all_gather", after)
        request = self._live.post(Comm.all_gather_into, place_of(tensor.contiguous()), place_of(flat),
                                  timeout=self._limit(opts), stream=stream_of(tensor))
        return Work(self, [request], list(outputs[0]), [lambda: self._give(flat, parts), *after])

    def allgather_coalesced(self, outputs: List[List[torch.Tensor]], tensors: List[torch.Tensor],
                            opts: Any = None) -> Work:
        if any(len(row) != len(tensors) for row in outputs):
            raise ValueError(f"all_gather_coalesced: {len(tensors)} tensors of each rank are needed")
        return self._all([self.allgather([[row[i] for row in outputs]], [tensor], opts)
                          for i, tensor in enumerate(tensors)])

    def gather(self, outputs: List[List[torch.Tensor]], tensors: List[torch.Tensor],
               opts: Any = None) -> Work:
        tensor, root = one_of(tensors), self._live.root(root_of(opts))
        after: List[Callable[[], Any]] = []
        here = root_of(opts) == self.rank()
        parts = self._live.pick(outputs[0], "gather") if here else []
        if tensor.device.type == "cpu":
            self._check(tensor, parts, "gather")
            given, copies = self._nobody(), not here and few(tensor)
            given[root] = tensor.clone() if copies else tensor
            request = self._swap(given, parts if here else self._nobody(), opts, after)
            if copies:
                return self._given(request, [])
            return Work(self, [request], list(outputs[0]) if here else [], after)
        flat = self._parts(tensor, parts, "gather", after) if here else None
        request = self._live.post(Comm.gather, root, bytes_of(tensor.contiguous()),
                                  None if flat is None else bytes_of(flat), timeout=self._limit(opts),
                                  stream=stream_of(tensor))
        return Work(self, [request], list(outputs[0]) if here else [],
                    [lambda: self._give(flat, parts), *after] if flat is not None else [])

    def scatter(self, outputs: List[torch.Tensor], tensors: List[List[torch.Tensor]],
                opts: Any = None) -> Work:
        output, after = one_of(outputs), []  # type: ignore[var-annotated]
        root, here = self._live.root(root_of(opts)), root_of(opts) == self.rank()
        if output.device.type == "cpu":
            parts = self._live.pick(tensors[0], "scatter") if here else self._nobody()
            self._check(output, [one for one in parts if one is not None], "scatter")
            taken, copies = self._nobody(), here and few(output, len(parts))
            taken[root] = output
            if copies:
                parts = [None if one is None else one.clone() for one in parts]
            request = self._swap(parts, taken, opts, after)
            return self._given(request, [output], after) if copies else Work(self, [request], [output], after)
        flat = self._take(output, tensors[0], "scatter", after) if here else None
        request = self._live.post(Comm.scatter, root, None if flat is None else bytes_of(flat),
                                  bytes_of(self._into(output, after)), timeout=self._limit(opts),
                                  stream=stream_of(output))
        return Work(self, [request], [output], after)

    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor,
                              opts: Any = None) -> Work:
        same_type(output, tensor, "reduce_scatter")
        if tensor.numel() != output.numel() * self.size():
            raise ValueError(f"reduce_scatter: {tensor.numel()} elements, {self.size()} times {output.numel()} are "
                             "needed")
        source = self._gathered(bytes_of(tensor.contiguous()), "reduce_scatter")
        return self._reduce_rows(output, source, opts)

    def _reduce_rows(self, output: torch.Tensor, source: torch.Tensor, opts: Any) -> Work:
        """source: the bytes of a row for each rank that takes part."""
        after: List[Callable[[], Any]] = []
        dtype = "u8" if output.dtype == torch.bool else str(output.dtype)
        whole = self._into(output, after)
        divide = averaged(opts, whole, self._live.comm.size)
        request = self._live.post(Comm.reduce_scatter, source, bytes_of(whole), op_of(opts), dtype=dtype,
                                  timeout=self._limit(opts), stream=stream_of(source))
        return Work(self, [request], [output], [*divide, *after])

    def reduce_scatter(self, outputs: List[torch.Tensor], tensors: List[List[torch.Tensor]],
                       opts: Any = None) -> Work:
        output, after = one_of(outputs), []  # type: ignore[var-annotated]
        flat = self._take(output, tensors[0], "reduce_scatter", after)
        work = self._reduce_rows(output, bytes_of(flat), opts)
        work.then(after)
        return work

    def _all(self, works: List[Work]) -> Work:
        return Work(self, [request for work in works for request in work._requests],
                    [t for work in works for t in work._result], [step for work in works for step in work._after])

    def all_gather_single_coalesced(self, outputs: List[torch.Tensor], tensors: List[torch.Tensor],
                                    opts: Any = None) -> Work:
        return self._all([self.all_gather_single(o, t, opts) for o, t in zip(outputs, tensors)])

    def reduce_scatter_single_coalesced(self, outputs: List[torch.Tensor], tensors: List[torch.Tensor],
                                        opts: Any = None) -> Work:
        return self._all([self.reduce_scatter_single(o, t, opts) for o, t in zip(outputs, tensors)])

    # ---- exchanges ----

    def all_to_all_single(self, output: torch.Tensor, tensor: torch.Tensor, output_sizes: List[int],
                          input_sizes: List[int], opts: Any = None) -> Work:
        same_type(output, tensor, "all_to_all")
        after: List[Callable[[], Any]] = []
        whole, source = self._into(output, after, keep=not self._live.whole), tensor.contiguous()
        if not output_sizes and not input_sizes:
            for given in (output, tensor):
                if given.numel() % self.size() != 0:
                    raise ValueError(f"all_to_all: {given.numel()} elements are no equal parts for {self.size()} ranks")
            raw, steps = self._spread(bytes_of(whole), "all_to_all")
            request = self._live.post(Comm.all_to_all, self._gathered(bytes_of(source), "all_to_all"), raw,
                                      timeout=self._limit(opts), stream=stream_of(source))
            return Work(self, [request], [output], [*steps, *after])
        taken, given = self._row_bytes(whole, output_sizes), self._row_bytes(source, input_sizes)
        if not self._live.whole:
            return self._exchange(self._cut(bytes_of(whole), taken), self._cut(bytes_of(source), given), opts,
                                  [output], after)
        request = self._live.post(Comm.all_to_all, bytes_of(source), bytes_of(whole), lengths=given, out_lengths=taken,
                                  timeout=self._limit(opts), stream=stream_of(source))
        return Work(self, [request], [output], after)

    def _row_bytes(self, tensor: torch.Tensor, rows: List[int]) -> List[int]:
        """The bytes of each rank's rows; without a list of rows, of equal shares."""
        rows = rows or [tensor.shape[0] // self.size()] * self.size()
        row = tensor.element_size()
        for n in tensor.shape[1:]:
            row *= n
        return [n * row for n in rows]

    def _cut(self, raw: torch.Tensor, lengths: List[int]) -> List[torch.Tensor]:
        if sum(lengths) != raw.numel():
            raise ValueError(f"all_to_all: parts of {sum(lengths)} bytes of a tensor of {raw.numel()}")
        return list(raw.split(lengths))

    def alltoall(self, outputs: List[torch.Tensor], tensors: List[torch.Tensor],
                 opts: Any = None) -> Work:
        return self._exchange(outputs, tensors, opts, outputs, [])

    def _exchange(self, outputs: List[torch.Tensor], tensors: List[torch.Tensor], opts: Any,
                  result: List[torch.Tensor], after: List[Callable[[], Any]]) -> Work:
        """Tensors of any lengths; on a device by way of one buffer on each side."""
        targets, sources = self._live.pick(outputs, "all_to_all"), self._live.pick(tensors, "all_to_all")
        if outputs[0].device.type == "cpu":
            steps: List[Callable[[], Any]] = []
            return Work(self, [self._swap(sources, targets, opts, steps)], list(result), [*steps, *after])
        lengths = [t.numel() * t.element_size() for t in targets]
        flat = torch.empty(sum(lengths), dtype=torch.uint8, device=outputs[0].device)
        source = torch.cat([bytes_of(t.contiguous()) for t in sources])
        request = self._live.post(Comm.all_to_all, source, flat,
                                  lengths=[t.numel() * t.element_size() for t in sources], out_lengths=lengths,
                                  timeout=self._limit(opts), stream=stream_of(source))

        def give() -> None:
            for tensor, part in zip(targets, flat.split(lengths)):
                tensor.copy_(part.view(tensor.dtype).view(tensor.shape))

        return Work(self, [request], list(result), [give, *after])

    def send(self, tensors: List[torch.Tensor], rank: int, tag: int = 0) -> Work:
        given = one_of(tensors)
        copies = few(given)
        request = self.comm.send_bytes(rank, tag & 0xffffffff,
                                       copy_of(given) if copies else place_of(given.contiguous()),
                                       timeout=self._timeout.total_seconds())
        kept = copies and self._outbox.give(request)
        return Message(self, [] if kept else [request], [given], outbox=self._outbox if copies else None)

    def recv(self, tensors: List[torch.Tensor], rank: int, tag: int = 0) -> Work:
        tensor, after = one_of(tensors), []  # type: ignore[var-annotated]
        request = self.comm.recv_bytes(rank, tag & 0xffffffff, place_of(self._into(tensor, after)),
                                       timeout=self._timeout.total_seconds())
        return Message(self, [request], [tensor], after)

    def recv_anysource(self, tensors: List[torch.Tensor], tag: int = 0) -> Work:
        return self.recv(tensors, ANY_SOURCE, tag)

    # What earlier versions of torch, and its C++, call them.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single
