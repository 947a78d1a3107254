"""kvcl.torch when ranks die: ranks_torch_elastic.py is what each rank runs; here they are killed and stopped."""

import faulthandler
import importlib.util
import os
import signal
import subprocess
import sys

import pytest

from conftest import HERE, free_ports, views

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is absent: nothing tests kvcl.torch", allow_module_level=True)


@pytest.fixture(autouse=True)
def slow_to_load(no_hang):
    faulthandler.dump_traceback_later(305, exit=True)  # torch, on each rank


class Ranks:
    """Processes that meet by a file; what is left of them is killed at the end."""

    def __init__(self, scenario, size, victims, folder, **settings):
        self.env = dict(os.environ, **views(3), OMP_NUM_THREADS="1", **settings)
        self.victims = victims
        self.program = [sys.executable, os.path.join(HERE, "ranks_torch_elastic.py"), scenario]
        self.rest = [str(size), ",".join(map(str, victims)), str(folder)]
        self.all = [self.start(rank) for rank in range(size)]

    def start(self, rank, **settings):
        return subprocess.Popen([*self.program, str(rank), *self.rest], env=dict(self.env, **settings), text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for rank in self.all:
            rank.kill()
            rank.communicate()

    def said(self, word, ranks=None):
        for rank in self.all if ranks is None else ranks:
            line = rank.stdout.readline()
            assert line == word + "\n", f"rank {self.all.index(rank)} said {line!r}, not {word!r}"

    def send(self, what):
        for victim in self.victims:
            self.all[victim].send_signal(what)

    @staticmethod
    def tell(ranks):
        """They wait for a line."""
        for rank in ranks:
            rank.stdin.write("\n")
            rank.stdin.flush()

    @property
    def living(self):
        return [rank for i, rank in enumerate(self.all) if i not in self.victims]


@pytest.mark.parametrize("size, victims", [(2, [0]), (4, [2]), (4, [0, 3]), (8, [0, 5, 6])])
def test_collectives_go_on_when_ranks_are_killed(size, victims, tmp_path):
    with Ranks("survive", size, victims, tmp_path) as ranks:
        ranks.said("ready")
        ranks.send(signal.SIGKILL)
        ranks.said("right", ranks.living)
        assert [rank.wait(timeout=100) for rank in ranks.living] == [0] * len(ranks.living)


def test_a_stopped_rank_is_left_behind_and_never_comes_back(tmp_path):
    with Ranks("stopped", 4, [1], tmp_path) as ranks:
        ranks.said("ready")
        ranks.send(signal.SIGSTOP)
        ranks.said("went on", ranks.living)
        ranks.send(signal.SIGCONT)
        ranks.tell([ranks.all[1]])
        ranks.said("right", [ranks.all[1]])
        ranks.tell(ranks.living)
        ranks.said("right", ranks.living)


@pytest.mark.parametrize("scenario", ["shrink", "reconfigure"])
def test_a_smaller_group(scenario, tmp_path):
    with Ranks(scenario, 4, [0], tmp_path) as ranks:
        ranks.said("ready")
        ranks.send(signal.SIGKILL)
        ranks.said("right", ranks.living)
        assert [rank.wait(timeout=100) for rank in ranks.living] == [0, 0, 0]


def test_ranks_do_not_wait_for_those_that_gave_up(tmp_path):
    with Ranks("revoke", 4, [3], tmp_path) as ranks:
        ranks.said("ready")
        ranks.send(signal.SIGKILL)
        ranks.said("right", ranks.living)
        assert [rank.wait(timeout=100) for rank in ranks.living] == [0, 0, 0]


def test_a_living_rank_is_evicted(tmp_path):
    with Ranks("evict", 4, [1], tmp_path) as ranks:
        ranks.said("ready")
        ranks.tell([ranks.all[1]])
        ranks.said("right")
        assert [rank.wait(timeout=100) for rank in ranks.all] == [0, 0, 0, 0]


@pytest.mark.parametrize("victim, waits", [(0, "no"), (2, "no"), (2, "yes")])
def test_a_killed_rank_comes_back_in_its_place(victim, waits, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(os.urandom(32))
    secret.chmod(0o600)
    port = free_ports(4)
    with Ranks("rejoin", 4, [victim], tmp_path, KVCL_SECRET_FILE=str(secret), KVCL_NET="lo",
               KVCL_JOIN_AT=f"127.0.0.1:{port}", KVCL_JOIN_WAITS=waits) as ranks:
        ranks.said("ready")
        ranks.send(signal.SIGKILL)
        ranks.all[victim].wait()
        ports = ",".join(f"127.0.0.1:{port + rank}" for rank in range(4))
        ranks.all.append(ranks.start(victim, KVCL_JOIN=ports, MEET="alone"))
        ranks.said("right", ranks.living)
        assert [rank.wait(timeout=100) for rank in ranks.living] == [0, 0, 0, 0]


@pytest.mark.parametrize("waits, grows", [("yes", [[3]]), ("no", [[3]]), ("yes", [[3, 5], [4]])])
def test_a_group_grows_beyond_its_first_size(waits, grows, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(os.urandom(32))
    secret.chmod(0o600)
    port = free_ports(6)
    with Ranks("extend", 3, [], tmp_path, KVCL_SECRET_FILE=str(secret), KVCL_NET="lo", KVCL_SLOTS="6", BEGAN="3",
               KVCL_JOIN_AT=f"127.0.0.1:{port}", KVCL_JOIN_WAITS=waits,
               GROWS=";".join(",".join(map(str, stage)) for stage in grows)) as ranks:
        ports = ",".join(f"127.0.0.1:{port + rank}" for rank in range(3))
        for stage in grows:
            ranks.said("ready", ranks.all[:1])
            for rank in stage:
                ranks.rest[0] = str(max(3, rank + 1, *stage))  # as far as it knows
                ranks.all.append(ranks.start(rank, KVCL_JOIN=ports, MEET=f"alone{rank}"))
        ranks.said("grown")
        gone = ranks.all.pop(3)
        gone.kill()
        gone.communicate()
        ranks.said("right")
        assert [rank.wait(timeout=100) for rank in ranks.all] == [0] * len(ranks.all)
