"""Whole engines of SGLang on a CPU, prefill and decode apart over KVCL: what they generate is what one engine alone
generates, also with a new prefill or decode engine after the old one's scheduler was killed in the middle of a request.

Arguments: the model's folder. With a role (alone, prefill, decode) this is one engine, which reads requests as JSON
lines and answers each by a line.
"""

import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time

from sglang.srt.mem_cache.pool_host import base

# Else no host pool is made where less than 10 GB are free. The engine's processes import this file too.
base.HICACHE_HOST_MEMORY_RESERVE_BYTES = 0
PROMPTS = [[(7 * i + s) % 1000 + 3 for i in range(n)] for s, n in ((0, 700), (5, 300), (9, 128), (2, 17))]
LIMIT = 600  # seconds, for anything that hangs


# ---- one engine ----

def serve(role, model, port):
    import sglang
    apart = {} if role == "alone" else dict(
        disaggregation_mode=role, disaggregation_transfer_backend="kvcl", disaggregation_bootstrap_port=port,
        num_reserved_decode_tokens=64)
    engine = sglang.Engine(
        model_path=model, device="cpu", attention_backend="torch_native", sampling_backend="pytorch",
        disable_overlap_schedule=True, mem_fraction_static=0.3, max_total_tokens=4096, disable_cuda_graph=True,
        hicache_ratio=2.0, disable_radix_cache=True, skip_server_warmup=True, page_size=64, log_level="info", **apart)
    say({"pid": scheduler_of(os.getpid())})
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            outs = engine.generate(input_ids=asked["prompts"], bootstrap_host="127.0.0.1", bootstrap_port=port,
                                   bootstrap_room=asked["rooms"],
                                   sampling_params={"temperature": 0, "max_new_tokens": asked["tokens"]})
            say({"tokens": [out["output_ids"] for out in outs],
                 "ends": [out["meta_info"]["finish_reason"] for out in outs]})
        except Exception as error:
            say({"error": str(error)})
    os._exit(0)


def say(what):
    print("@" + json.dumps(what), flush=True)


def scheduler_of(pid):
    """The process of an engine that has its KV cache."""
    for child in open(f"/proc/{pid}/task/{pid}/children", encoding="ascii").read().split():
        name = open(f"/proc/{child}/cmdline", encoding="utf-8").read()
        if "scheduler" in name:
            return int(child)
    return 0


# ---- the test ----

class Engine:
    """A process with an engine, and its scheduler's process."""

    def __init__(self, role, port):
        self.role = role
        self.log = open(f"{role}.{time.monotonic_ns()}.engine.log", "w", encoding="utf-8")
        self.process = subprocess.Popen([sys.executable, __file__, sys.argv[1], role, str(port)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.log, start_new_session=True)

    def ready(self):
        first = self.answer()
        assert first and first["pid"], f"{self.role}: the engine did not start: see {self.log.name}"
        self.scheduler = first["pid"]
        return self

    def ask(self, prompts, rooms, tokens):
        text = json.dumps({"prompts": prompts, "rooms": rooms, "tokens": tokens})
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, limit=LIMIT):
        """The next answer; None: the engine has ended."""
        until = time.monotonic() + limit
        while select.select([self.process.stdout], [], [], max(0, until - time.monotonic()))[0]:
            line = self.process.stdout.readline()
            if not line:
                return None
            if line.startswith(b"@"):
                return json.loads(line[1:])
        raise TimeoutError(f"{self.role}: no answer in {limit} s")

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


class Room:
    """Numbers of requests."""
    last = 1000

    @classmethod
    def some(cls, n):
        cls.last += n
        return list(range(cls.last - n, cls.last))


def check(what, good, *more):
    print("ok  " if good else "FAIL", what, *([] if good else more), flush=True)


def hand_over(prefill, decode, tokens=8):
    rooms = Room.some(len(PROMPTS))
    prefill.ask(PROMPTS, rooms, tokens)
    decode.ask(PROMPTS, rooms, tokens)
    return prefill.answer(), decode.answer()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def is_failure(answer):
    """Whether each request of an answer ended by an error."""
    return "error" in answer or all(end["type"] == "abort" for end in answer["ends"])


def handed_over(what, prefill, decode, wanted):
    first, got = hand_over(prefill, decode)
    check(what, got.get("tokens") == wanted and [one[:1] for one in first["tokens"]] == [one[:1] for one in wanted],
          first, got, wanted)


def kill_prefill(prefill, decode, rnd):
    """Its scheduler stands still while requests wait for it, and is killed."""
    os.kill(prefill.scheduler, signal.SIGSTOP)
    rooms = Room.some(len(PROMPTS))
    prefill.ask(PROMPTS, rooms, 8)
    decode.ask(PROMPTS, rooms, 8)
    time.sleep(rnd.uniform(0, 4))  # whatever they have done by then
    prefill.kill()
    begun = time.monotonic()
    got = decode.answer()
    check("requests fail in the decode engine when the prefill engine is killed", got is not None and is_failure(got),
          got)
    print(f"noticed after {time.monotonic() - begun:.1f} s: {got.get('error') or got['ends'][0]}", flush=True)


def kill_decode(prefill, decode):
    """While it generates: the prefill engine has nothing to do with these requests any more."""
    rooms = Room.some(len(PROMPTS))
    prefill.ask(PROMPTS, rooms, 900)
    decode.ask(PROMPTS, rooms, 900)
    check("the prefill engine ends its part", "tokens" in (prefill.answer() or {}))
    decode.kill()


def main():
    seed = int(os.environ.get("TEST_SEED") or time.time())
    print(f"TEST_SEED={seed}", flush=True)
    rnd = random.Random(seed)
    port = free_port()
    engines = [Engine("alone", port), Engine("prefill", port), Engine("decode", port)]
    try:
        alone, prefill, decode = [engine.ready() for engine in engines]
        alone.ask(PROMPTS, None, 8)
        wanted = alone.answer()["tokens"]
        alone.kill()
        for _ in range(2):
            handed_over("two engines generate what one does", prefill, decode, wanted)
        kill_prefill(prefill, decode, rnd)
        engines += [Engine("prefill", port), Engine("decode", port)]
        prefill2, decode2 = [engine.ready() for engine in engines[3:]]
        handed_over("a new prefill engine hands over to the old decode engine", prefill2, decode, wanted)
        kill_decode(prefill2, decode)
        handed_over("the prefill engine hands over to a new decode engine", prefill2, decode2, wanted)
        print("done", flush=True)
    finally:
        for engine in engines:
            engine.kill()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        serve(sys.argv[2], sys.argv[1], int(sys.argv[3]))
    else:
        main()
