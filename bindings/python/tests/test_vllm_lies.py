"""kvcl.vllm: prompts handed over by engines and routers that lie, without vLLM. A read ends with the prompt's bytes or
with an error, after which the prompt is computed; nothing else of either engine is held up, and memory is bounded.
"""

import logging

import kvcl
import pytest
from kvcl.vllm import _handover
from kvcl.vllm._announce import Board
from kvcl.vllm._board import Rows
from kvcl.vllm._handover import Ahead, Lease, Source
from kvcl.vllm._peers import CACHE, Leases, Peers

from conftest import LIMIT
from test_vllm_ahead import COUNT, LAYERS, LAYOUT, PAGE, TOKENS
from test_vllm_handover import wait

NAME, THEIRS, OURS = b"n" * 32, (3, 4), [20, 21]  # of a lease; the blocks of a prompt of 8 tokens
log = logging.getLogger("test")


@pytest.fixture
def three(tmp_path, monkeypatch):
    """Contexts of a decode engine and of the two ranks of a prefill engine."""
    (tmp_path / "secret").write_text("a secret of 24 letters..")
    (tmp_path / "secret").chmod(0o600)
    monkeypatch.setenv("KVCL_SECRET_FILE", str(tmp_path / "secret"))
    with kvcl.Context(boot="self") as one, kvcl.Context(boot="self") as two, kvcl.Context(boot="self") as three:
        yield one, two, three


# ---- which ranks are read ----


def content(rank, layer, block):
    return bytes([100 * rank + 20 * layer + block]) * PAGE


def computed(contexts):
    """The leases of an engine whose ranks have one head each, and have computed a prompt."""
    rows, out = Rows(), []
    assert rows.take("r", "id")
    chunk = rows.chunk("r", "id", NAME, list(THEIRS), 8)
    for rank, context in enumerate(contexts):
        cache = context.cache(CACHE, LAYOUT)
        for layer in range(LAYERS):
            for block in range(20):
                memoryview(cache.bases[layer])[block * PAGE:(block + 1) * PAGE] = content(rank, layer, block)
        leases = Leases(context, 60.0, log, Board(context, LAYERS, COUNT), rank, len(contexts))
        leases.cache = cache  # which lives as long
        leases.announce([chunk], True)
        leases.set(Lease("r", 5, NAME))
        leases.board.step_computed()
        out.append(leases)
    return out


@pytest.mark.parametrize("ahead", [False, True], ids=["computed", "ahead"])
@pytest.mark.parametrize("ranks", [(0, 1), (1, 0), (0, 0), (0,), (1,), (0, 1, 0, 1)], ids=str)
def test_other_ranks_than_the_engines_or_in_another_order_are_not_read(three, ranks, ahead):
    """kv_transfer_params may come from a user. Heads that are missing, or another rank's, would be wrong bytes in the
    decode engine's own cache, for all prompts that begin alike."""
    leases = computed(three[1:])
    ours, peers = three[0].cache(CACHE, LAYOUT), Peers({"timeout": LIMIT, "handover_timeout": LIMIT})
    peers.open(three[0], ours)
    addresses = tuple(leases[rank].address for rank in ranks)
    source = (Source(addresses, (), -1, NAME, Ahead("id", 8, TOKENS)) if ahead else
              Source(addresses, THEIRS, 5, NAME))
    call = peers.read(source, _handover.parts(2, 1, 0, len(ranks)), OURS, 0)
    if ranks == (0, 1):
        assert wait(call, peers) == [kvcl.Status.OK] * 4
        for layer in range(LAYERS):
            for theirs, mine in zip(THEIRS, OURS):
                for head in range(2):
                    at = (2 * mine + head) * PAGE
                    assert bytes(memoryview(ours.bases[layer])[at:at + PAGE]) == content(head, layer, theirs)
    else:
        with pytest.raises(kvcl.Stale):
            wait(call, peers)
    for one in leases:
        one.close()


@pytest.mark.parametrize("heads, theirs", [(8, 3), (8, 6), (4, 1023), (6, 4)])
def test_an_engine_of_a_size_that_the_heads_do_not_allow_is_refused(heads, theirs):
    with pytest.raises(ValueError, match=f"of {theirs} ranks: the model's {heads} KV heads"):
        _handover.parts(heads, 1, 0, theirs)
