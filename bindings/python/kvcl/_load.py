"""Loads the C half, and before it UCX of the package libucx, where no UCX is found otherwise.

A wheel finds UCX of that package beside kvcl (the same site-packages), or the system's. This module helps where pip put
the package elsewhere, as in a virtual environment with --system-site-packages.
"""

import ctypes
import importlib.util
import os
from typing import Optional


def _libucx() -> Optional[str]:
    spec = importlib.util.find_spec("libucx")
    folders = spec.submodule_search_locations if spec is not None else None
    return os.path.join(folders[0], "lib") if folders else None


def _load() -> None:
    try:
        from . import _kvcl  # noqa: F401
        return
    except ImportError as error:
        if "libuc" not in str(error):
            raise
        missing = error
    folder = _libucx()
    if folder is None:
        raise ImportError(f"kvcl needs UCX: install the package libucx-cu13 (pip), or the system's (Debian: libucx0): "
                          f"{missing}") from missing
    for name in ("libucm.so.0", "libucs.so.0", "libuct.so.0", "libucp.so.0"):  # each needs those before it
        ctypes.CDLL(os.path.join(folder, name))
    from . import _kvcl  # noqa: F401, F811


_load()
