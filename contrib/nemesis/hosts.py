"""Hosts on one machine: network namespaces around a router. A cut is a rule of the router for packets from one host to
another, so it can hold in one direction only, and drop (nobody is told) or reject them (the sender is told)."""
import os
import shutil
import subprocess

NET = "10.77"


class HostsError(Exception):
    """This machine has no such hosts."""


def _ip(*words):
    done = subprocess.run(("ip",) + words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HostsError(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Hosts:
    def __init__(self, count):
        self.names, self.router, self.count = [], f"kvcl-{os.getpid()}-r", count
        if os.geteuid() != 0:
            raise HostsError("only root can make network namespaces")
        for tool in ("ip", "unshare"):
            if shutil.which(tool) is None:
                raise HostsError(f"no {tool} (Debian: iproute2, util-linux)")
        try:
            self._make()
        except HostsError:
            self.close()
            raise

    def _make(self):
        _ip("netns", "add", self.router)
        subprocess.run(["ip", "netns", "exec", self.router, "sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True)
        for host in range(self.count):
            name = f"kvcl-{os.getpid()}-{host}"
            _ip("netns", "add", name)
            self.names.append(name)
            _ip("link", "add", "kvcl0", "netns", name, "type", "veth", "peer", "name", f"to{host}", "netns", self.router)
            _ip("-n", name, "addr", "add", f"{NET}.{host}.1/24", "dev", "kvcl0")
            _ip("-n", self.router, "addr", "add", f"{NET}.{host}.2/24", "dev", f"to{host}")
            for space, device in ((name, "lo"), (name, "kvcl0"), (self.router, f"to{host}")):
                _ip("-n", space, "link", "set", device, "up")
            _ip("-n", name, "route", "add", "default", "via", f"{NET}.{host}.2")

    @staticmethod
    def address(host):
        return f"{NET}.{host}.1"

    def command(self, host, words):
        """The command that runs on that host."""
        return ["ip", "netns", "exec", self.names[host], "unshare", "--uts", "--ipc", "sh", "-c",
                'hostname "$0" && exec "$@"', self.names[host]] + words

    def _rule(self, what, source, target, how):
        _ip("-n", self.router, "rule", what, "from", self.address(source), "to", self.address(target),
            {"drop": "blackhole", "reject": "prohibit"}[how])

    def cut(self, sides, how, one_way):
        for a in sides[0]:
            for b in sides[1]:
                self._rule("add", a, b, how)
                if not one_way:
                    self._rule("add", b, a, how)

    def mend(self):
        for kind in ("blackhole", "prohibit"):
            while subprocess.run(["ip", "-n", self.router, "rule", "del", "type", kind], capture_output=True,
                                 check=False).returncode == 0:
                pass

    def close(self):
        for name in self.names + [self.router]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
