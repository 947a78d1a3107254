"""vLLM's tiering on a CPU, which its own worker refuses: the copies between an engine's blocks and the host's chunks,
by torch. For the tests of the secondary tier.
"""

import time

import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class Worker(OffloadingWorker):
    """One group, a block a chunk."""

    def __init__(self, spec, kv_caches):
        assert spec.blocks_per_chunk == 1 and len(kv_caches.group_data_refs) == 1
        self.region = SharedOffloadRegion(
            engine_id=spec._engine_id, num_chunks=spec.num_chunks, rank=spec.config.parallel.rank,
            kv_bytes_per_chunk=spec.kv_bytes_per_chunk, cpu_page_size=spec.cpu_page_size_per_worker)
        self.pairs = [(one.tensor.view(torch.int8).view(-1, one.page_size_bytes),
                       self.region.create_next_worker_view(one.page_size_bytes)) for one in kv_caches.tensors]
        self.done = []

    def _copy(self, job, blocks, chunks, store):
        begun = time.monotonic()
        for block, chunk in zip(blocks.block_ids.tolist(), chunks.block_ids.tolist()):
            for engine, host in self.pairs:
                if store:
                    host[chunk].copy_(engine[block])
                else:
                    engine[block].copy_(host[chunk])
        self.done.append(TransferResult(job, True, 0, time.monotonic() - begun))
        return True

    def submit_store(self, job_id, src_spec, dst_spec):
        return self._copy(job_id, src_spec, dst_spec, True)

    def submit_load(self, job_id, src_spec, dst_spec):
        return self._copy(job_id, dst_spec, src_spec, False)

    def get_finished(self):
        done, self.done = self.done, []
        return done

    def wait(self, job_ids):
        pass


class CpuTier(TieringOffloadingSpec):
    def get_worker(self, kv_caches):
        if not self._worker:
            self._worker = Worker(self, kv_caches)
        return self._worker
