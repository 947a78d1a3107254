"""The options of every benchmark in this folder."""

import argparse
import shutil

from run_kvcl import Cores, Failed


def common():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--paths", default="shm,tcp", type=lambda text: text.split(","))
    parser.add_argument("--cores", type=lambda text: [int(core) for core in text.split(",")])
    parser.add_argument("--quick", action="store_true")
    return parser


def parse(parser):
    args = parser.parse_args()
    Cores.pair = args.cores
    if not set(args.paths) <= {"shm", "tcp"}:
        raise Failed("--paths takes shm, tcp or shm,tcp")
    if Cores.pair is not None and (len(Cores.pair) != 2 or shutil.which("taskset") is None):
        raise Failed("--cores takes two, A,B, and needs taskset")
    return args
