"""What the engine tests share: a vLLM engine on the tiny model, with the connector or without, and a kvcl_serve."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads that spin for each other make nothing faster on a busy machine

# Prompts of several blocks of 128 tokens, of two and a part, of one, and of less than one.
PROMPTS = [[(7 * i + s) % 1000 + 3 for i in range(n)] for s, n in ((0, 700), (5, 300), (9, 128), (2, 17))]
HITS = [640, 256, 0, 0]  # tokens of whole blocks before the last token
PART = 128 * 1024        # bytes of a block of the store: 4 layers of 128 tokens of K and V of 64 bf16
LIMIT = 3000             # seconds until a test that hangs is ended

failures, notes = [], []


def check(what, good, more=""):
    """One line a check; end() counts them."""
    print(("ok   " if good else "FAIL ") + what + (f": {more}" if more != "" and not good else ""), flush=True)
    failures.append(not good)


def note(text):
    """A line that a reader of a passed test needs as well: at once, and at the end, where a long log is read."""
    say(text)
    notes.append(text)


def end():
    """The notes, and the line that contrib/ci/count-tests sums; leave without the engine's exit handlers."""
    for text in notes:
        print(f"note {text}")
    print(f"{failures.count(False)} passed, {failures.count(True)} failed, 0 skipped", flush=True)
    os._exit(1 if any(failures) else 0)


class Server:
    """kvcl_serve alone; its clients find it by a file in this folder."""

    def __init__(self, file="store", pool="64M", block=PART, env=None, options=()):
        """env: of a rank of a job, whose others are started beside it: call started() when all are."""
        self.file = os.path.abspath(file)
        self.process = subprocess.Popen([os.environ["TEST_KVCL_SERVE"], "--block", str(block), "--pool", pool,
                                         "--clients", self.file, *options], stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **(env or {})})
        if env is None:
            self.started()

    def started(self):
        assert "blocks of" in self.process.stdout.readline(), "kvcl_serve has not started"

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.process.wait(60)


def job(size, names, **settings):
    """The ranks of a kvcl_serve of so many, a Server each."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = door.getsockname()[1]
    ranks = [Server(name, env={"KVCL_RENDEZVOUS": f"tcp://127.0.0.1:{port}", "KVCL_SIZE": str(size),
                               "KVCL_RANK": str(rank)}, **settings) for rank, name in enumerate(names)]
    for one in ranks:
        one.started()
    return ranks


class Lines:
    """The connector's lines. A filter sees them: vLLM drops the handlers of its loggers when it starts."""

    def __init__(self):
        self.lines = []
        logging.getLogger("vllm.kvcl").addFilter(self)

    def filter(self, record):
        self.lines.append(record.getMessage())
        return True

    def having(self, text):
        return [line for line in self.lines if text in line]


def start(options=None, role="kv_both", model="model", **settings):
    """An LLM; options: of the connector, None: without it."""
    from vllm import LLM
    from vllm.config import KVTransferConfig
    if options is not None:
        settings["kv_transfer_config"] = KVTransferConfig(
            kv_connector="KVCLConnector", kv_connector_module_path="kvcl.vllm", kv_role=role,
            kv_connector_extra_config=options)
    return LLM(model, **{"max_model_len": 2048, **settings}, enforce_eager=True, disable_log_stats=False)


def greedy(tokens):
    from vllm import SamplingParams
    return SamplingParams(temperature=0, max_tokens=tokens)


def seed():
    """Of TEST_SEED, or of the clock; noted."""
    number = int(os.environ.get("TEST_SEED") or time.time_ns() % 1000000)
    note(f"TEST_SEED={number}")
    return number


def generate(llm, prompts=None, tokens=16, params=None):
    """(tokens generated, cached tokens, kv_transfer_params) of each prompt, greedily."""
    from vllm import SamplingParams
    prompts = PROMPTS if prompts is None else prompts
    sampling = [SamplingParams(temperature=0, max_tokens=tokens,
                               extra_args={"kv_transfer_params": one} if one else None)
                for one in (params or [None] * len(prompts))]
    outs = llm.generate([{"prompt_token_ids": one} for one in prompts], sampling, use_tqdm=False)
    return ([list(one.outputs[0].token_ids) for one in outs], [one.num_cached_tokens for one in outs],
            [one.kv_transfer_params for one in outs])


def forget(llm):
    """Empty the engine's own prefix cache: once its blocks are free, which takes steps of the engine."""
    until = time.monotonic() + 60
    while not llm.reset_prefix_cache():
        assert time.monotonic() < until, "blocks are not freed"
        generate(llm, [[5, 6, 7]], 1)


def scheduler_of(llm):
    """The scheduler's connector, of an engine in this process."""
    return llm.llm_engine.engine_core.engine_core.scheduler.connector


def sides(llm):
    """The connector's two instances, of an engine in this process: the scheduler's and the worker's."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group
    return scheduler_of(llm), get_kv_transfer_group()


def count(worker):
    """What the worker's side counts from now on, summed up."""
    totals = dict.fromkeys(worker._transfers.counts, 0)
    take = worker._transfers.take_counts

    def counted():
        for name, value in (counts := take()).items():
            totals[name] += value
        return counts

    worker._transfers.take_counts = counted
    return totals


def until(what, seconds=60):
    """Wait for an event."""
    last = time.monotonic() + seconds
    while not what():
        if time.monotonic() > last:
            return False
        time.sleep(0.02)
    return True


def expected():
    """What vLLM generates without the connector (base.py)."""
    with open("base.json", encoding="ascii") as file:
        return json.load(file)


def say(text):
    print(text, file=sys.stderr, flush=True)
