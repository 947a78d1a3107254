"""SGLang's prefill and decode apart, over KVCL: a prefill rank writes the KV cache of a request into the memory of the
decode ranks, over shared memory, RDMA or TCP.

    --disaggregation-transfer-backend kvcl

kvcl.sglang_plugin makes that choice known to SGLang; contrib/doc/engines has the rest. The classes are those of
SGLang's Mooncake backend, whose engine is replaced: which bytes go where (tensor, pipeline and context parallelism,
states), bootstrap, aborts and role switches are SGLang's own code.

What differs from Mooncake's: pages of another size are refused when a decode rank registers, with the buffer named; a
decode rank fails the requests of a prefill rank that has ended about a second later, not at the heartbeat of the whole
engine; a transfer that fails fails its request alone while the peer lives; and the decode engine's error says why.
"""

import threading
from typing import Any, Dict, List, Optional, Set

from sglang.srt.disaggregation.base.conn import KVPoll
from sglang.srt.disaggregation.common.conn import CommonKVReceiver
from sglang.srt.disaggregation.mooncake.conn import (MooncakeKVBootstrapServer, MooncakeKVManager, MooncakeKVReceiver,
                                                     MooncakeKVSender)
from sglang.srt.disaggregation.utils import DisaggregationMode
from sglang.srt.runtime_context import get_device
from sglang.srt.utils.network import NetworkAddress

from ._disagg import Engine, page_mismatch

_engine: Optional[Engine] = None
_engine_lock = threading.Lock()


def _engine_at(host: str) -> Engine:
    """This process's engine: it outlives a manager, which a switch of roles makes anew."""
    global _engine
    with _engine_lock:
        if _engine is None:
            _engine = Engine(host, device=get_device().device == "cuda")
        return _engine


class KVCLKVManager(MooncakeKVManager):
    """One for each rank of an engine."""

    kv_status_msg_tag = b"KV_STATUS"
    kv_status_msg_carries_reason = True

    def init_engine(self) -> None:
        self.engine = _engine_at(self.local_ip)
        self._waiting: Dict[str, Set[int]] = {}  # requests, by the prefill rank that they wait for
        self._waiting_lock = threading.Lock()
        decodes = self.disaggregation_mode == DisaggregationMode.DECODE
        self.engine.introduce("" if decodes else f"{self.local_ip}:{self.rank_port}")
        self.engine.watch(self._prefill_ended if decodes else None)

    # ---- prefill ----

    def _publish_peer_registration(self, session: str, info: Any) -> Optional[str]:
        self.engine.meet(session)  # a failure is not final: the next transfer tries again
        why: Optional[str] = super()._publish_peer_registration(session, info)
        if why is None and not info.requires_dcp_relayout:
            same = self.is_mla_backend or self.is_hybrid_mla_backend or self.attn_tp_size == info.dst_attn_tp_size
            why = page_mismatch(self.kv_args.kv_item_lens, info.dst_kv_item_lens, len(info.dst_kv_ptrs), same)
            if why is not None:
                with self.session_lock:
                    self.state_layout_rejections[session] = why
        return why

    def conclude_failure(self, *, bootstrap_room: int, failure_reason: str, targets: Any = None) -> Any:
        why = self.engine.take_why()
        if why and failure_reason.startswith("Failed to send"):
            failure_reason = f"{failure_reason}: {why}"
        for session in list(self.transfer_infos.get(bootstrap_room, ())):
            if self.engine.alive(session):  # the request has failed, and not the peer
                self.failed_sessions.discard(session)
                self.session_failures.pop(session, None)
        return super().conclude_failure(bootstrap_room=bootstrap_room, failure_reason=failure_reason, targets=targets)

    # ---- decode ----

    def await_ranks(self, room: int, infos: List[Dict[str, Any]]) -> None:
        """The request waits for these prefill ranks, until forget()."""
        with self._waiting_lock:
            for info in infos:
                if not info["is_dummy"]:
                    self._waiting.setdefault(f"{info['rank_ip']}:{info['rank_port']}", set()).add(room)

    def forget(self, room: int) -> None:
        """The request waits no more."""
        with self._waiting_lock:
            for name in [name for name, rooms in self._waiting.items() if room in rooms]:
                self._waiting[name].discard(room)
                if not self._waiting[name]:
                    del self._waiting[name]

    def _prefill_ended(self, name: str) -> None:
        """Fail the requests that wait for a prefill rank, and forget its address: a later one may have another."""
        with self._waiting_lock:
            rooms = self._waiting.pop(name, set())
        with self.connection_lock:
            for key, infos in list(self.connection_pool.items()):
                if any(f"{info['rank_ip']}:{info['rank_port']}" == name for info in infos):
                    del self.connection_pool[key]
        ip, _, port = name.rpartition(":")
        if ip and port.isdigit():
            CommonKVReceiver.disconnect_endpoint(NetworkAddress(ip, int(port)).to_tcp())
        for room in rooms:
            if self.request_status.get(room) not in (None, KVPoll.Success, KVPoll.Failed):
                self.record_failure(room, f"the prefill rank at {name} has ended")
                self.update_status(room, KVPoll.Failed)


class KVCLKVSender(MooncakeKVSender):
    """Of one request, in a prefill rank."""

    @property
    def supports_host_tensor_indices(self) -> bool:
        """Whether page numbers come as a tensor with a CUDA event: on another device there is none."""
        return bool(get_device().device == "cuda")


class KVCLKVReceiver(MooncakeKVReceiver):
    """Of one request, in a decode rank."""

    def send_metadata(self, *args: Any, **kwargs: Any) -> None:
        self.kv_mgr.await_ranks(self.bootstrap_room, getattr(self, "bootstrap_infos", None) or [])
        super().send_metadata(*args, **kwargs)

    def clear(self) -> None:
        super().clear()
        self.kv_mgr.forget(self.bootstrap_room)


class KVCLKVBootstrapServer(MooncakeKVBootstrapServer):
    """The addresses of an engine's prefill ranks."""


CLASSES = {"manager": KVCLKVManager, "sender": KVCLKVSender, "receiver": KVCLKVReceiver,
           "bootstrap_server": KVCLKVBootstrapServer}
