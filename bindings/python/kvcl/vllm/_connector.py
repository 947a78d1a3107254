"""The connector's class: vLLM's calls, each handed to the part that answers it. An exception in one never reaches the
engine: it is the error of a load, or reuse is lost.
"""

import functools
import secrets
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import (KVConnectorBase_V1, KVConnectorHandshakeMetadata,
                                                               KVConnectorMetadata, KVConnectorRole,
                                                               KVConnectorTransferResults, KVConnectorWorkerMetadata,
                                                               SupportsHMA)
from vllm.logger import init_logger

import kvcl

from . import _fields, _handover, _identity, _options, _pages, _peers, _seal, _stats
from ._announce import Board
from ._handover import Part
from ._hybrid import Hybrid, name_of
from ._link import Link
from ._lookups import Lookups
from ._plan import Load, Plan, Save, Work
from ._stats import Prom, Stats
from ._transfers import Transfers
from ._watch import Watch

logger = init_logger("vllm.kvcl")  # below vLLM's own, so that its settings of logging hold

ANSWER = 0.001    # seconds that a step with nothing to compute waits for the store's answer
TOLD = 256        # blocks after which a step tells no more
SHORT = 64 << 20  # bytes of the loads of one rank that such a step waits for
_ENDED_EARLY = ("FINISHED_ABORTED", "FINISHED_ERROR", "FINISHED_IGNORED")
ADDRESS = 5.0  # seconds that the start of the engine waits for its ranks' addresses


class Metadata(KVConnectorMetadata):
    """What the scheduler's side sends to the workers' with each step."""

    def __init__(self, work: Work) -> None:
        self.work = work


class Address(KVConnectorHandshakeMetadata):
    """What a worker's side tells when the engine starts: the address by which other engines reach this rank."""

    def __init__(self, address: str) -> None:
        self.address = address


class Ended(KVConnectorWorkerMetadata):
    """What a worker's side sends back: how many saves of which requests have ended, the address by which other engines
    reach each rank, and how many loads that a step waited for have failed so far."""

    def __init__(self, saves: Dict[str, int], addresses: Dict[int, str], told: List[Dict[int, bool]],
                 lost: int) -> None:
        self.saves, self.addresses, self.told = saves, addresses, told  # told: of each worker (Plan.told)
        self.lost = lost

    def aggregate(self, other: KVConnectorWorkerMetadata) -> "Ended":
        assert isinstance(other, Ended)
        names = set(self.saves) | set(other.saves)
        return Ended({name: self.saves.get(name, 0) + other.saves.get(name, 0) for name in names},
                     {**self.addresses, **other.addresses}, self.told + other.told, max(self.lost, other.lost))


def _guarded(default: Callable[[], Any]) -> Callable[[Any], Any]:
    """A method whose exception is logged once, with its traceback, and becomes default()."""

    def decorate(method: Any) -> Any:
        @functools.wraps(method)
        def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return method(self, *args, **kwargs)
            except Exception:  # noqa: B902: the engine goes on
                if method.__name__ not in self._told:
                    self._told.add(method.__name__)
                    logger.exception("KVCL: %s failed: the engine goes on without it (said once)", method.__name__)
                return default()
        return guarded
    return decorate


class KVCLConnector(KVConnectorBase_V1, SupportsHMA):
    """See kvcl.vllm."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        transfer = self._kv_transfer_config
        self._options = _options.read(transfer.kv_connector_extra_config)
        transfer.kv_load_failure_policy = self._options["load_errors"]  # vLLM reads it after this call
        self._told: Set[str] = set()
        self._link: Optional[Link] = None
        self._work = Work()
        self._asked: Dict[str, Tuple[int, bool]] = {}  # requests that were looked up: tokens in this engine's own
                                                       # cache, and whether a step waits for the others
        self._computing: Set[str] = set()  # the requests of the last step
        self._short = SHORT                # bytes left of those that the next step may wait for
        self._lost: List[Load] = []       # loads that a worker without a form of memory to share was given
        self._lost_blocks: Set[int] = set()
        self._unsaved: Dict[str, int] = {}
        tp_rank = 0
        if role == KVConnectorRole.WORKER:
            from vllm.distributed.parallel_state import get_tensor_model_parallel_rank
            tp_rank = get_tensor_model_parallel_rank()
        self._engine = _identity.engine(vllm_config, kv_cache_config, self._options, tp_rank)
        self._loads, self._saves = transfer.is_kv_consumer, transfer.is_kv_producer
        self._hybrid = bool(self._engine.windows)
        batches = bool(getattr(vllm_config.parallel_config, "use_ubatching", False))  # each batch calls each layer
        self._by_layer = self._options["by_layer"] == "yes" and not self._hybrid and not batches
        self._may_wait = self._waits_are_safe(vllm_config, role)
        if self._options["by_layer"] == "yes" and not self._by_layer and role == KVConnectorRole.SCHEDULER:
            logger.warning("KVCL: by_layer is yes, which %s does not allow: blocks are moved whole",
                           "a model with sliding windows" if self._hybrid else "an engine of micro-batches")
        self._overlap = bool(vllm_config.scheduler_config.async_scheduling)  # of steps
        self._layer_of = {name: index for index, name in enumerate(self._engine.layers)}
        secret = _fields.tenant_secret(self._options["tenant_secret_file"])
        self._text = _fields.introduction(self._engine.fields, self._options["tenant"])
        self._base = _fields.root(self._engine.fields, self._options["tenant"], secret)
        self._transfers: Optional[Transfers] = None
        if self._engine.why:
            logger.warning("KVCL: this engine does not share its KV cache: %s", self._engine.why)
        elif role == KVConnectorRole.SCHEDULER:
            self._link = Link(self._options, logger, self._text)
            self._link.start()
        self._direct = self._options["handover"] == "direct" and not self._hybrid
        self._told_address, self._told_lost = False, 0
        self._seal = _seal.Seal(self._options["secret_file"])
        saves = self._options["save"] if self._saves and self._options["store"] != "none" else "none"
        self._plan = (Hybrid(self._engine.block_size, saves, self._engine.tp, self._engine.windows) if self._hybrid
                      else Plan(self._engine.block_size, saves, self._engine.tp, self._base if self._direct else b"",
                                self._by_layer, self._seal))
        longest = -(-vllm_config.model_config.max_model_len // self._engine.block_size)
        self._longest = min(longest, kv_cache_config.num_blocks)  # of prompts, in blocks
        events = vllm_config.kv_events_config
        self._plan.tells = bool(role == KVConnectorRole.SCHEDULER and events and events.enable_kv_cache_events)
        self._watch = Watch(self._link, self._watched, self._engine.parts)
        self._lookups = Lookups(self._link, self._plan, self._keys, self._engine.parts, self._options)

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: Dict[str, Any]) -> bool:
        return extra_config.get("by_layer") == "yes"

    @property
    def requires_kv_delivery(self) -> bool:
        """What is not saved is computed again. But an engine that only computes for others does so again itself, if it
        must preempt a request."""
        return bool(self._saves and not self._loads)

    def _waits_are_safe(self, vllm_config: Any, role: KVConnectorRole) -> bool:
        """With asynchronous scheduling vLLM has begun the next step when it learns that a load of this one failed. It
        computes the blocks again, but keeps the token that the next step made out of blocks that were not there. With
        several ranks, those whose loads went well would save what they compute with the others' failed blocks. With
        several groups of layers vLLM computes all of a request if one of its blocks failed."""
        if self._hybrid:
            why, instead = "a model with sliding windows does not allow", ""
        elif self._engine.tp > 1:
            why, instead = "an engine of several ranks does not allow", ""
        elif vllm_config.scheduler_config.async_scheduling and self._options["load_errors"] != "fail":
            why, instead = ("asynchronous scheduling does not allow",
                            ". Give --no-async-scheduling, or load_errors fail")
        else:
            return True
        if self._options["load"] == "sync" and role == KVConnectorRole.SCHEDULER:
            logger.warning("KVCL: load is sync, which %s: loads are async%s", why, instead)
        return False

    def _keys(self, names: List[bytes]) -> List[bytes]:
        return _fields.keys(self._base, names, range(self._engine.parts))

    def _watched(self, names: List[bytes]) -> List[bytes]:
        """The keys by which blocks that were told are looked for: of a group with full attention, or else of the one
        with the smallest window."""
        windows = self._engine.windows
        return self._keys([name_of(name, windows.index(min(windows))) for name in names] if windows else names)

    def shutdown(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            if self._transfers is not None:
                self._transfers.close()
            link.close()

    # ---- the scheduler's side ----

    @_guarded(lambda: None)
    def on_new_request(self, request: Any) -> None:
        if self._link is not None:
            self._plan.add(request.request_id, request.num_prompt_tokens, request.block_hashes,
                           request.kv_transfer_params,
                           self._tail(request) if request.kv_transfer_params else b"", request)
            if self._seal.refused and "seal" not in self._told:
                self._told.add("seal")
                logger.warning("KVCL: kv_transfer_params name an engine by an address that none has made with this "
                               "one's job secret: such prompts are looked for in the store, or computed (said once). "
                               "KVCL_SECRET_FILE is the same for both engines, and a router changes no address")

    def _tail(self, request: Any) -> bytes:
        """What the hashes of full blocks do not cover."""
        tokens = request.prompt_token_ids
        full = request.num_prompt_tokens // self._engine.block_size * self._engine.block_size
        lora = getattr(request.lora_request, "lora_name", None)
        images = [str(one.identifier) for one in request.mm_features or ()]
        return repr((tokens[full:] if tokens is not None else request.request_id, request.cache_salt, lora,
                     images)).encode()

    @_guarded(lambda: (0, False))
    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Tuple[Optional[int], bool]:
        name = request.request_id
        if not self._loads or self._link is None or name not in self._plan:
            return 0, False
        alone = self._computing <= {name}
        tokens = self._lookups.ask(name, request.num_tokens, num_computed_tokens, ANSWER if alone else 0.0)
        if tokens is None:
            return None, False
        waits = self._waits(name, tokens, alone)
        if waits:
            tokens = min(tokens, request.num_tokens - 1 - num_computed_tokens)  # the step computes one at least
        self._asked[name] = (num_computed_tokens, waits)
        if tokens < max(1, self._options["min_tokens"]):
            return 0, False
        return tokens, not waits

    def _waits(self, request: str, tokens: int, alone: bool) -> bool:
        """Whether the step that needs its load waits for it, which saves vLLM several steps. alone: nothing else is
        computed meanwhile."""
        how, size = self._options["load"], tokens * self._engine.token_bytes
        if not self._may_wait or how == "async":
            return False
        if self._plan.expects(request) and not self._plan.answers(request):
            return False
        if how == "auto" and not (alone and size <= self._short):
            return False
        return True

    @_guarded(lambda: None)
    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if request.request_id not in self._plan:
            return
        self._lookups.forget(request.request_id)
        if num_external_tokens > 0:
            computed, waits = self._asked[request.request_id]
            self._short -= num_external_tokens * self._engine.token_bytes if waits else 0
            ids = blocks.get_block_ids()
            self._plan.load(request.request_id, computed, num_external_tokens, ids if self._hybrid else ids[0], waits)
        else:
            self._plan.not_read(request.request_id)
        self._asked.pop(request.request_id, None)

    @_guarded(lambda: Metadata(Work()))
    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        if self._link is None:
            return Metadata(Work())
        self._computing, self._short = set(scheduler_output.num_scheduled_tokens), SHORT
        self._lookups.step()
        work = self._plan.step(self._steps(scheduler_output), self._blocks_of(scheduler_output),
                               scheduler_output.preempted_req_ids or ())
        work.early = not self._overlap and not getattr(scheduler_output, "new_block_ids_to_zero", None)
        return Metadata(work)

    @_guarded(list)  # the loads of the step go out all the same
    def _steps(self, scheduler_output: Any) -> List[Tuple[str, int]]:
        """The requests of a step, and how many of their tokens are computed after it."""
        counts = scheduler_output.num_scheduled_tokens
        computed = {new.req_id: new.num_computed_tokens for new in scheduler_output.scheduled_new_reqs}
        cached = scheduler_output.scheduled_cached_reqs
        computed.update(zip(cached.req_ids, cached.num_computed_tokens))
        return [(one, before + counts.get(one, 0)) for one, before in computed.items()]

    def _blocks_of(self, scheduler_output: Any) -> Callable[[str], Any]:
        """The block table of a request, with several groups one for each; empty if it has none now."""
        state = getattr(scheduler_output, "kv_connector_block_state", None)

        def blocks_of(request: str) -> Any:
            ids = state.get_block_ids(request) if state is not None else None
            return (ids if self._hybrid else ids[0]) if ids else []
        return blocks_of

    @_guarded(lambda: None)
    def update_connector_output(self, connector_output: Any) -> None:
        ended = connector_output.kv_connector_worker_meta
        if isinstance(ended, Ended):
            self._plan.save_ended(ended.saves)
            self._plan.peers.update(ended.addresses)
            self._plan.lost = max(self._plan.lost, ended.lost)
            for told in ended.told:
                self._plan.told(told)
        self._plan.freed(connector_output.finished_sending or ())
        if connector_output.invalid_block_ids:
            if self._plan.load_failed(connector_output.invalid_block_ids):
                self._hide(connector_output.invalid_block_ids)
        if isinstance(self._plan, Hybrid):
            self._plan.loads_failed(connector_output.failed_recving or ())
        self._plan.loaded(connector_output.finished_recving or ())

    def _hide(self, failed: Set[int]) -> None:
        """vLLM lets other requests find the blocks of a load that a step waits for from that step on, and does so
        while it computes those that failed, and those that were computed with them. It must not before they are
        computed."""
        manager = self._kv_cache_manager
        if manager is None:
            return
        for request in self._plan:
            ids = manager.get_block_ids(request)[0]
            first = next((i for i, one in enumerate(ids) if one in failed), len(ids))
            manager.evict_blocks(set(ids[first:]))

    @_guarded(lambda: (False, None))
    def request_finished_all_groups(self, request: Any, block_ids: Tuple[List[int], ...]
                                    ) -> Tuple[bool, Optional[Dict[str, Any]]]:
        self._lookups.forget(request.request_id)
        self._asked.pop(request.request_id, None)
        self._computing.discard(request.request_id)
        status = getattr(request, "status", None)
        return self._plan.finished(request.request_id, getattr(status, "name", "") in _ENDED_EARLY)

    @_guarded(lambda: False)
    def reset_cache(self) -> Optional[bool]:
        """The model's weights have changed. From now on this engine finds only what it has stored after this call, and
        no other engine finds that: none knows which weights it has."""
        mark = secrets.token_bytes(16)
        self._base = _fields.root_after(self._base, mark)
        self._plan.reset(mark)
        self._lookups.reset()
        self._watch.clear()
        return True

    def request_finished(self, request: Any, block_ids: List[int]) -> Tuple[bool, Optional[Dict[str, Any]]]:
        keep, params = self.request_finished_all_groups(request, (block_ids,))
        return keep, params

    @_guarded(list)
    def take_events(self) -> List[Any]:
        if self._link is None or not self._plan.tells:
            return []
        stored = self._plan.take_stored(TOLD)
        dropped = self._watch.dropped()
        for one in stored:
            self._watch.stored(one.names)
        return ([_stats.removed(dropped)] if dropped else []) + [
            _stats.event(one, self._engine.block_size) for one in stored]

    @_guarded(lambda: None)
    def set_xfer_handshake_metadata(self, metadata: Dict[int, KVConnectorHandshakeMetadata]) -> None:
        self._plan.peers.update({rank: one.address for rank, one in metadata.items() if isinstance(one, Address)})

    # ---- the workers' side ----

    @_guarded(lambda: None)
    def register_kv_caches(self, kv_caches: Dict[str, torch.Tensor]) -> None:
        engine = self._engine
        if engine.why:
            return
        tensors = [kv_caches[name] for name in engine.layers]
        memory = {one.data_ptr() for one in tensors}
        if self._hybrid and any(one.data_ptr() not in memory for one in kv_caches.values()):
            logger.warning("KVCL: this engine does not share its KV cache: its groups do not have the same memory")
            return
        shapes = [(tuple(one.shape), tuple(one.stride()), one.element_size()) for one in tensors]
        try:
            pages = _pages.pages(shapes, self._kv_cache_config.num_blocks)
            if pages.whole and engine.by_heads:
                raise ValueError("the heads of its blocks do not follow each other")
        except ValueError as error:
            logger.warning("KVCL: this engine does not share its KV cache: %s", error)
            return
        slices, saves = _pages.share(engine.heads, engine.tp, engine.tp_rank, pages.parts, not engine.by_heads)
        bases = [_bytes_of(one, pages.layout.base_bytes) for one in tensors]

        def prepare(context: kvcl.Context) -> None:
            transfers = self._transfers
            assert transfers is not None
            transfers.cache = context.cache(_peers.CACHE, pages.layout, bases)
            if self._direct and self._saves:
                board = Board(context, len(tensors), self._longest) if self._by_layer else None
                transfers.leases = _peers.Leases(context, self._options["handover_timeout"], logger, board,
                                                 engine.tp_rank, engine.tp)
            if transfers.peers is not None:
                transfers.peers.open(context, transfers.cache)

        def parts(theirs: int) -> List[Part]:
            if engine.by_heads:
                return _handover.parts(engine.heads, engine.tp, engine.tp_rank, theirs)
            if theirs != engine.tp:
                raise ValueError(f"a prefill engine of {theirs} ranks: this one has {engine.tp}, and this layout "
                                 "needs as many")
            return [Part(engine.tp_rank, (0,), (0,), 1, 1)]

        self._device = tensors[0].device
        layers = len(tensors) if self._by_layer else 0
        link = Link(self._options, logger, self._text, pages.layout.block_bytes, prepare, layers)
        self._transfers = Transfers(link, self._base, slices, saves, logger, self._by_layer)
        self._transfers.parts = parts
        if self._direct and self._loads:
            self._transfers.peers = _peers.Peers(self._options)
        self._link = link
        link.start()
        logger.info("KVCL: %d blocks of %d bytes for each block of %d tokens", len(slices), pages.layout.block_bytes,
                    engine.block_size)

    @_guarded(lambda: None)
    def get_handshake_metadata(self) -> Optional[KVConnectorHandshakeMetadata]:
        """Waits until the rank has an address, or has none at the first attempt: a later one is told in a step."""
        if self._link is None or not (self._direct and self._saves):
            return None
        self._link.tried.wait(ADDRESS)
        if self._transfers is None or self._transfers.leases is None:
            return None
        self._told_address = True
        return Address(self._seal.put(self._transfers.leases.address))

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        super().bind_connector_metadata(connector_metadata)
        self._take(connector_metadata)

    def _take(self, metadata: KVConnectorMetadata) -> None:
        """The work of a step, once: vLLM gives it before it prepares the step, and again before it computes it."""
        work = metadata.work if isinstance(metadata, Metadata) else Work()
        if work is not self._work:
            self._work = work
            self._begin()

    @_guarded(lambda: None)
    def _begin(self) -> None:
        """A step begins. Leases of blocks that it overwrites end first. Loads that it waits for move while vLLM
        prepares it. By layers, the store is asked which blocks it has while the first layer is computed, and what is
        announced to other engines begins."""
        for mark in self._work.resets:
            self._base = _fields.root_after(self._base, mark)
            if self._transfers is not None:
                self._transfers.reset(self._base)
        if self._transfers is not None and self._transfers.leases is not None:
            self._transfers.leases.drop(self._work.dropped)
            for lease in self._work.leases:
                self._transfers.leases.set(lease)
        if self._transfers is not None:
            for source in self._work.unread:
                self._transfers.unread(source)
        if self._by_layer and self._transfers is not None:
            self._transfers.step_lost()
            self._transfers.announce(self._work.chunks, self._work.lost)
            saves, self._work.saves = self._work.saves, []
            for save in saves:
                self._save(save, computing=True)
        if self._work.early and self._transfers is not None:
            loads = self._work.loads
            self._work.loads = [load for load in loads if not load.waited]
            for load in loads:
                if load.waited:
                    self._transfers.load(load)

    @_guarded(lambda: None)
    def handle_preemptions(self, kv_connector_metadata: KVConnectorMetadata) -> None:
        """Called before vLLM prepares a step."""
        if self._transfers is not None and isinstance(kv_connector_metadata, Metadata):
            preempted = set(kv_connector_metadata.work.preempted)
            if preempted:
                self._transfers.wait_saves(preempted)  # their blocks are about to be given to others
        self._take(kv_connector_metadata)

    @_guarded(lambda: None)
    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        loads, self._work.loads = self._work.loads, []
        if self._transfers is None:
            self._lost.extend(loads)
            return
        for load in loads:
            self._transfers.load(load)
        if not self._by_layer:
            self._transfers.wait_bytes()

    @_guarded(lambda: None)
    def wait_for_layer_load(self, layer_name: str) -> None:
        if self._by_layer and self._transfers is not None and layer_name in self._layer_of:
            self._transfers.wait_layer(self._layer_of[layer_name])
        elif self._transfers is not None:
            self._transfers.between_layers()

    @_guarded(lambda: None)
    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any) -> None:
        if self._by_layer and self._transfers is not None and layer_name in self._layer_of:
            self._transfers.layer_ready(self._layer_of[layer_name], self._stream())

    def _save(self, save: Save, **how: Any) -> None:
        """Of blocks that this step computes."""
        assert self._transfers is not None
        if self._transfers.spoiled(self._work.lost):
            self._transfers.unsaved(save)
        else:
            self._transfers.save(save, **how)

    def _stream(self) -> Any:
        """The stream that computes; None on a CPU."""
        return torch.cuda.current_stream() if self._device.type == "cuda" else None

    @_guarded(lambda: None)
    def wait_for_save(self) -> None:
        saves, self._work.saves = self._work.saves, []
        if self._transfers is None:
            for save in saves:
                self._unsaved[save.request] = self._unsaved.get(save.request, 0) + 1
            return
        self._transfers.wait_loads()  # nothing is saved if one has failed
        if self._by_layer:
            self._transfers.step_computed(self._stream())
        for save in saves:
            self._save(save, stream=self._stream())

    @_guarded(lambda: (None, None))
    def get_finished(self, finished_req_ids: Set[str]) -> Tuple[Optional[Set[str]], Optional[Set[str]]]:
        kept, self._work.kept = self._work.kept, []
        if self._transfers is None:
            lost, self._lost = self._lost, []
            self._lost_blocks |= {block for load in lost for block in load.blocks}
            return set(kept) or None, {load.request for load in lost} or None
        self._transfers.keep(kept)
        sent, received = self._transfers.finished()
        return sent or None, received or None

    @_guarded(KVConnectorTransferResults)
    def get_transfer_results(self, finished_req_ids: Set[str]) -> KVConnectorTransferResults:
        """With several groups vLLM takes the requests whose loads have failed, in place of the blocks."""
        results = super().get_transfer_results(finished_req_ids)
        if self._hybrid:
            received = results.finished_recving
            results.failed_recving = self._transfers.lost(received) if self._transfers is not None else received
        return results

    @_guarded(lambda: None)
    def build_connector_worker_meta(self) -> Optional[KVConnectorWorkerMetadata]:
        addresses: Dict[int, str] = {}
        told: Dict[int, bool] = {}
        lost = 0
        if self._transfers is not None:
            done, told, lost = self._transfers.take_done(), self._transfers.take_told(), self._transfers.lost_loads
            if self._transfers.leases is not None and not self._told_address:
                addresses, self._told_address = {
                    self._engine.tp_rank: self._seal.put(self._transfers.leases.address)}, True
        else:
            done, self._unsaved = self._unsaved, {}
        tells, self._told_lost = bool(done or addresses or lost > self._told_lost), lost
        return Ended(done, addresses, [told] if told else [], lost) if tells else None

    @_guarded(set)
    def get_block_ids_with_load_errors(self) -> Set[int]:
        if self._transfers is None:
            lost, self._lost_blocks = self._lost_blocks, set()
        else:
            lost = self._transfers.failed()
        return set() if self._hybrid else lost

    # ---- numbers ----

    @_guarded(lambda: None)
    def get_kv_connector_stats(self) -> Optional[Stats]:
        return Stats.of(self._transfers.take_counts()) if self._transfers is not None else None

    @classmethod
    def build_kv_connector_stats(cls, data: Optional[Dict[str, Any]] = None) -> Stats:
        return Stats(data=data or {})

    @classmethod
    def build_prom_metrics(cls, vllm_config: Any, metric_types: Any, labelnames: List[str],
                           per_engine_labelvalues: Dict[int, List[object]]) -> Prom:
        return Prom(vllm_config, metric_types, labelnames, per_engine_labelvalues)


def _bytes_of(tensor: torch.Tensor, n: int) -> torch.Tensor:
    """n bytes of its memory from its first element on."""
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    flat.set_(tensor.untyped_storage(), tensor.storage_offset() * tensor.element_size(), (n,), (1,))
    return flat
