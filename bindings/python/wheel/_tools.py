"""The console scripts of a wheel: each becomes the program of that name in the package."""

import importlib.util
import os
import sys
from typing import NoReturn


def _run(name: str) -> NoReturn:
    here = os.path.dirname(os.path.abspath(__file__))
    program = os.path.join(here, "bin", name)
    # A program finds the libraries of the package libucx beside kvcl; elsewhere only where it is told.
    spec = importlib.util.find_spec("libucx") if NEEDS_LIBUCX else None
    for folder in spec.submodule_search_locations or () if spec else ():
        if os.path.dirname(os.path.abspath(folder)) != os.path.dirname(here):
            known = os.environ.get("LD_LIBRARY_PATH")
            os.environ["LD_LIBRARY_PATH"] = os.path.join(folder, "lib") + (f":{known}" if known else "")
    os.execv(program, [program, *sys.argv[1:]])


def kvcl_info() -> NoReturn:
    _run("kvcl_info")


def kvcl_perf() -> NoReturn:
    _run("kvcl_perf")


def kvcl_replay() -> NoReturn:
    _run("kvcl_replay")


def kvcl_serve() -> NoReturn:
    _run("kvcl_serve")


def kvcl_sim() -> NoReturn:
    _run("kvcl_sim")


def kvcl_top() -> NoReturn:
    _run("kvcl_top")


NEEDS_LIBUCX = False  # the backend changes this line in a wheel for the package libucx
