"""vLLM's NixlConnector, unmodified, over the KVCL plugin: one engine computes prompts, another one, started apart,
reads their blocks from it and generates. What it generates is what one engine does; blocks that were overwritten before
they are read change it, so the bytes come from there.
"""

import faulthandler
import json
import os
import socket
import subprocess
import sys

import engine
from engine import PROMPTS, check, generate, until

ASK = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None,
       "remote_host": None, "remote_port": None}
BLOCK = 256 * 1024  # bytes of 128 tokens: 4 layers, 2 heads, K and V of 64 bf16
LEASE = 100000  # seconds that the blocks wait for their reader: on a busy machine an engine takes minutes to start


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start(role):
    os.environ["VLLM_NIXL_SIDE_CHANNEL_PORT"] = str(free_port())
    from vllm import LLM
    from vllm.config import KVTransferConfig
    return LLM("model", max_model_len=2048, enforce_eager=True, kv_transfer_config=KVTransferConfig(
        kv_connector="NixlConnector", kv_role=role, kv_buffer_device="cpu",
        kv_connector_extra_config={"backends": ["KVCL"], "kv_lease_duration": LEASE}))


def write(name, what):
    with open(name + ".new", "w", encoding="ascii") as file:
        json.dump(what, file)
    os.rename(name + ".new", name)


def spoil():
    """Numbers in place of the blocks: NaN would spread to other requests."""
    import torch
    from vllm.distributed.kv_transfer import get_kv_transfer_group
    torch.manual_seed(1)
    for cache in get_kv_transfer_group().connector_worker.device_kv_caches.values():
        for one in cache if isinstance(cache, (list, tuple)) else [cache]:
            one.copy_(torch.randn(one.shape[1:]).to(one.dtype).expand(one.shape))


def count_bytes():
    """The list to which each transfer of this engine that has ended adds its bytes."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group
    agent = get_kv_transfer_group().connector_worker.nixl_wrapper
    ask, moved = agent.get_xfer_telemetry, []

    def counted(handle):
        answer = ask(handle)
        moved.append(answer.totalBytes)
        return answer

    agent.get_xfer_telemetry = counted
    return moved


def prefill(spoiled):
    llm = start("kv_producer")
    _, _, params = generate(llm, tokens=1, params=[dict(ASK) for _ in PROMPTS])
    if spoiled:
        spoil()
    write("handover.json", params)
    check("the decode engine has ended", until(lambda: os.path.exists("decoded"), engine.LIMIT))
    engine.forget(llm)  # until it has been told, by each reader, that the blocks are free
    check("every block that was read is free", True)
    engine.end()


def decode(spoiled):
    base = engine.expected()
    llm = start("kv_consumer")
    assert until(lambda: os.path.exists("handover.json"), engine.LIMIT)
    with open("handover.json", encoding="ascii") as file:
        params = json.load(file)
    moved = count_bytes()
    out, _, _ = generate(llm, params=params)
    if spoiled:
        check("blocks that were overwritten change the output", out != base)
    else:
        check("the decode engine generates what one engine does", out == base, out)
    check("all blocks came from the prefill engine", sum(moved) == (6 + 3 + 1 + 1) * BLOCK, moved)
    write("decoded", True)
    engine.end()


def main():
    faulthandler.dump_traceback_later(engine.LIMIT, exit=True)
    if len(sys.argv) > 2:
        return {"prefill": prefill, "decode": decode}[sys.argv[1]](sys.argv[2] == "spoiled")
    status = 0
    for how in ("whole", "spoiled"):
        for name in ("handover.json", "decoded"):
            if os.path.exists(name):
                os.unlink(name)
        sides = [subprocess.Popen([sys.executable, __file__, side, how]) for side in ("prefill", "decode")]
        try:
            status |= any([side.wait(engine.LIMIT) for side in sides[::-1]])
        finally:
            for side in sides:
                side.kill()
    sys.exit(status)


if __name__ == "__main__":
    main()
