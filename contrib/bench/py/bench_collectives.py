"""Compare torch collectives on the CPU: the kvcl process group beside gloo's, in turns, in the same processes.

    PYTHONPATH=... python3 bench_collectives.py --ranks 4 --ops broadcast,all_gather --sizes 8,64K,1M,64M

Each round calls one backend some times and then the other one, and takes the time of the slowest rank; a line has the
medians over the rounds, gloo's time divided by kvcl's, and the load average of the machine. Sizes are bytes of a rank's
tensor (of f32 elements); all_to_all and reduce_scatter cut it into a part for each rank; of gather and scatter it is
what a rank gives or gets. send_recv is a round trip between ranks 0 and 1, 2 and 3, and so on. With
THP_MEM_ALLOC_ENABLE=1 in the environment torch asks for tensors in huge pages.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
OPS = ("all_reduce", "all_to_all", "reduce_scatter", "all_gather", "broadcast", "gather", "scatter", "send_recv")


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--ops", default=",".join(OPS), help="default: all")
    parser.add_argument("--sizes", default="8,1K,16K,64K,256K,1M,4M,16M,64M")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--round-ms", type=float, default=60.0, help="time of one backend in a round, about")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--meet", help=argparse.SUPPRESS)
    return parser.parse_args()


def size_of(text):
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def start(opt):
    """Start the ranks and wait for them."""
    with tempfile.TemporaryDirectory() as directory:
        ranks = [subprocess.Popen([sys.executable] + sys.argv + ["--rank", str(rank), "--meet", directory + "/meet"],
                                  env=dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo"))
                 for rank in range(opt.ranks)]
        return max(abs(rank.wait()) for rank in ranks)


def round_trip(dist, x, rank, size, group):
    """With the other rank of a pair; the last one of an odd number has none."""
    other = rank ^ 1
    if other >= size:
        return
    first, second = (dist.send, dist.recv) if rank < other else (dist.recv, dist.send)
    first(x, other, group=group)
    second(x, other, group=group)


def calls_of(torch, dist, name, count, rank, size):
    """A function of a group that calls the collective once."""
    each = max(count // size, 1)
    x, parts = torch.ones(count), torch.ones(each * size)
    out, one = torch.empty(each * size), torch.ones(each)
    all_of_root = [torch.ones(count) for _ in range(size)] if rank == 0 and name in ("gather", "scatter") else None
    return {
        "all_reduce": lambda group: dist.all_reduce(x, op=dist.ReduceOp.MAX, group=group),
        "all_to_all": lambda group: dist.all_to_all_single(out, parts, group=group),
        "reduce_scatter": lambda group: dist.reduce_scatter_tensor(one, parts, op=dist.ReduceOp.MAX, group=group),
        "all_gather": lambda group: dist.all_gather_into_tensor(out, one, group=group),
        "broadcast": lambda group: dist.broadcast(x, 0, group=group),
        "gather": lambda group: dist.gather(x, all_of_root, 0, group=group),
        "scatter": lambda group: dist.scatter(x, all_of_root, 0, group=group),
        "send_recv": lambda group: round_trip(dist, x, rank, size, group),
    }[name]


def seconds(torch, dist, gloo, call, group, times):
    """For one call, on the slowest rank."""
    dist.barrier(group=gloo)
    begin = time.perf_counter()
    for _ in range(times):
        call(group)
    took = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
    dist.all_reduce(took, op=dist.ReduceOp.MAX, group=gloo)
    return took.item() / times


def run(opt):
    import torch
    import torch.distributed as dist
    import kvcl.torch  # noqa: F401

    torch.set_num_threads(1)
    dist.init_process_group("kvcl", init_method="file://" + opt.meet, rank=opt.rank, world_size=opt.ranks)
    gloo = dist.new_group(backend="gloo")
    groups = {"kvcl": None, "gloo": gloo}
    if opt.rank == 0:
        print(f"{'collective':15} {'bytes':>9} {'kvcl us':>10} {'gloo us':>10} {'ratio':>6} {'load':>5}")
    for name in opt.ops.split(","):
        for size in map(size_of, opt.sizes.split(",")):
            call = calls_of(torch, dist, name, max(size // 4, 1), opt.rank, opt.ranks)
            took, times = {}, {}
            for key, group in groups.items():
                once = seconds(torch, dist, gloo, call, group, 2)
                times[key] = max(2, min(2000, int(opt.round_ms / 1000 / once)))
                took[key] = []
            for _ in range(opt.rounds):
                for key, group in groups.items():
                    took[key].append(seconds(torch, dist, gloo, call, group, times[key]))
            mid = {key: statistics.median(values) * 1e6 for key, values in took.items()}
            if opt.rank == 0:
                print(f"{name:15} {size:9d} {mid['kvcl']:10.1f} {mid['gloo']:10.1f} {mid['gloo'] / mid['kvcl']:6.2f} "
                      f"{os.getloadavg()[0]:5.1f}", flush=True)
    dist.barrier(group=gloo)
    dist.destroy_process_group()


if __name__ == "__main__":
    OPTIONS = options()
    sys.exit(start(OPTIONS) if OPTIONS.rank is None else run(OPTIONS))
