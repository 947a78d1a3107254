"""Steps of experts from Python: outputs against a plain sum, ranks as threads, lost ranks, restoring, errors."""

import pytest

import kvcl
from conftest import run_ranks
from kvcl import ep

numpy = pytest.importorskip("numpy")

HIDDEN, TOKENS, TOP_K, LOCAL = 40, 12, 3, 2


def tokens_of(rank, step):
    rng = numpy.random.default_rng(rank * 1000 + step)
    n = int(rng.integers(0, TOKENS + 1))
    x = rng.standard_normal((n, HIDDEN)).astype(numpy.float32)
    weights = rng.random((n, TOP_K)).astype(numpy.float32)
    return x, weights, rng


def compute(batch, slots):
    x, y = numpy.asarray(batch.x), numpy.asarray(batch.y)
    for local, count in enumerate(batch.counts):
        y[local, :count] = x[local, :count] * numpy.float32(slots + local + 1)


def steps(experts, comm, n, slots):
    for step in range(n):
        x, weights, rng = tokens_of(comm.rank, step)
        ids = numpy.array([rng.permutation(slots)[:TOP_K] for _ in range(len(x))], numpy.int64).reshape(len(x), TOP_K)
        batch = experts.dispatch(x, ids)
        compute(batch, comm.rank * LOCAL)
        out = numpy.empty_like(x)
        result = experts.combine(weights, out)
        want = numpy.zeros_like(x)
        for k in range(TOP_K):
            want += weights[:, k:k + 1] * (x * (ids[:, k:k + 1] + 1).astype(numpy.float32))
        assert numpy.array_equal(out, want)
        assert result.tokens_lost == 0 and not any(result.lost) and result.active == comm.size


def test_steps_of_three_ranks():
    def body(ctx):
        with ep.open(ctx.world, slots=3 * LOCAL, max_tokens=TOKENS, top_k=TOP_K, hidden=HIDDEN,
                     dtype=numpy.float32) as experts:
            steps(experts, ctx.world, 6, 3 * LOCAL)
            assert experts.active == [True] * 3 and list(experts.mask()) == [1, 1, 1]
            assert all(status == kvcl.Status.OK for status in experts.why)
            ctx.world.barrier()

    run_ranks(3, body)


def test_a_context_closes_experts_that_are_open():
    ctx = kvcl.Context(boot="self")
    experts = ep.open(ctx.world, slots=1, max_tokens=4, top_k=1, hidden=2, dtype="float32")
    ctx.close()
    assert experts.closed


def test_a_rank_that_leaves_is_skipped():
    def body(ctx):
        experts = ep.open(ctx.world, slots=3, max_tokens=4, top_k=1, hidden=2, dtype="float32", timeout=30)
        before = experts.changes()
        if ctx.world.rank == 2:
            experts.close()
            ctx.world.barrier()
            return
        x, ids = numpy.ones((2, 2), numpy.float32), numpy.array([[2], [0]], numpy.int64)
        batch = experts.dispatch(x, ids)
        numpy.asarray(batch.y)[:] = numpy.asarray(batch.x)
        out = numpy.empty_like(x)
        result = experts.combine(numpy.full((2, 1), .5, numpy.float32), out)
        assert list(result.lost) == [.5, 0] and result.tokens_lost == result.tokens_all == 1
        assert out.tolist() == [[0, 0], [.5, .5]] and experts.active == [True, True, False]
        assert experts.why[2] in (kvcl.Status.ERR_STALE, kvcl.Status.ERR_RANK_FAILED)
        assert experts.changes() == before + 1
        assert ep.renormalise(out, ids, numpy.full((2, 1), .5, numpy.float32), result.lost) == [0]
        model = ep.Model(experts=2, slots=3, ranks=3, active=[1, 1, 0])
        experts.activate(4, model, [[1, 0, ep.NONE]])
        assert experts.number == 4
        assert experts.choose(0, numpy.array([[0], [1]], numpy.int64)).tolist() == [[1], [0]]
        with pytest.raises(kvcl.Stale):
            experts.activate(4, model)
        with pytest.raises(kvcl.InvalidParam, match="expert 1 of layer 0"):
            experts.activate(5, model, [[0, 0, ep.NONE]])
        steps_of_two = experts.dispatch(x, numpy.array([[0], [1]], numpy.int64))
        assert steps_of_two.step == 1
        numpy.asarray(steps_of_two.y)[:] = numpy.asarray(steps_of_two.x)
        assert experts.combine(numpy.ones((2, 1), numpy.float32), out).tokens_lost == 0
        del batch, steps_of_two
        ctx.world.barrier()
        experts.close()

    run_ranks(3, body)


def test_tensors_of_torch(ctx):
    torch = pytest.importorskip("torch")
    with ep.open(ctx.world, slots=2, max_tokens=4, top_k=2, hidden=8, dtype=torch.bfloat16) as experts:
        x = torch.arange(16).reshape(2, 8).to(torch.bfloat16)
        batch = experts.dispatch(x, torch.tensor([[0, 1], [1, -1]]))
        assert list(batch.counts) == [1, 2]
        rows = torch.frombuffer(batch.y, dtype=torch.bfloat16).reshape(2, 4, 8)
        rows.copy_(torch.frombuffer(batch.x, dtype=torch.bfloat16).reshape(2, 4, 8))
        out = torch.empty_like(x)
        experts.combine(torch.tensor([[.5, .25], [.5, 9.]]), out)
        assert torch.equal(out, torch.stack([x[0] * .75, x[1] * .5]))
        del rows


def test_a_rank_without_tokens_takes_part(ctx):
    with ep.open(ctx.world, slots=2, max_tokens=4, top_k=2, hidden=2, dtype="float32") as experts:
        experts.activate(1, ep.Model(experts=2, slots=2, ranks=1), [[1, 0]])
        none = numpy.zeros((0, 2), numpy.float32)
        for step in (1, 2):
            batch = experts.dispatch(none, experts.choose(0, numpy.zeros((0, 2), numpy.int64)))
            assert batch.step == step and list(batch.counts) == [0, 0]
            assert experts.combine(none, none.copy()).tokens_lost == 0
        for x, ids in ((numpy.ones((1, 2), numpy.float32), numpy.zeros(0, numpy.int64)),
                       (none, numpy.zeros(1, numpy.int64))):
            with pytest.raises(TypeError, match="ids: an array with two dimensions"):
                experts.dispatch(x, ids)


def test_bad_arguments(ctx):
    experts = ep.open(ctx.world, slots=2, max_tokens=2, top_k=2, hidden=2, dtype="float32")
    x, ids = numpy.zeros((1, 2), numpy.float32), numpy.zeros((1, 1), numpy.int64)
    with pytest.raises(kvcl.OutOfRange, match="place 0 of token 0"):
        experts.dispatch(x, ids + 2)
    with pytest.raises(TypeError, match="int64"):
        experts.dispatch(x, ids.astype(numpy.int32))
    with pytest.raises(TypeError, match="x: elements must be float32, not float64"):
        experts.dispatch(x.astype(numpy.float64), ids)
    with pytest.raises(ValueError, match="hidden is 2"):
        experts.dispatch(numpy.zeros((1, 3), numpy.float32), ids)
    with pytest.raises(ValueError, match="no dispatch"):
        experts.combine(x, x)
    batch = experts.dispatch(x, ids)
    with pytest.raises(TypeError, match="float32"):
        experts.combine(numpy.zeros((1, 1)), x)
    with pytest.raises(kvcl.InvalidParam):  # a combine is due: the step stays as it is
        experts.dispatch(numpy.zeros((0, 2), numpy.float32), ids[:0])
    with pytest.raises((BufferError, ValueError)):
        readonly = x.copy()
        readonly.flags.writeable = False
        experts.combine(numpy.zeros((1, 1), numpy.float32), readonly)
    kept = numpy.asarray(batch.x)
    with pytest.raises(BufferError):
        experts.close()
    del kept, batch
    experts.close()
    with pytest.raises(kvcl.Shutdown):
        experts.dispatch(x, ids)
    with pytest.raises(ValueError, match="float16"):
        ep.open(ctx.world, slots=2, max_tokens=2, top_k=2, hidden=2, dtype="float16")
    with pytest.raises(kvcl.InvalidParam, match="top_k is 65"):
        ep.open(ctx.world, slots=2, max_tokens=2, top_k=65, hidden=2)


def test_only_its_own_type_is_taken(ctx):
    ids, weights = numpy.zeros((1, 1), numpy.int64), numpy.ones((1, 1), numpy.float32)
    half, bits = numpy.ones((1, 2), numpy.float16), numpy.full((1, 2), 0x3f80, numpy.uint16)  # 1.0
    with ep.open(ctx.world, slots=1, max_tokens=1, top_k=1, hidden=2) as experts:
        with pytest.raises(TypeError, match="x: elements must be bfloat16 .*, not float16"):
            experts.dispatch(half, ids)
        batch = experts.dispatch(bits, ids)
        batch.y[0, 0, 0], batch.y[0, 0, 1] = batch.x[0, 0, 0], batch.x[0, 0, 1]
        with pytest.raises(TypeError, match="out: .*, not float16"):
            experts.combine(weights, numpy.empty_like(half))
        with pytest.raises(TypeError, match="y: .*, not float16"):
            experts.combine(weights, numpy.empty_like(bits), half)
        out = numpy.empty((1, 2), numpy.int16)
        lost = experts.combine(weights, out).lost
        assert out.tolist() == bits.tolist()
        assert ep.renormalise(out, ids, weights, lost) == []
        with pytest.raises(TypeError, match="out: elements must be float32 or bfloat16 .*, not float16"):
            ep.renormalise(half, ids, weights, lost)


def test_restoring_over_ranks():
    def expert(number):
        return bytes([number]) * 64

    def body(ctx):
        rank, model = ctx.world.rank, ep.Model(experts=4, slots=4, ranks=2)
        with ctx.cache("experts", kvcl.Layout.bytes(blocks=4, block_bytes=64)) as cache:
            sums = []
            for number in range(4):
                cache.write(2, expert(number))
                sums.append(ep.weights_sum(cache, 2))
            old, new = [[0, 1, 2, 3]], [[0, 2, 1, 3]]
            for slot in range(2):
                cache.write(slot, expert(old[0][rank * 2 + slot]))
            ctx.world.barrier()
            where = ep.Weights(ctx.world, cache, [sums], timeout=20)
            moves = ep.moves(model, old, new)
            done = ep.restore(model, where, old, moves)
            assert done.missing == []
            ctx.world.barrier()
            ep.settle(model, where, moves, done)
            assert [cache.read(slot) for slot in range(2)] == [expert(e) for e in new[0][rank * 2:rank * 2 + 2]]
            ctx.world.barrier()
            bad = where._replace(sums=[[0, 0, 0, 0]], timeout=5)  # no source has such bytes, and there is no store
            moves = ep.moves(model, new, old)
            assert len(ep.restore(model, bad, new, moves).missing) == 1
            ctx.world.barrier()

    run_ranks(2, body)


def test_moves_may_be_none(ctx):
    with ctx.cache("experts", kvcl.Layout.bytes(blocks=2, block_bytes=8)) as cache:
        where = ep.Weights(ctx.world, cache, [[1]])
        model = ep.Model(experts=1, slots=1, ranks=1)
        assert ep.restore(model, where, [[0]], []).missing == []
