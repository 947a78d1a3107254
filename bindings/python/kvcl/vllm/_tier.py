"""The secondary tier of vLLM's OffloadingConnector: chunks that vLLM has moved to the host are kept in the store, and
found there by any engine of the same model. See contrib/doc/vllm.
"""

import json
from typing import Any, ClassVar, Iterable, List

import torch
import vllm
from vllm.logger import init_logger
from vllm.v1.kv_offload.base import (Locality, LookupResult, Medium, OffloadingEvent, ReqContext,
                                     RequestOffloadingContext, ScheduleEndContext)
from vllm.v1.kv_offload.file_mapper import FileMapper
from vllm.v1.kv_offload.tiering.async_lookup import AsyncLookupManager
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob

from .._introduce import Fields
from .._job import Job
from .._keys import key_root
from ._tier_jobs import TierJobs, options_of, said

logger = init_logger("vllm.kvcl")


class _Lookups(AsyncLookupManager):
    """vLLM's own thread and cache of answers."""

    def __init__(self, jobs: TierJobs, tier_type: str) -> None:
        self._jobs = jobs
        super().__init__(tier_type=tier_type)

    def batch_lookup(self, keys: List[Any], req_context: ReqContext) -> Iterable[bool]:
        return self._jobs.lookup(keys)


def _fields(spec: Any, model: str, chunk_bytes: int) -> Fields:
    """All that decides a chunk's bytes besides its tokens."""
    config = spec.config
    known = dict(FileMapper.from_offloading_spec("", spec, spec.blocks_per_chunk, True).get_run_config())
    known["model_name"] = model or known["model_name"]
    known.update({
        "form": "kvcl.vllm.tier/1", "chunk bytes": chunk_bytes, "layout": config.kv_cache_layout,
        "vllm": vllm.__version__,
        "cpu": "" if torch.cuda.is_available() else torch.backends.cpu.get_cpu_capability()})
    return known


class KVCLTier(SecondaryTierManager):
    """See contrib/doc/vllm. The options are those of contrib/doc/engines and of _tier_jobs."""

    medium: ClassVar[Medium] = Medium.STORAGE

    def __init__(self, offloading_spec: Any, primary_kv_view: memoryview, tier_type: str,
                 backpressure_detector: Any = None, **given: Any) -> None:
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        found = options_of(given)
        self.locality = Locality(found.locality) if found.locality is not None else None
        self._events: List[OffloadingEvent] = []
        self._tells = found.enable_kv_events and offloading_spec.kv_events_config.enable_kv_cache_events
        if found.enable_kv_events and not self._tells:
            logger.warning("KVCL: enable_kv_events is true, and vLLM's events are off (--kv-events-config): no chunk "
                           "is told")
        fields = _fields(offloading_spec, found.model, self.block_size_bytes)
        root = key_root(found.salt.encode(), json.dumps(fields, sort_keys=True, default=str))
        job = Job("kvcl.vllm tier", found)
        job.introduce(said(fields))
        self._jobs = TierJobs(job, primary_kv_view, root, found.threads)
        self._lookups = _Lookups(self._jobs, tier_type)
        logger.info("KVCL: the tier's chunks have %d bytes (kvcl_serve --block)", self.block_size_bytes)

    def lookup(self, key: Any, req_context: ReqContext) -> LookupResult:
        found = self._lookups.lookup(key, req_context)
        if found is None:
            return LookupResult.RETRY
        return LookupResult.HIT if found else LookupResult.MISS

    def submit_store(self, job_metadata: TransferJob) -> None:
        self._jobs.store(job_metadata.job_id, job_metadata.keys, job_metadata.chunk_ids)

    def submit_load(self, job_metadata: TransferJob) -> None:
        self._jobs.load(job_metadata.job_id, job_metadata.keys, job_metadata.chunk_ids)

    def get_finished_jobs(self) -> Iterable[JobResult]:
        out = []
        for job in self._jobs.ended():
            good = [key for key, one in zip(job.keys, job.good) if one]
            if job.load:
                self._lookups.mark_miss([key for key, one in zip(job.keys, job.good) if not one])
            elif self._tells and good:
                self._events.append(OffloadingEvent(keys=good, medium=self.medium, removed=False,
                                                    locality=self.locality))
            out.append(JobResult(job_id=job.number, success=all(job.good),
                                 successful_keys=good if job.load and good else None, transfer_time=job.seconds,
                                 transfer_bytes=len(good) * self.block_size_bytes))
        return out

    def take_events(self) -> Iterable[OffloadingEvent]:
        events, self._events = self._events, []
        return events

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: ReqContext) -> None:
        self._lookups.cleanup(req_context.req_id)

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        self._lookups.flush()

    def drain_jobs(self) -> None:
        self._jobs.drain()

    def shutdown(self) -> None:
        self._lookups.shutdown()
        self._jobs.close()
