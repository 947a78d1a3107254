"""One run of a peer (peer.py), by the Python of the virtual environment that has its wheel."""

import json
import os
import subprocess

from run_kvcl import Cores, Failed

HERE = os.path.dirname(os.path.abspath(__file__))
TIMEOUT_S = 120


def plugin_folder(build):
    """Where KVCL's plugin for NIXL was built or installed; None: it was not."""
    for folder in ("bindings/nixl", "lib/kvcl/nixl"):
        if os.path.exists(os.path.join(build, folder, "libplugin_KVCL.so")):
            return os.path.join(build, folder)
    return None


def environment(build, who):
    """NIXL finds the plugins of one folder: its own, or KVCL's."""
    if who != "plugin":
        return None
    folder, libs = plugin_folder(build), os.path.join(build, ".libs")
    if folder is None:
        raise Failed(f"no libplugin_KVCL.so in {build}: configure --with-nixl=$(contrib/ci/nixl-headers)")
    return dict(os.environ, NIXL_PLUGIN_DIR=folder, LD_LIBRARY_PATH=libs + ":" + os.environ.get("LD_LIBRARY_PATH", ""))


def run(python, who, path, setting, lists, seconds, env=None):
    """The figures of each list, in order."""
    command = [python, os.path.join(HERE, "peer.py"), who, "--path", path, "--setting", setting, "--seconds",
               str(seconds), "--lists", ",".join(blocks.spell() for blocks in lists)]
    if Cores.pair is not None:
        command += ["--cores", f"{Cores.pair[0]},{Cores.pair[1]}"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S,
                              check=False, env=env)
    except subprocess.TimeoutExpired as late:
        raise Failed(f"not done after {TIMEOUT_S} s") from late
    figures = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or len(figures) != len(lists):
        raise Failed(f"status {done.returncode}\n{done.stderr[-2000:]}")
    return figures
