"""
One stream of iperf3 over loopback: the rate of the kernel's TCP, and the processor time of both ends. It writes 1 MiB
at a time, which is faster and cheaper than its default of 128 KiB.
"""

import json
import shutil
import subprocess
import time

from run_kvcl import Cores, Failed, end, free_port


def there():
    return shutil.which("iperf3") is not None


def run(seconds):
    """gbps in 10^9 bytes a second, cpu_s_per_gib of both ends."""
    port = str(free_port())
    server = subprocess.Popen(Cores.wrap(1, ["iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", port]),
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(50):
            time.sleep(0.1)
            command = ["iperf3", "-c", "127.0.0.1", "-p", port, "-t", str(seconds), "-l", "1M", "-J"]
            client = subprocess.run(Cores.wrap(0, command), capture_output=True, text=True, timeout=seconds + 30,
                                    check=False)
            if client.returncode == 0:
                break
    except subprocess.TimeoutExpired as late:
        raise Failed("iperf3 does not end") from late
    finally:
        end([server])
    if client.returncode != 0:
        raise Failed(f"iperf3: {client.stdout}{client.stderr}")
    result = json.loads(client.stdout)["end"]
    got = result["sum_received"]
    load = result["cpu_utilization_percent"]
    busy = (load["host_total"] + load["remote_total"]) / 100 * got["seconds"]
    return {"gbps": got["bits_per_second"] / 8e9, "cpu_s_per_gib": busy / (got["bytes"] / 2**30), "wrong": 0}
