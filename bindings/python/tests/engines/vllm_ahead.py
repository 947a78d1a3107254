"""Prefill and decode apart, both at once: a router has named the request, so the decode engine reads a prompt layer by
layer while the prefill engine computes it, in steps of 200 tokens. What is generated is what the prefill engine
generates alone. The prefill engine is held between layers until the other one has read what it has announced, so all
but the last layer of the last step is read before it has ended. A prompt that loses its blocks meanwhile, one that
never appears, and one whose engine is killed are computed. Changed on the prefill engine, it changes what is generated.
Before that: the connector's calls on both sides, without engines, layer by layer.

vllm_ahead.py [prefill]
"""

import faulthandler
import json
import os
import signal
import subprocess
import sys
from unittest import mock

import engine
from engine import PART, PROMPTS, check, generate, until
from vllm_calls import LAYERS as NAMES, TOKENS, Blocks, Fake, request
from vllm_handover import SMALL, write

LAYERS, HEADS, BLOCK = 4, 2, 128
OPTIONS = {"store": "none", "handover_timeout": float(engine.LIMIT)}


def number(prompt):
    return -(-len(prompt) // BLOCK)


def known(name):
    engine.until(lambda: os.path.exists(name), engine.LIMIT)
    with open(name, encoding="ascii") as file:
        return json.load(file)


# ---- the calls ----


def calls():
    """Two steps of a prompt, of 40 and 60 tokens. Between its layers the other side takes steps until it has what is
    there."""
    first, second = Fake("kv_producer", store="none", by_layer="yes"), Fake("kv_consumer", store="none")
    first.scheduler.set_xfer_handshake_metadata_pp_aware({(0, 0): first.worker.get_handshake_metadata()})
    peers, counts = list(first.scheduler._plan.peers.values()), engine.count(second.worker)
    for turn, local in enumerate((0, 32)):
        theirs, ours, received = list(range(10, 17)), list(range(40, 47)), set()
        one = request("p", 100, {"do_remote_decode": True, "kvcl_id": f"x{turn}"})
        two = request("d", 100, {"do_remote_prefill": True, "kvcl_id": f"x{turn}", "kvcl_ahead": True,
                                 "kvcl_peers": peers})
        second.scheduler.on_new_request(two)
        tokens, later = second.matched(two, local)
        check("calls: all of the prompt is expected, and no step waits", (tokens, later) == (100 - local, True), tokens)
        second.scheduler.update_state_after_alloc(two, Blocks(ours), tokens)
        for base in (*first.memory.values(), *second.memory.values()):
            base.zero_()
        first.scheduler.on_new_request(one)
        for before, after in ((0, 40), (40, 100)):
            blocks, full = theirs[:-(-after // TOKENS)], -(-after // TOKENS) if after == 100 else after // TOKENS

            def compute(layer, blocks=blocks, full=full):
                for i in range(layer):  # of those that are announced
                    at = local // TOKENS
                    good = until(lambda i=i: received.update(second.step().finished_recving or ()) or bool(
                        (second.memory[NAMES[i]][ours[at:full]] == first.memory[NAMES[i]][theirs[at:full]]).all()))
                    check("calls: a layer is read while the next one is computed", good and not received)
                first.fill(layer, blocks)

            first.step([(one, before)], {"p": after - before}, {"p": blocks}, compute)
        keep, _ = first.scheduler.request_finished_all_groups(one, (theirs,))
        check("calls: the last layer ends the read", keep and until(
            lambda: received.update(second.step().finished_recving or ()) or received == {"d"}), received)
        check("calls: with its bytes", second.same(ours[local // TOKENS:], first, theirs[local // TOKENS:]))
        sent = set()
        check("calls: and the blocks are freed", until(
            lambda: sent.update(first.step().finished_sending or ()) or sent == {"p"}), sent)
        second.scheduler.update_state_after_alloc(two, Blocks(ours), 0)
        second.scheduler.request_finished_all_groups(two, (ours,))
    second.step()
    check("calls: nothing failed", counts["failed_blocks"] == 0 and counts["loaded_blocks"] == 7 + 5 and
          0 < counts["ahead_bytes"] < counts["loaded_bytes"], counts)
    for side in (first.worker, second.worker, first.scheduler, second.scheduler):
        check("calls: nor inside", not side._told, side._told)
        side.shutdown()


# ---- the prefill engine ----


class Held:
    """What a test does to the engine between its layers: `how`, of each ask."""

    def __init__(self, worker):
        self.transfers, self.how, self.prompt, self.held = worker._transfers, "", [], []
        self.ready = self.transfers.layer_ready
        self.transfers.layer_ready = self.layer_ready

    def told(self, header):
        """Bytes that the other engine may have read."""
        from kvcl.vllm import _board
        due = _board.due([0] * LAYERS, header, BLOCK, len(self.prompt), number(self.prompt))
        return sum((end - first) * (blocks - start) for first, end, start, blocks in due) * HEADS * PART // LAYERS

    def layer_ready(self, layer, stream=None):
        rows = self.transfers.leases.board._rows
        last = layer == 1 and any(after == len(self.prompt) for _, after in self.transfers.leases.board._step)
        if self.how == "changed" and layer == 0:
            for base in self.transfers.cache.bases:
                base[:] = bytes(len(base))
        self.ready(layer, stream)
        if self.how == "held" and rows and layer < LAYERS - 1:
            row, = rows.values()
            want = self.told(row.header)
            check(f"ahead: {want} bytes were read", engine.until(lambda: known("read.json") >= want, engine.LIMIT))
            self.held.append(want)
        elif self.how == "lost" and last:
            self.transfers.leases.drop(list(rows))
        elif self.how == "killed" and last:
            os.kill(os.getpid(), signal.SIGKILL)


def prefill():
    llm = engine.start({**OPTIONS, "by_layer": "yes"}, "kv_producer", max_num_batched_tokens=200, max_num_seqs=8)
    scheduler, worker = engine.sides(llm)
    engine.until(lambda: generate(llm, SMALL, 1) and scheduler._plan.peers)
    base, _, _ = generate(llm)
    engine.forget(llm)
    held = Held(worker)
    _, _, params = generate(llm, PROMPTS[3:], 1, params=[{"do_remote_decode": True}])
    write("begun.json", {"base": base, "params": params[0]})
    for turn in range(1000):
        ask = known(f"ask{turn}.json")
        held.how, held.prompt, held.held = ask["how"], PROMPTS[ask["prompts"][0]], []
        generate(llm, [PROMPTS[i] for i in ask["prompts"]], 1, params=ask["params"])
        if ask["forget"]:
            held.how = ""
            engine.forget(llm)
        leases = worker._transfers.leases
        write(f"answer{turn}.json", {"held": held.held, "open": len(leases._open), "late": leases.late,
                                     "failed": any(engine.failures)})


# ---- the decode engine ----


def watched(transfers):
    """read.json: the bytes of loads under way that were read ahead."""
    poll, last = transfers.poll, [0]

    def polled():
        poll()
        read = sum(getattr(move.call, "ahead", 0) for move in transfers._loading)
        if read != last[0]:
            last[0] = read
            write("read.json", read)

    write("read.json", 0)
    transfers.poll = polled


class Router:
    """Sends requests to both engines at once."""

    def __init__(self, llm, peers, counts):
        self.llm, self.peers, self.counts, self.turns = llm, peers, counts, 0

    def ask(self, how, prompts, forget=True, wait=True):
        """What the decode engine has generated, what it has counted meanwhile, and the prefill engine's answer."""
        names = [f"{how} {self.turns} {i}" for i in prompts]
        before = dict(self.counts)
        write(f"ask{self.turns}.json", {"how": how, "prompts": prompts, "forget": forget, "params": [
            {"do_remote_decode": True, "kvcl_id": name} for name in names]})
        out, _, _ = generate(self.llm, [PROMPTS[i] for i in prompts], params=[
            {"do_remote_prefill": True, "kvcl_id": name, "kvcl_peers": self.peers, "kvcl_ahead": True}
            for name in names])
        engine.forget(self.llm)
        answer = known(f"answer{self.turns}.json") if wait else None
        self.turns += 1
        return out, {name: value - before[name] for name, value in self.counts.items()}, answer


def decode(prefiller):
    begun = known("begun.json")
    base, peers = begun["base"], begun["params"]["kvcl_peers"]
    check("ahead: the prefill engine's answer says that it announces", begun["params"]["kvcl_ahead"] is True, begun)
    llm = engine.start(OPTIONS, "kv_consumer")
    scheduler, worker = engine.sides(llm)
    counts = engine.count(worker)
    watched(worker._transfers)
    out, _, _ = generate(llm, PROMPTS[3:], params=[begun["params"]])
    check("ahead: an answer's parameters do as well", out == base[3:] and counts["loaded_blocks"] == 1, (out, counts))
    engine.forget(llm)
    router = Router(llm, peers, counts)
    for i, prompt in enumerate(PROMPTS):
        out, more, answer = router.ask("held", [i])
        check(f"ahead: prompt {i}: it generates what the prefill engine does alone", out == [base[i]], (out, base[i]))
        whole = number(prompt) * HEADS * PART
        check(f"ahead: prompt {i}: all blocks came from the prefill engine", more["loaded_bytes"] == whole, more)
        check(f"ahead: prompt {i}: it was read while it was computed", len(answer["held"]) == 3 * -(-len(prompt) // 200)
              and whole > more["ahead_bytes"] >= max(answer["held"]) > 0 and not answer["failed"], (more, answer))
        check(f"ahead: prompt {i}: what was read is free", [answer["open"], answer["late"]] == [0, 0], answer)
    for how in ("all at once", "again"):  # the second time the prefill engine has all whole blocks
        out, more, answer = router.ask(how, [0, 1, 2, 3], forget=how == "again")
        check(f"ahead: {how}: the same", out == base and more["loaded_blocks"] == 11 and not more["failed_blocks"],
              (out, more))
    out, more, _ = router.ask("changed", [1])
    check("ahead: what is changed on the prefill engine changes what is generated",
          out != [base[1]] and more["loaded_blocks"] == 3, (out, more))
    out, more, _ = router.ask("lost", [0])
    check("ahead: a prompt that loses its blocks meanwhile is computed",
          out == [base[0]] and more["failed_blocks"] == 6 and more["loaded_blocks"] == 0, (out, more))
    worker._options["handover_timeout"] = 3.0
    out, _, _ = generate(llm, PROMPTS[1:2], params=[{"do_remote_prefill": True, "kvcl_id": "none", "kvcl_peers": peers,
                                                     "kvcl_ahead": True}])
    check("ahead: a prompt that never appears is computed", out == [base[1]], out)
    engine.forget(llm)
    worker._options["handover_timeout"] = float(engine.LIMIT)
    out, more, _ = router.ask("killed", [0], wait=False)
    check("ahead: the prefill engine killed meanwhile: computed", out == [base[0]] and more["failed_blocks"] == 6,
          (out, more))
    prefiller.kill()
    check("ahead: by itself", prefiller.wait(engine.LIMIT) == -signal.SIGKILL)
    engine.end()


def main():
    faulthandler.dump_traceback_later(engine.LIMIT, exit=True)
    if sys.argv[1:] == ["prefill"]:
        return prefill()
    with mock.patch("vllm.distributed.parallel_state.get_tensor_model_parallel_rank", lambda: 0):
        calls()
    child = subprocess.Popen([sys.executable, __file__, "prefill"])
    try:
        return decode(child)
    finally:
        child.kill()
        child.wait()


if __name__ == "__main__":
    main()
