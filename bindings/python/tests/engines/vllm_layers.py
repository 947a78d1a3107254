"""Layer by layer: saves begin while a step computes, and each layer waits for its own blocks. Outputs are those of vLLM
without the connector, also when the store dies between two layers.
"""

import faulthandler
import os
import signal

import engine
from engine import HITS, check, generate


def main():
    faulthandler.dump_traceback_later(engine.LIMIT, exit=True)
    base, lines = engine.expected(), engine.Lines()
    store = engine.Server()
    llm = engine.start({"store": store.file, "retry": 0.2, "by_layer": "yes", "load": "sync", "timeout": 2.0})
    scheduler, worker = engine.sides(llm)
    check("the store is taken up", engine.until(lambda: scheduler._link.ready() and worker._link.ready()))
    transfers, seen = worker._transfers, {"ready": [], "wait": [], "sent": []}
    counts = engine.count(worker)
    ready, wait = transfers.layer_ready, transfers.wait_layer

    def layer_ready(layer, stream=None):
        seen["ready"].append((layer, len(transfers._computing)))
        return ready(layer, stream)

    def wait_layer(layer):
        loading = [move for move in transfers._loading if move.waited]
        seen["wait"] += [(layer, move.layers is not None) for move in loading]
        wait(layer)
        check(f"layer {layer} is there when it is read", all(move.layers is None or layer in move.layers.there
                                                           or move.call.done for move in loading)) if loading else None

    transfers.layer_ready, transfers.wait_layer = layer_ready, wait_layer
    out, cached, _ = generate(llm)
    check("saved layer by layer, it generates the same", out == base and cached == [0] * 4, (out, cached))
    check("every layer was marked while it was computed",
          {layer for layer, computing in seen["ready"] if computing} == {0, 1, 2, 3}, seen["ready"])
    engine.forget(llm)
    out, cached, _ = generate(llm)
    check("loaded layer by layer, it generates the same", out == base and cached == HITS, (out, cached))
    check("loads were waited for layer by layer", any(by_layer for _, by_layer in seen["wait"]), seen["wait"])
    check("blocks came from the store", counts["loaded_blocks"] == 7, counts)

    killed = []

    def kill(layer):
        if layer == 1 and not killed:
            killed.append(1)
            store.end(signal.SIGKILL)
        wait(layer)

    engine.forget(llm)
    transfers.wait_layer = kill
    out, cached, _ = generate(llm)
    check("killed between two layers: the same", bool(killed) and out == base, (killed, out, cached))
    store = engine.Server()
    check("another store is taken up", engine.until(lambda: scheduler._link.ready() and worker._link.ready()))
    engine.forget(llm)
    transfers.layer_ready = ready
    transfers.wait_layer = wait
    stop = []

    def stopped(layer, stream=None):
        if layer == 1 and not stop:
            stop.append(1)
            store.process.send_signal(signal.SIGSTOP)
        return ready(layer, stream)

    transfers.layer_ready = stopped
    out, cached, _ = generate(llm)
    check("stopped between two layers of a save: the same", bool(stop) and out == base, (out, cached))
    store.process.send_signal(signal.SIGCONT)
    check("nothing failed inside", not lines.having("failed: the engine goes on"), lines.lines)
    engine.say("\n".join(lines.lines))
    store.end()
    engine.end()


if __name__ == "__main__":
    main()
