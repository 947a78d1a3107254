"""An engine is killed with SIGKILL in the middle of a step, in which it generates for one request and has sent the
first layers of another one's blocks. Another engine of the same kvcl_serve goes on meanwhile, and a third one, started
afterwards, reuses blocks. Both generate what an engine alone does, and each block that they load has the bytes that an
engine has computed for it.

vllm_killed.py [victim | other | third STORE]
"""

import faulthandler
import hashlib
import json
import os
import signal
import subprocess
import sys

import engine
from engine import HITS, PART, PROMPTS, check, generate, until

SAVED = PROMPTS[1:]  # of these the killed engine has saved all blocks: three, of which two can be loaded
LAST = PROMPTS[0]    # it is killed while it saves this one's: five
PARTS = 2            # blocks of the store for each of vLLM's: the model's KV heads


class Blocks:
    """Writes a line of each block into NAME.blocks: "begun" when its save begins, "saved" and "loaded", with the sum of
    its bytes, when it has been."""

    def __init__(self, name, worker):
        import kvcl
        self.file = os.open(f"{name}.blocks", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.calls, self.cache = {}, worker._transfers.cache
        for method, what in (("save", "saved"), ("get", "loaded")):
            setattr(kvcl.StoreClient, method, self.posted(getattr(kvcl.StoreClient, method), what))
        for method in ("_save_ended", "_load_ended"):
            setattr(worker._transfers, method, self.ended(getattr(worker._transfers, method)))

    def write(self, *words):
        os.write(self.file, (" ".join(words) + "\n").encode())

    def posted(self, method, what):
        def post(client, keys, cache, ids, **more):
            call = method(client, keys, cache, ids, **more)
            self.calls[id(call)] = call, what, list(keys), list(ids)
            for key in keys if what == "saved" else ():
                self.write("begun", key.hex())
            return call
        return post

    def ended(self, method):
        def end(move):
            done = method(move)
            if done and id(move.call) in self.calls:
                call, what, keys, ids = self.calls.pop(id(move.call))
                for key, block, status in zip(keys, ids, () if call.error else call.result):
                    if status == 0:
                        self.write(what, key.hex(), hashlib.sha256(self.cache.read(block)).hexdigest())
            return done
        return end


def lines(name, what):
    """[[key, sum]...] of an engine."""
    with open(f"{name}.blocks", encoding="ascii") as file:
        return [line.split()[1:] for line in file if line.startswith(what)]


def begin(name, store, **options):
    llm = engine.start({"store": store, "retry": 0.2, "timeout": 60, "match_timeout": 60, **options})
    scheduler, worker = engine.sides(llm)
    check(f"{name}: the store is taken up", until(lambda: scheduler._link.ready() and worker._link.ready()))
    counts = engine.count(worker)
    Blocks(name, worker)
    return llm, worker, counts


def write(name):
    with open(name, "w", encoding="ascii"):
        pass


def victim(store):
    """Ends by SIGKILL; where it cannot, by an AssertionError."""
    base = engine.expected()
    llm, worker, counts = begin("victim", store, by_layer="yes")
    out, _, _ = generate(llm, SAVED)
    assert out == base[1:] and counts["loaded_blocks"] == 0, (out, counts)
    engine.forget(llm)
    assert not worker._transfers._saving and len(lines("victim", "saved")) == 3 * PARTS, counts
    write("victim.ready")
    assert until(lambda: os.path.exists("other.running"), engine.LIMIT)
    transfers, generating = worker._transfers, llm.llm_engine
    ready = transfers.layer_ready
    sent = worker._link._context.stats

    def layer_ready(layer, stream=None):
        ready(layer, stream)
        if layer == 1 and transfers._computing:
            until(lambda: transfers.poll() or sent()["bytes_out"] - before >= 5 * PARTS * PART // 4)
            os.kill(os.getpid(), signal.SIGKILL)

    generating.add_request("short", {"prompt_token_ids": PROMPTS[3]}, engine.greedy(1000))
    while not any(one.outputs[0].token_ids for one in generating.step()):
        pass
    before = sent()["bytes_out"]
    transfers.layer_ready = layer_ready
    generating.add_request("last", {"prompt_token_ids": LAST}, engine.greedy(16))
    while generating.has_unfinished_requests():
        generating.step()
    raise AssertionError("the prompt was computed without a save by layers")


def other(store):
    base = engine.expected()
    llm, _, counts = begin("other", store)
    until(lambda: os.path.exists("victim.ready"), engine.LIMIT)
    rounds = wrong = 0
    while not os.path.exists("checked"):
        out, _, _ = generate(llm, SAVED)
        rounds, wrong = rounds + 1, wrong + (out != base[1:])
        engine.forget(llm)
        write("other.running")
    check("other: while an engine is killed, and after it, it generates the same", wrong == 0, (wrong, rounds))
    check("other: out of the killed engine's blocks", counts["loaded_blocks"] == 2 * rounds, (rounds, counts))
    out, cached, _ = generate(llm)
    check("other: what was being saved is computed", out == base and cached == [0, HITS[1], 0, 0], (out, cached))
    engine.forget(llm)
    out, cached, _ = generate(llm)
    check("other: and found from then on", out == base and cached == HITS, (out, cached))
    check("other: no load and no save has failed", counts["failed_blocks"] == counts["unsaved_blocks"] == 0, counts)
    engine.note(f"{rounds} rounds of the other engine, until it was told of the end of the first")
    engine.end()


def third(store):
    base = engine.expected()
    llm, _, counts = begin("third", store)
    out, cached, _ = generate(llm)
    check("third: it reuses the blocks of both", cached == HITS and counts["loaded_blocks"] == 7, (cached, counts))
    check("third: it generates the same", out == base, out)
    engine.end()


def after(store):
    """What the store has, once the engine is dead."""
    import kvcl
    saved = {key for key, _ in lines("victim", "saved")}
    half = {key for key, in lines("victim", "begun")} - saved
    with kvcl.Context(boot="self") as context:
        client = kvcl.StoreClient(context, block_bytes=PART, timeout=engine.LIMIT)
        client.connect(store.file, engine.LIMIT)
        there = client.wait(client.exists([bytes.fromhex(key) for key in half]))
        check("no block is there that it had sent in part", len(half) == 5 * PARTS and not any(there), there)
        check("all are that it had saved", all(client.wait(client.exists([bytes.fromhex(key) for key in saved]))))


def right():
    """Each block that was loaded has the bytes that an engine had for that key."""
    known = {tuple(one) for name in ("victim", "other", "third") for one in lines(name, "saved")}
    loaded = [tuple(one) for name in ("other", "third") for one in lines(name, "loaded")]
    wrong = sum(one not in known for one in loaded)
    check(f"none of {len(loaded)} loaded blocks has other bytes than were saved", loaded and wrong == 0, wrong)


def main():
    faulthandler.dump_traceback_later(engine.LIMIT, exit=True)
    if len(sys.argv) > 2:
        return {"victim": victim, "other": other, "third": third}[sys.argv[1]](sys.argv[2])
    store, engines = engine.Server(), []

    def start(name):
        engines.append(subprocess.Popen([sys.executable, __file__, name, store.file]))
        return engines[-1]

    try:
        killed, living = start("victim"), start("other")
        killed.wait(engine.LIMIT)
        check("an engine is killed in the middle of a save", killed.returncode == -signal.SIGKILL, killed.returncode)
        if killed.returncode == -signal.SIGKILL:
            after(store)
            write("checked")
            check("the other engine has passed", living.wait(engine.LIMIT) == 0)
            check("the third engine has passed", start("third").wait(engine.LIMIT) == 0)
            right()
    finally:
        for one in engines:
            one.kill()
            one.wait()
        store.end()
    engine.end()


if __name__ == "__main__":
    main()
