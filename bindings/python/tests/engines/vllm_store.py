"""vLLM reuses blocks out of a store. One engine in this process: the store is absent, comes, is poisoned, is killed and
comes again, and what is generated stays that of vLLM without the connector, but where the store was poisoned.
"""

import faulthandler
import os
import random
import signal

import engine
from engine import HITS, check, generate


def poison(file, names, part=engine.PART):
    """Replace the blocks of these keys by noise, as no engine can; file: of the kvcl_serve. Returns how many are there.
    The noise has no NaN: vLLM's attention multiplies what a block had before it was given to a request by 0."""
    import kvcl
    rand = random.Random(7)
    high = (0x3e, 0x3f, 0xbe, 0xbf)
    noise = b"".join(bytes((rand.randrange(256), rand.choice(high))) for _ in range(part // 2))
    with kvcl.Context(boot="self") as context:
        client = kvcl.StoreClient(context, block_bytes=part)
        client.connect(file)
        cache = context.cache("noise", kvcl.Layout.bytes(1, part))
        cache.write(0, noise)
        there = [name for name, has in zip(names, client.wait(client.exists(names))) if has]
        client.wait(client.remove(there))
        for name in there:
            client.wait(client.put([name], cache, [0]))
        return len(there)


def record_keys():
    """A dict that gets the keys which the connector asks for from now on."""
    import kvcl.vllm._fields as fields
    keys, seen = fields.keys, {}

    def recorded(root, hashes, slices):
        out = keys(root, hashes, slices)
        seen.update(dict.fromkeys(out))
        return out

    fields.keys = recorded
    return seen


def main():
    faulthandler.dump_traceback_later(engine.LIMIT, exit=True)
    base, lines = engine.expected(), engine.Lines()
    llm = engine.start({"store": os.path.abspath("store"), "retry": 0.2})
    scheduler, worker = engine.sides(llm)
    seen = record_keys()
    totals = engine.count(worker)

    def again():
        engine.forget(llm)
        before = totals["loaded_blocks"]
        out, cached, _ = generate(llm)
        return out, cached, totals["loaded_blocks"] - before

    out, cached, _ = generate(llm)
    check("the engine serves before there is a store", out == base and cached == [0] * 4, (out, cached))
    check("it says so, once for each side", len(lines.having("no store yet")) == 2, lines.lines)

    store = engine.Server()
    check("the store is taken up", engine.until(lambda: scheduler._link.ready() and worker._link.ready()))
    out, cached, loaded = again()
    check("an empty store has nothing", out == base and loaded == 0, (out, cached, loaded))
    out, cached, loaded = again()
    check("blocks come from the store", cached == HITS and loaded == 7, (cached, loaded))
    check("loaded, it generates the same", out == base, out)

    for mode in ("sync", "async"):
        scheduler._options["load"] = mode
        out, cached, loaded = again()
        check(f"{mode} loads: the same", out == base and cached == HITS and loaded == 7, (out, cached, loaded))

    engine.forget(llm)
    check("the cache is reset", llm.reset_prefix_cache(reset_connector=True))
    for turn, expected in (("finds nothing", 0), ("finds what it has stored since", 7)):
        out, cached, loaded = again()
        check(f"after a reset it {turn}", out == base and loaded == expected, (out, cached, loaded))

    check("all blocks are poisoned", poison(store.file, list(seen)) >= 14)
    out, cached, loaded = again()
    check("poisoned blocks change what is generated", out[0] != base[0] and out[1] != base[1] and loaded == 7,
          (out, cached, loaded))
    check("requests without loaded blocks are as they were", out[2:] == base[2:], out)

    store.end(signal.SIGKILL)
    out, cached, _ = again()
    check("the store killed: computed again", out == base, (out, cached))
    check("it says so", bool(lines.having("is lost")), lines.lines)
    store = engine.Server()
    check("another store is taken up", engine.until(lambda: scheduler._link.ready() and worker._link.ready()))
    again()
    out, cached, loaded = again()
    check("and used", out == base and cached == HITS and loaded == 7, (out, cached, loaded))

    store.process.send_signal(signal.SIGSTOP)
    for side in (scheduler, worker):
        side._options["timeout"] = side._options["match_timeout"] = 1.0
    out, cached, _ = again()
    check("a stopped store: the requests finish", out == base, (out, cached))
    store.process.send_signal(signal.SIGCONT)
    check("nothing failed inside", not lines.having("failed: the engine goes on"), lines.lines)
    engine.say("\n".join(lines.lines))
    store.end()
    engine.end()


if __name__ == "__main__":
    main()
