"""Count false deaths: ranks on a machine with more work than processors, none of which dies.

    PYTHONPATH=... python3 false_deaths.py --minutes 20

Each rank puts values into a store and gets the other ranks', whose bytes it compares. Meanwhile rank 1 compiles, rank 2
loads memory again and again, rank 3 holds Python's global lock for seconds at a time, and as many processes as --busy
only compute. Every rank counts what it is told of the others: SUSPECT is a suspicion that ends (ALIVE_AGAIN), FAILED a
false death. Ends with 1 if there was a false death, a wrong byte, or a call that failed.
"""

import argparse
import hashlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time

VALUE, PATIENCE = 64 << 10, 600
TASKS = {1: "compiles", 2: "loads memory", 3: "holds the lock"}


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--busy", type=int, default=8, help="processes that only compute")
    parser.add_argument("--gib", type=float, default=10.0, help="what rank 2 loads")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


# ---- a rank

def compile_often(until):
    text = "".join(f"int f{i}(int *x) {{ int s = {i}; for (int j = 0; j < 99; ++j) s += x[j] * j; return s; }}\n"
                   for i in range(3000))
    while time.monotonic() < until:
        subprocess.run(["cc", "-O2", "-x", "c", "-", "-c", "-o", os.devnull], input=text.encode(), check=True)


def load_often(until, gib):
    while time.monotonic() < until:
        memory = bytearray(int(gib * 2**30))
        with open("/dev/zero", "rb", buffering=0) as file:
            view, done = memoryview(memory), 0
            while done < len(memory) and time.monotonic() < until:
                done += file.readinto(view[done:done + (64 << 20)])


def hold_often(until):
    while time.monotonic() < until:
        pow(7, 8_000_000)  # seconds in one call into C, which does not give up the lock
        time.sleep(0.05)


def value_of(key):
    return hashlib.sha256(key).digest() * (VALUE // 32)


def note_events(kvcl, ctx, tally):
    event = ctx.event()
    while event is not None:
        if event.kind == kvcl.ViewEventKind.SUSPECT:
            tally["suspicions"] += len(event.ranks)
        elif event.kind == kvcl.ViewEventKind.FAILED:
            tally["deaths"] += len(event.ranks)
        event = ctx.event()


def put_and_get(kvcl, ctx, store, until, tally):
    n = 0
    while time.monotonic() < until:
        for rank in range(ctx.size):  # the own one first
            rank = (ctx.rank + rank) % ctx.size
            key = kvcl.key_from_string(f"{rank}.{n}")
            try:
                if rank == ctx.rank:
                    store.put_value(key, value_of(key)).wait(60)
                else:
                    got = store.get_value(key)
                    tally["wrong"] += got != value_of(key)
                    tally["gets"] += 1
            except kvcl.NotFound:  # that rank is not yet as far, or its value has been evicted
                tally["absent"] += 1
            except kvcl.KvclError as error:
                tally["failed"] += 1
                print(f"rank {ctx.rank}: {error}", file=sys.stderr, flush=True)
        n += 1
        note_events(kvcl, ctx, tally)
        time.sleep(0.02)


def run_rank(opt):
    import kvcl
    tally = dict.fromkeys(("gets", "absent", "wrong", "failed", "suspicions", "deaths"), 0)
    with kvcl.Context() as ctx, kvcl.Store(ctx.world, dram_bytes=256 * VALUE, block_bytes=VALUE) as store:
        ctx.world.barrier(timeout=PATIENCE)
        until = time.monotonic() + (60 * opt.minutes)
        task = {1: lambda: compile_often(until), 2: lambda: load_often(until, opt.gib), 3: lambda: hold_often(until)}
        other = threading.Thread(target=task.get(opt.rank, lambda: None))
        other.start()
        put_and_get(kvcl, ctx, store, until, tally)
        other.join()
        ctx.world.barrier(timeout=PATIENCE)
        note_events(kvcl, ctx, tally)
        ctx.world.barrier(timeout=PATIENCE)
    print(json.dumps(tally), flush=True)


# ---- all of them

def start(opt, secret):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = dict(os.environ, KVCL_VIEWS="yes", KVCL_NET="lo", KVCL_SIZE=str(opt.ranks), KVCL_SECRET_FILE=secret,
               KVCL_RENDEZVOUS=f"tcp://127.0.0.1:{port}")
    return [subprocess.Popen([sys.executable, *sys.argv, "--rank", str(rank)], env=dict(env, KVCL_RANK=str(rank)),
                             stdout=subprocess.PIPE, text=True) for rank in range(opt.ranks)]


def report(opt, lines):
    print(f"{opt.minutes:g} minutes, {opt.busy} busy processes, {os.cpu_count()} cores, "
          f"KVCL_PATH={os.environ.get('KVCL_PATH', 'auto')}, load {os.getloadavg()[0]:.1f} at the end")
    print(f"{'rank':>4}  {'task':14}" + "".join(f"{name:>12}" for name in lines[0]))
    for rank, line in enumerate(lines):
        print(f"{rank:4}  {TASKS.get(rank, ''):14}" + "".join(f"{value:12}" for value in line.values()))
    total = {name: sum(line[name] for line in lines) for name in lines[0]}
    print(f"{'all':>4}  {'':14}" + "".join(f"{value:12}" for value in total.values()))
    return 1 if total["deaths"] or total["wrong"] or total["failed"] or not total["gets"] else 0


def main():
    opt = options()
    if opt.rank is not None:
        run_rank(opt)
        return 0
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(opt.busy)]
    with tempfile.TemporaryDirectory() as directory:
        secret = os.path.join(directory, "secret")
        with open(os.open(secret, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32))
        try:
            ranks = start(opt, secret)
            outputs = [rank.communicate()[0] for rank in ranks]
        finally:
            for process in busy:
                process.kill()
                process.wait()
    ended = [rank.returncode for rank in ranks]
    if any(ended):
        print(f"ranks ended with {ended}", file=sys.stderr)
        return 1
    return report(opt, [json.loads(output) for output in outputs])


if __name__ == "__main__":
    sys.exit(main())
