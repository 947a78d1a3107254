"""SGLang's transfer classes over KVCL (kvcl.sglang_disagg), without an engine: prefill and decode ranks are processes
that call manager, sender and receiver as SGLang's scheduler does, over pages in host memory. The modules of SGLang that
move KV cache are real; the others, and torch, are stand-ins: nothing here needs them, and they take long to load.

Every byte is compared: pages, states and metadata that were sent, and those beside them. Then what goes wrong: pages
outside the pool, of another size, an abort, a deadline, a prefill rank that is killed, a decode rank that is killed.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import json
import logging
import os
import subprocess
import sys
import time
import types
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np

LAYERS, PAGES, PAGE_BYTES, ROWS = 3, 32, 4096, 8
STATES, AUX = (512, 96), (64, 256)


REAL = ("sglang.srt.disaggregation.", "sglang.srt.plugins", "sglang.srt.environ", "sglang.srt.utils.network",
        "sglang.srt.arg_groups.choices", "sglang.srt.managers.disagg_service")
PACKAGES = {"sglang": "", "sglang.srt": "srt", "sglang.srt.utils": "srt/utils", "sglang.srt.managers": "srt/managers",
            "sglang.srt.disaggregation": "srt/disaggregation", "sglang.srt.arg_groups": "srt/arg_groups"}
SPECIAL = {"is_npu": lambda: False, "Tensor": type("Tensor", (), {}),
           "mooncake_trace_func": lambda stage: lambda function: function}


class StandIn(types.ModuleType):
    """A module that has whatever is asked of it."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        one = importlib.import_module(full) if full.startswith(REAL) else SPECIAL.get(name) or MagicMock()
        setattr(self, name, one)
        return one


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds stand-ins, and packages without their __init__.py."""

    def __init__(self):
        self.top = importlib.util.find_spec("sglang").submodule_search_locations[0]

    def find_spec(self, name, path, target=None):
        ours = name.split(".")[0] in ("torch", "sglang") and not name.startswith(REAL)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if ours else None

    def create_module(self, spec):
        module = StandIn(spec.name)
        module.__path__ = [os.path.join(self.top, PACKAGES[spec.name])] if spec.name in PACKAGES else []
        return module

    def exec_module(self, module):
        pass


def context(port):
    """SGLang's configuration, as far as the transfer classes read it."""
    parallel = SimpleNamespace(
        attn_tp_size=1, attn_tp_rank=0, attn_cp_size=1, attn_cp_rank=0, attn_dcp_size=1, attn_dcp_rank=0,
        attn_dp_size=1, attn_dp_rank=0, dp_size=1, pp_size=1, tp_size=1, nnodes=1, num_dp_ranks=1, dist_init_addr=None,
        pp_group=None, enable_kv_cache_sharding=False, enable_cp_tp_group_sharing=False,
        enable_dsa_cache_layer_split=False, load_balance_method="round_robin")
    return {
        "get_parallel": parallel, "get_serving": SimpleNamespace(host="127.0.0.1", port=1),
        "get_disagg": SimpleNamespace(disaggregation_bootstrap_port=port,
                                      disaggregation_decode_allocation_policy="early"),
        "get_observability": SimpleNamespace(enable_trace=False), "get_device": SimpleNamespace(device="cpu"),
        "get_memory": SimpleNamespace(enable_unified_memory=False), "get_schedule": SimpleNamespace(),
        "get_spec": SimpleNamespace(speculative_algorithm=None)}


class Rank:
    """A rank's memory, filled from a seed, and its manager."""

    def __init__(self, mode, port, page_bytes=PAGE_BYTES):
        from sglang.srt.disaggregation.base.conn import KVArgs, StateType
        from sglang.srt.disaggregation.common import conn
        from sglang.srt.disaggregation.mooncake import conn as mooncake
        from sglang.srt.disaggregation.utils import DisaggregationMode

        from kvcl import sglang_disagg
        for name, value in context(port).items():
            for module in (conn, mooncake, sglang_disagg):
                if hasattr(module, name):
                    setattr(module, name, lambda value=value: value)
        conn.linear_attn_tp_size = lambda: 1
        self.kv = [contents(mode, f"kv{i}", PAGES * page_bytes) for i in range(2 * LAYERS)]
        self.states = [contents(mode, f"state{i}", ROWS * size) for i, size in enumerate(STATES)]
        self.aux = [contents(mode, f"aux{i}", ROWS * size) for i, size in enumerate(AUX)]
        args = KVArgs()
        args.engine_rank = args.gpu_id = args.pp_rank = args.system_dp_rank = args.prefill_start_layer = 0
        args.prefill_end_layer, args.kv_cache_dtype_str, args.page_size = LAYERS, "bfloat16", 64
        args.is_hybrid_mla_backend, args.ib_device, args.rust_http_port = False, None, None
        args.mla_compression_ratios, args.swa_kv_cache_layout = None, None
        args.kv_head_num = args.total_kv_head_num = 2
        args.kv_data_ptrs, args.kv_data_lens = places(self.kv)
        args.kv_item_lens, args.kv_layer_ids = [page_bytes] * (2 * LAYERS), []
        args.aux_data_ptrs, args.aux_data_lens = places(self.aux)
        args.aux_item_lens = list(AUX)
        args.state_types = [StateType.MAMBA]
        ptrs, lens = places(self.states)
        args.state_data_ptrs, args.state_data_lens, args.state_item_lens = [ptrs], [lens], [list(STATES)]
        args.state_layer_ids = args.state_dim_per_tensor = args.state_slice_outer_counts = [[]]
        args.state_conv_shard_groups = [[]]
        self.manager = sglang_disagg.KVCLKVManager(args, DisaggregationMode(mode),
                                                   SimpleNamespace(enable_pd_role_switch=False), False)


def contents(mode, name, size):
    """Bytes that both sides can tell, aligned to pages."""
    raw = np.empty(size + 4096, dtype=np.uint8)
    at = -raw.ctypes.data % 4096
    out = raw[at:at + size]
    out[:] = np.random.default_rng([ord(c) for c in f"{mode} {name}"]).integers(0, 256, size, dtype=np.uint8)
    return out


def places(arrays):
    return [one.ctypes.data for one in arrays], [one.nbytes for one in arrays]


def say(**what):
    print(json.dumps(what), flush=True)


def concluded(one, wanted, seconds=60.0):
    """Poll as the scheduler does, until the state is at least wanted, or Failed (0)."""
    end = time.monotonic() + seconds
    while (state := int(one.poll())) not in (0, *range(wanted, 5)):
        if time.monotonic() > end:
            return f"still {state}"
        time.sleep(0.005)
    return state


def reason(one):
    try:
        one.failure_exception()
    except Exception as error:
        return str(error)


def prefill():
    """A prefill engine: its bootstrap server, and a rank that sends what it is told to."""
    from kvcl.sglang_disagg import KVCLKVBootstrapServer, KVCLKVSender
    port = free_port()
    server = KVCLKVBootstrapServer("127.0.0.1", port)
    until(lambda: answers(port))
    rank = Rank("prefill", port)
    say(port=port)
    senders = {}
    for line in sys.stdin:
        told = json.loads(line)
        room = told["room"]
        if room not in senders:
            senders[room] = KVCLKVSender(rank.manager, f"127.0.0.1:{port}", room)
        sender, pages = senders[room], told.get("pages", [])
        if pages:
            sender.init(len(pages), told["aux"])
            state = concluded(sender, 2)  # WaitingForInput: the decode rank has told where to
            half = len(pages) // 2
            if state == 2:
                sender.send(np.array(pages[:half], dtype=np.int32))
                sender.send(np.array(pages[half:], dtype=np.int32), [[told["state"]]])
        state = concluded(sender, told.get("until", 4))
        say(state=state, why=reason(sender) if state == 0 else None)
        if state == 4:
            sender.clear()
    server.close()


class Prefill:
    """That process."""

    def __init__(self):
        self.child = subprocess.Popen([sys.executable, __file__, "prefill"], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
        self.port = self.answer()["port"]
        self.address = f"127.0.0.1:{self.port}"

    def answer(self):
        while not (line := self.child.stdout.readline()).startswith("{"):  # what else SGLang prints
            assert line, "the prefill process has ended"
        return json.loads(line)

    def tell(self, **what):
        self.child.stdin.write(json.dumps(what) + "\n")
        self.child.stdin.flush()

    def end(self):
        self.child.kill()
        self.child.wait()


def free_port():
    import socket
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def answers(port):
    import requests
    try:
        return requests.get(f"http://127.0.0.1:{port}/health", timeout=2).status_code == 200
    except requests.RequestException:
        return False


def until(what, seconds=60):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def receive(rank, address, room, pages, aux=0, state=0):
    """A request of the decode engine, up to the point where it waits for its bytes."""
    from kvcl.sglang_disagg import KVCLKVReceiver
    until(lambda: rank.manager.try_ensure_parallel_info(address))
    receiver = KVCLKVReceiver(rank.manager, address, room)
    receiver.init(0)
    receiver.send_metadata(np.array(pages, dtype=np.int32), aux, [[state]])
    return receiver


def decode_alone(address, page_bytes, room):
    """Another decode engine: it asks for pages, and says how that ended."""
    rank = Rank("decode", 1, page_bytes)
    receiver = receive(rank, address, room, [1, 2])
    say(asked=True)
    state = concluded(receiver, 4)
    say(state=state, why=reason(receiver) if state == 0 else None)


def other_decode(address, page_bytes, room):
    child = subprocess.Popen([sys.executable, __file__, "decode", address, str(page_bytes), str(room)],
                             stdout=subprocess.PIPE, text=True)
    return child, lambda: json.loads(next(line for line in child.stdout if line.startswith("{")))


def check(what, good, seen=""):
    print(f"{'ok  ' if good else 'FAIL'} {what}{'' if good else f': {seen}'}", flush=True)


def rows(array, size):
    return array.reshape(-1, size)


def check_bytes(rank, requests):
    """requests: (source pages, target pages, source rows of aux and state, target rows)."""
    for kind, arrays, sizes, which in (("pages", rank.kv, [PAGE_BYTES] * 2 * LAYERS, 0),
                                       ("metadata", rank.aux, AUX, 1), ("states", rank.states, STATES, 2)):
        good = True
        name = {"pages": "kv", "metadata": "aux", "states": "state"}[kind]
        for i, (array, size) in enumerate(zip(arrays, sizes)):
            wanted = rows(contents("decode", f"{name}{i}", array.nbytes), size)
            theirs = rows(contents("prefill", f"{name}{i}", array.nbytes), size)
            for request in requests:
                source, target = request[which]
                wanted[target] = theirs[source]
            good = good and np.array_equal(rows(array, size), wanted)
        check(f"{kind}: what was sent is there, and nothing beside it was written", good)


def whole_requests(rank, first):
    sent = []
    for room, (source, target, one, other) in enumerate((([3, 4, 5, 9, 20, 21], [7, 8, 9, 1, 30, 31], 1, 5),
                                                         ([0, 31, 2], [16, 17, 18], 2, 0)), 100):
        receiver = receive(rank, first.address, room, target, other, other)
        first.tell(room=room, pages=source, aux=one, state=one)
        states = concluded(receiver, 4), first.answer()["state"]
        check(f"request {room} is sent, in two parts", states == (4, 4), states)
        receiver.clear()
        sent.append(((source, target), ([one], [other]), ([one], [other])))
    check_bytes(rank, sent)
    check("no request is waited for", not rank.manager._waiting, rank.manager._waiting)


def what_goes_wrong(rank, first):
    receiver = receive(rank, first.address, 200, [1, PAGES])  # a page behind the pool
    first.tell(room=200, pages=[1, 2], aux=0, state=0)
    state, theirs = concluded(receiver, 4), first.answer()
    why = reason(receiver)
    check("a page outside the pool fails the request, on both sides", state == theirs["state"] == 0, (state, theirs))
    check("and both say why", all("not registered there" in one for one in (why, theirs["why"])), (why, theirs))
    target = receive(rank, first.address, 201, [2, 3], 3, 3)
    first.tell(room=201, pages=[10, 11], aux=3, state=3)
    states = concluded(target, 4), first.answer()["state"]
    check("the next request of the same decode rank is sent", states == (4, 4), states)
    target.clear()

    child, answer = other_decode(first.address, 2 * PAGE_BYTES, 900)
    answer()
    first.tell(room=900, pages=[1, 2], aux=0, state=0)
    there, here = answer(), first.answer()
    check("pages of another size are refused, by name", there["state"] == here["state"] == 0 and
          "KV buffer 0 has 4096 bytes here and 8192 bytes" in there["why"], (there, here))
    child.wait()

    aborted = receive(rank, first.address, 202, [4, 5])
    first.tell(room=202, until=2)
    first.answer()
    aborted.abort()
    first.tell(room=202)
    state, why = first.answer()["state"], reason(aborted)
    check("an abort of the decode engine ends the request in the prefill rank", state == 0 and "Abort" in why,
          (state, why))

    rank.manager.waiting_timeout = 1.0
    late = receive(rank, first.address, 203, [4, 5])
    state, why = concluded(late, 4, 20), reason(late)
    rank.manager.waiting_timeout = 300.0
    check("a request for which nothing comes fails at its deadline", state == 0 and "timed out" in why, (state, why))


def dead_ranks(rank, first):
    child, answer = other_decode(first.address, PAGE_BYTES, 901)
    answer()
    first.tell(room=901, until=2)  # it knows where to
    first.answer()
    child.kill()
    child.wait()
    first.tell(room=901, pages=[1, 2], aux=0, state=0)
    told = first.answer()
    check("a decode rank that was killed fails its request in the prefill rank", told["state"] == 0, told)

    waiting = [receive(rank, first.address, room, [4, 5]) for room in (301, 302)]
    first.tell(room=301, until=2)
    first.answer()
    first.end()
    begun = time.monotonic()
    states = [concluded(one, 4, 30) for one in waiting]
    took, whys = time.monotonic() - begun, [reason(one) for one in waiting]
    check("a prefill rank that was killed fails the requests that wait for it", states == [0, 0], states)
    check("because it has ended, and not by a deadline or a heartbeat", all("has ended" in one for one in whys), whys)
    print(f"noticed after {took:.1f} s", flush=True)
    again = Prefill()
    receiver = receive(rank, again.address, 303, [24, 25], 6, 6)
    again.tell(room=303, pages=[12, 13], aux=6, state=6)
    states = concluded(receiver, 4), again.answer()["state"]
    check("a prefill engine that comes later is used", states == (4, 4), states)
    receiver.clear()
    again.end()


def plugin(folder):
    """SGLang finds the backend by its entry point."""
    subprocess.run([sys.executable, "-m", "kvcl.sglang_plugin", folder], check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run([sys.executable, __file__, "plugin"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": f"{folder}:{os.environ['PYTHONPATH']}"})
    check("SGLang finds the backend by its entry point", done.returncode == 0, done.stderr[-2000:])


def plugin_is_found():
    from sglang.srt.managers import disagg_service
    from sglang.srt.plugins import load_plugins
    load_plugins()
    from sglang.srt.arg_groups.choices import DISAGG_TRANSFER_BACKEND_CHOICES
    from sglang.srt.disaggregation.utils import KVClassType, TransferBackend, get_kv_class
    assert "kvcl" in DISAGG_TRANSFER_BACKEND_CHOICES
    backend = TransferBackend("kvcl")
    for kind in KVClassType:
        one = get_kv_class(backend, kind)
        assert one is not None and one is disagg_service.get_kv_class(backend, kind), kind
        assert kind == KVClassType.KVARGS or one.__module__ == "kvcl.sglang_disagg", kind
    assert disagg_service.rust_server_serves_kv_bootstrap("kvcl")
    assert get_kv_class(TransferBackend.FAKE, KVClassType.SENDER).__name__ == "FakeKVSender"


def main():
    os.environ.setdefault("SGLANG_HOST_IP", "127.0.0.1")
    sys.meta_path.insert(0, Finder())
    logging.Logger.warning_once = logging.Logger.warning  # as sglang/__init__.py does
    if sys.argv[1:2] == ["plugin"]:
        return plugin_is_found()
    if sys.argv[1:2] == ["prefill"]:
        return prefill()
    if sys.argv[1:2] == ["decode"]:
        return decode_alone(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    plugin(os.path.abspath("plugin"))
    first = Prefill()
    rank = Rank("decode", 1)
    whole_requests(rank, first)
    what_goes_wrong(rank, first)
    dead_ranks(rank, first)
    print("done", flush=True)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # SGLang's threads do not end
