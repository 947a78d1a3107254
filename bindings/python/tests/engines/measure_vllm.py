"""Figures of contrib/doc/vllm, by hand, in a folder that has the model (model.py) and in run_vllm.sh's environment:

    measure_vllm.py tier       chunks of 256 KiB to and from KVCLTier and vLLM's own fs tier on /dev/shm
    measure_vllm.py ttft       the first token of 1,500-token prompts that another process stored: computed, loaded by
                               KVCLConnector, by vLLM's ExampleConnector on /dev/shm
    measure_vllm.py handover   the first token of 2,049-token prompts that another engine computed, beyond the time of
                               computing it: KVCLConnector and NixlConnector
    measure_vllm.py ahead [TOKENS]   what remains when the prefill engine has ended, until the decode engine has the
                               first token: by its answer's parameters, the same with by_layer, and sent to both engines
                               at once; and the whole time, from the request to that token

Both sides run in turns; each line has the medians and their ratio.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from types import SimpleNamespace as NS

import engine

CHUNK, CHUNKS, TURNS = 256 * 1024, 64, 15
PROMPTS, HANDOVERS = 11, 40


# ---- the tier ----


def tiers(store, folder, view):
    """Both tiers over the same memory."""
    from kvcl.vllm import KVCLTier
    from vllm.v1.kv_offload.config import (OffloadingCacheConfig, OffloadingConfig, OffloadingGroupConfig,
                                           OffloadingModelConfig, OffloadingParallelConfig)
    from vllm.v1.kv_offload.tiering.fs.manager import FileSystemTierManager
    spec = NS(blocks_per_chunk=1, kv_events_config=NS(enable_kv_cache_events=False), config=OffloadingConfig(
        groups=(OffloadingGroupConfig(128, ("layer",), 0),), worker_kv_bytes_per_block=CHUNK,
        enable_kv_cache_events=False, extra_config={}, engine_id="e", model=OffloadingModelConfig("m", "bfloat16"),
        cache=OffloadingCacheConfig(128, 1), parallel=OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, True)))
    ours = KVCLTier(spec, view, "KVCLTier", **store)
    assert engine.until(lambda: ours._jobs._job.is_open)
    return {"KVCL": ours, "fs": FileSystemTierManager(spec, view, "fs", root_dir=folder)}


def transfer(tier, number, keys, chunks, load):
    import numpy as np
    from vllm.v1.kv_offload.base import ReqContext
    from vllm.v1.kv_offload.tiering.base import TransferJob
    job = TransferJob(number, keys, np.array(chunks, dtype=np.int32), load, ReqContext("r"))
    begun = time.perf_counter()
    (tier.submit_load if load else tier.submit_store)(job)
    while True:
        done = list(tier.get_finished_jobs())
        if done:
            assert done[0].success, done
            return time.perf_counter() - begun
        time.sleep(0.00005)


def tier(how):
    import mmap

    import numpy as np
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        with open(f"{folder}/memory", "w+b") as file:
            file.truncate(2 * CHUNKS * CHUNK)
            memory = mmap.mmap(file.fileno(), 0)
        rows = np.frombuffer(memory, dtype=np.int8).reshape(2 * CHUNKS, CHUNK)
        rows[:] = np.random.default_rng(1).integers(-128, 127, rows.shape, dtype=np.int8)
        if how == "client":
            server = engine.Server(block=CHUNK, pool="1G")
            both = tiers({"store": server.file}, folder, memoryview(rows))
        else:
            both = tiers({"pool": "1G"}, folder, memoryview(rows))
        times = {name: ([], []) for name in both}
        for turn in range(TURNS):
            keys = [os.urandom(32) + bytes(4) for _ in range(CHUNKS)]
            for name, one in sorted(both.items(), reverse=turn % 2 == 1):
                times[name][0].append(transfer(one, 2 * turn, keys, range(CHUNKS), False))
                rows[CHUNKS:] = 0
                times[name][1].append(transfer(one, 2 * turn + 1, keys, range(CHUNKS, 2 * CHUNKS), True))
                assert (rows[CHUNKS:] == rows[:CHUNKS]).all()
        for i, what in enumerate(("store", "load")):
            ours, fs = (statistics.median(times[name][i]) for name in ("KVCL", "fs"))
            print(f"tier ({how}): {what} {CHUNKS} chunks: KVCL {ours * 1e3:.2f} ms, fs {fs * 1e3:.2f} ms, "
                  f"{fs / ours:.2f} times", flush=True)
    os._exit(0)


# ---- engines in processes of their own, which answer lines of JSON ----


class Child:
    def __init__(self, *args, env=None):
        self.process = subprocess.Popen([sys.executable, __file__, "child", *args], stdin=subprocess.PIPE, text=True,
                                        stdout=subprocess.PIPE, env={**os.environ, **(env or {})})
        self.ask(None)

    def ask(self, what):
        self.send(what)
        return self.answer()

    def send(self, what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def answer(self):
        while True:
            line = self.process.stdout.readline()
            assert line, "the engine has ended"
            if line.startswith("ANSWER "):
                return json.loads(line[7:])

    def end(self):
        self.process.kill()
        self.process.wait()


def config(kind, role, where):
    from vllm.config import KVTransferConfig
    if kind == "none":
        return {}
    given = {"kvcl": {"kv_connector": "KVCLConnector", "kv_connector_module_path": "kvcl.vllm",
                      "kv_connector_extra_config": {"store": where, "match_timeout": 10.0,
                                                    "by_layer": os.environ.get("MEASURE_BY_LAYER", "no")}},
             "example": {"kv_connector": "ExampleConnector",
                         "kv_connector_extra_config": {"shared_storage_path": where}},
             "nixl": {"kv_connector": "NixlConnector", "kv_buffer_device": "cpu"}}[kind]
    return {"kv_transfer_config": KVTransferConfig(kv_role=role, **given)}


def served(llm):
    """The engine's loop as that of vLLM's own process: after a step with nothing to compute it sleeps 1 ms."""
    core = llm.llm_engine.engine_core.engine_core
    step = core.step_fn

    def stepped():
        outputs, executed = step()
        if not executed and core.scheduler.has_unfinished_requests():
            time.sleep(0.001)
        return outputs, executed

    core.step_fn = stepped


def child(kind, role, where):
    from vllm import LLM
    longest = int(os.environ.get("MEASURE_LONGEST", "2560"))
    llm = LLM("model", max_model_len=longest, enforce_eager=True, **config(kind, role, where))
    totals = {}
    if kind == "kvcl":
        scheduler, worker = engine.sides(llm)
        totals = engine.count(worker)
        if "MEASURE_LONGEST" in os.environ:
            served(llm)
        engine.until(lambda: engine.generate(llm, [[5, 6, 7]], 1) and (
            scheduler._plan.peers or worker._transfers.peers if where == "none"
            else scheduler._link.ready() and worker._link.ready()))
    for line in sys.stdin:
        given = json.loads(line)
        answer = None
        if given is not None:
            begun = time.perf_counter()
            _, cached, params = engine.generate(llm, [given["prompt"]], 1, params=[given.get("params")])
            answer = {"seconds": time.perf_counter() - begun, "cached": cached[0], "params": params[0],
                      "ended": time.perf_counter()}
            answer.update((name, value + worker._transfers.counts[name]) for name, value in totals.items())
            if given.get("forget"):
                engine.forget(llm)
        print("ANSWER " + json.dumps(answer), flush=True)


def prompt(n, salt):
    return [(7 * i + 13 * salt * (i + 1)) % 900 + 3 for i in range(n)]


def ttft():
    store = engine.Server(pool="1G")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        kinds = {"none": "", "kvcl": store.file, "example": folder}
        for kind in ("kvcl", "example"):
            first = Child(kind, "kv_both", kinds[kind])
            for i in range(PROMPTS):
                first.ask({"prompt": prompt(1500, i), "forget": True})
            first.end()
        second = {kind: Child(kind, "kv_both", where) for kind, where in kinds.items()}
        for one in second.values():
            one.ask({"prompt": prompt(1500, 99)})  # warm
        times = {kind: [] for kind in kinds}
        for i in range(PROMPTS):
            for kind, one in second.items():
                answer = one.ask({"prompt": prompt(1500, i), "forget": True})
                times[kind].append(answer["seconds"])
                assert kind == "none" or answer["cached"] >= 1400, answer
        middle = {kind: statistics.median(each) for kind, each in times.items()}
        print("first token of 1,500 tokens: "
              + ", ".join(f"{kind} {each * 1e3:.1f} ms" for kind, each in middle.items())
              + f"; recompute/KVCL {middle['none'] / middle['kvcl']:.2f}, "
              f"Example/KVCL {middle['example'] / middle['kvcl']:.2f}", flush=True)
        for one in second.values():
            one.end()
    store.end()
    os._exit(0)


def tenth(values):
    return statistics.quantiles(values, n=10)[0]


def handover():
    first, second, times = {}, {}, {}
    for i, kind in enumerate(("kvcl", "nixl")):
        for j, (where, role) in enumerate(((first, "kv_producer"), (second, "kv_consumer"))):
            where[kind] = Child(kind, role, "none", env={"VLLM_NIXL_SIDE_CHANNEL_PORT": str(5600 + 10 * i + j)})
        times[kind] = []
    asked = {"kvcl": {"do_remote_decode": True},
             "nixl": {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None,
                      "remote_block_ids": None, "remote_host": None, "remote_port": None}}
    for i in range(HANDOVERS + 2):
        for kind in sorted(times, reverse=i % 2 == 1):
            params = first[kind].ask({"prompt": prompt(2049, i), "params": asked[kind]})["params"]
            whole = second[kind].ask({"prompt": prompt(2049, i), "params": params})
            first[kind].ask({"prompt": prompt(2049, 1000 + i)})  # the processor's caches are as before
            again = second[kind].ask({"prompt": prompt(2049, i), "forget": True})  # all but the last token is there
            if i >= 2:
                times[kind].append((whole["seconds"] * 1e3, again["seconds"] * 1e3))
    print("handover of 2,049 tokens beyond computing:", flush=True)
    for what, of in (("median of the differences", lambda pairs: statistics.median(a - b for a, b in pairs)),
                     ("difference of the fastest tenths",  # which other programs delay least
                      lambda pairs: tenth(a for a, _ in pairs) - tenth(b for _, b in pairs))):
        ours, nixl = (of(times[kind]) for kind in ("kvcl", "nixl"))
        print(f"  {what}: KVCL {ours:.2f} ms, NIXL {nixl:.2f} ms, {nixl / ours:.2f} times as fast", flush=True)
    for one in [*first.values(), *second.values()]:
        one.end()
    os._exit(0)


def ahead(tokens="2049"):
    """The engines' clocks are the machine's own."""
    tokens = int(tokens)
    env = {"MEASURE_LONGEST": str(max(2560, tokens + 64))}
    first = {how: Child("kvcl", "kv_producer", "none", env={**env, "MEASURE_BY_LAYER": how}) for how in ("no", "yes")}
    second = Child("kvcl", "kv_consumer", "none", env=env)
    peers = first["yes"].ask({"prompt": prompt(300, 998), "params": {"do_remote_decode": True}})["params"]
    assert peers["kvcl_ahead"], peers
    loaded = second.ask({"prompt": prompt(300, 998), "params": peers, "forget": True})["loaded_blocks"]
    ways = {"by the answer": first["no"], "with by_layer": first["yes"], "at once": first["yes"]}
    rest, whole = ({how: [] for how in ways} for _ in range(2))
    for i in range(HANDOVERS + 2):
        for salt, how in enumerate(sorted(ways, reverse=i % 2 == 1)):
            ask, begun = {"prompt": prompt(tokens, 3 * i + salt)}, time.perf_counter()
            if how == "at once":
                ways[how].send({**ask, "params": {"do_remote_decode": True, "kvcl_id": f"request {i}"}})
                second.send({**ask, "params": {"do_remote_prefill": True, "kvcl_id": f"request {i}", "kvcl_ahead": True,
                                               "kvcl_peers": peers["kvcl_peers"]}, "forget": True})
                done, token = ways[how].answer(), second.answer()
            else:
                done = ways[how].ask({**ask, "params": {"do_remote_decode": True}})
                token = second.ask({**ask, "params": done["params"], "forget": True})
            assert token["loaded_blocks"] - loaded >= tokens // 128 and not token["failed_blocks"], token
            loaded = token["loaded_blocks"]
            if i >= 2:
                rest[how].append((token["ended"] - done["ended"]) * 1e3)
                whole[how].append((token["ended"] - begun) * 1e3)
    for what, times in (("after the prefill engine's end", rest), ("from the request on", whole)):
        for name, of in (("median", statistics.median), ("fastest tenth", tenth)):
            print(f"first token of {tokens:,} tokens, {what}, {name}: "
                  + ", ".join(f"{how} {of(each):.2f} ms" for how, each in times.items()), flush=True)
    for one in [*first.values(), second]:
        one.end()
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1] == "child":
        child(*sys.argv[2:])
    elif sys.argv[1] == "tier":
        tier(*(sys.argv[2:] or ["pool"]))
    else:
        {"ttft": ttft, "handover": handover, "ahead": ahead}[sys.argv[1]](*sys.argv[2:])
