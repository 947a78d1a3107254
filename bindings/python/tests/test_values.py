"""What needs no context: versions, settings, keys, layouts, statuses."""

import array
import random
import sys
import sysconfig

import pytest

import kvcl


def test_version_and_build_are_the_librarys():
    assert kvcl.__version__ == kvcl.version()
    assert kvcl.version().count(".") == 2
    assert "ucx" in kvcl.build()


def test_settings_have_names_and_help():
    rows = {row.name: row for row in kvcl.settings()}
    assert "KVCL_TIMEOUT" in rows
    assert rows["KVCL_TIMEOUT"].help
    assert rows["KVCL_TIMEOUT"].source in ("default", "environment")


def test_texts():
    assert "bcast" in kvcl.colls()


def test_topology():
    try:
        assert "NUMA" in kvcl.topology()
    except kvcl.IOFailed as error:  # a library that Python loads is not global: hwloc then has no plugins to leave out
        pytest.xfail(str(error))


def test_the_statuses_are_the_librarys():
    assert {status.name: status.value for status in kvcl.Status} == kvcl._kvcl.statuses()
    assert kvcl._kvcl.status_text(kvcl.Status.ERR_NOT_FOUND) == "no such key or object"


def test_every_status_has_one_class():
    from kvcl._errors import by_status
    table = by_status()
    for status in kvcl.Status:
        if status != kvcl.Status.OK:
            assert table[status].status == status, status
    assert len({cls for cls in table.values()}) == len(kvcl.Status) - 1


def test_errors_are_the_builtin_ones_too():
    assert issubclass(kvcl.TimedOut, TimeoutError)
    assert issubclass(kvcl.BadLayout, ValueError)
    assert issubclass(kvcl.RankFailed, ConnectionError)
    assert str(kvcl.NotFound("a sentence")) == "a sentence"
    assert str(kvcl.IOFailed("a sentence")) == "a sentence"


def test_key_chain_depends_on_every_token():
    root = kvcl.key_root(b"salt", "model")
    a = kvcl.key_chain(root, list(range(64)), 16)
    b = kvcl.key_chain(root, list(range(63)) + [99], 16)
    assert len(a) == 4 and all(len(key) == 32 for key in a)
    assert a[:3] == b[:3] and a[3] != b[3]
    assert kvcl.key_chain(kvcl.key_root(b"other", "model"), list(range(64)), 16)[0] != a[0]


def test_key_chain_takes_arrays_and_goes_on():
    root = kvcl.key_root()
    tokens = list(range(100))
    whole = kvcl.key_chain(root, tokens, 16)
    for code in "IiQqLl":
        assert kvcl.key_chain(root, array.array(code, tokens), 16) == whole
    assert kvcl.key_chain(root, range(100), 16) == whole
    assert kvcl.key_chain(whole[2], tokens[48:], 16, first_block=3) == whole[3:]
    assert kvcl.key_chain(root, [], 16) == []


def test_lists_are_read_where_this_python_keeps_them():
    known = sys.implementation.name == "cpython" and (3, 9) <= sys.version_info < (3, 15)
    free = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    assert kvcl._kvcl.IN_PLACE == (3 if known and not free else 0)


def test_a_list_of_ints_is_the_array_of_them():
    root, rnd = kvcl.key_root(), random.Random(5)
    sizes = [0, 1, 2, 255, 256, 257, 2**15, 2**16, 2**30 - 1, 2**30, 2**30 + 1, 2**31 - 1, 2**31, 2**32 - 1]
    tokens = sizes + [rnd.getrandbits(rnd.randint(1, 32)) for _ in range(2000)]
    whole = kvcl.key_chain(root, array.array("I", tokens), 1)
    cut = list(range(50)) + tokens  # its elements begin elsewhere than its memory once it has been cut
    del cut[:50]
    for given in (tokens, cut, tuple(tokens), [int(str(token)) for token in tokens]):
        assert kvcl.key_chain(root, given, 1) == whole
    for bad in (2**32, 2**63, 2**64, 2**200, -1, -2**30, -2**62, -2**200):
        with pytest.raises(ValueError):
            kvcl.key_chain(root, tokens + [bad], 1)
    assert kvcl.key_chain(root, [True, False], 1) == kvcl.key_chain(root, [1, 0], 1)


def test_a_list_of_keys_is_the_bytes_of_them():
    keys = [kvcl.key_from_string(f"key {i}") for i in range(100)]
    whole = kvcl.value_keys(b"".join(keys))
    for given in (keys, tuple(keys), [bytearray(key) for key in keys], [memoryview(key) for key in keys]):
        assert kvcl.value_keys(given) == whole
    for bad in (b"", b"a" * 31, b"a" * 33, b"a" * 64):
        with pytest.raises(ValueError):
            kvcl.value_keys([keys[0], bad])


def test_string_keys():
    assert kvcl.key_from_string("a name") == kvcl.key_from_string(b"a name") != kvcl.key_from_string("another")


@pytest.mark.parametrize("tokens, error", [
    ([1, -1], ValueError), ([2**32], ValueError), ([1.5], TypeError), ("text", TypeError), (b"bytes", TypeError),
    ([None], TypeError), (None, TypeError), (array.array("d", [1.0]), TypeError), (array.array("q", [-1]), ValueError),
    (memoryview(bytearray(16)).cast("B", (4, 4)), TypeError)])
def test_bad_tokens(tokens, error):
    with pytest.raises(error):
        kvcl.key_chain(kvcl.key_root(), tokens, 16)


def test_bad_chain_arguments():
    root = kvcl.key_root()
    with pytest.raises(kvcl.InvalidParam):
        kvcl.key_chain(root, [1, 2], 0)
    for parent in (b"short", b"", root * 2, None, 7, [root, root]):
        with pytest.raises((TypeError, ValueError)):
            kvcl.key_chain(parent, [1, 2], 1)
    for number in (-1, 2**64, 1.5, "x"):
        with pytest.raises((TypeError, ValueError)):
            kvcl.key_chain(root, [1, 2], number)


def test_layout_sizes():
    layout = kvcl.Layout(layers=32, blocks=4096, tokens=16, heads=8, head_dim=128, elem_bytes=2)
    assert layout.block_bytes == 32 * 2 * 16 * 8 * 128 * 2
    assert layout.n_bases == 1 and layout.base_bytes == 4096 * layout.block_bytes
    assert "32 layers" in str(layout)
    each = kvcl.Layout(layers=32, blocks=64, tokens=16, heads=8, head_dim=128, base="layer")
    assert each.n_bases == 32 and each.base_bytes * 32 == each.block_bytes * 64
    assert kvcl.Layout.bytes(10, 4096).block_bytes == 4096


def test_layout_hash_and_compatible():
    a = kvcl.Layout(layers=2, blocks=8, tokens=4, heads=2, head_dim=8)
    b = kvcl.Layout(layers=2, blocks=8, tokens=4, heads=2, head_dim=8, token_stride=32)
    assert a.hash() == b.hash() and len(a.hash()) == 32
    a.check_compatible(kvcl.Layout(layers=2, blocks=99, tokens=4, heads=2, head_dim=8, order="HND"))
    with pytest.raises(kvcl.BadLayout, match="heads"):
        a.check_compatible(kvcl.Layout(layers=2, blocks=8, tokens=4, heads=3, head_dim=8))


@pytest.mark.parametrize("bad", [
    dict(layers=0), dict(blocks=0), dict(blocks=2**40), dict(kv=3), dict(tokens=2**32 - 1, head_dim=2**32 - 1),
    dict(layers=-1), dict(layers=2**32), dict(layers=2**70), dict(layers="2"), dict(layers=1.5), dict(layers=None),
    dict(token_stride=1, tokens=4), dict(base="both"), dict(order="DNH"), dict(base="layer", layer_stride=4096)])
def test_bad_layouts(bad):
    with pytest.raises((ValueError, TypeError)):
        kvcl.Layout(**{**dict(layers=2, blocks=8, tokens=4, heads=2, head_dim=8), **bad})


def test_reshard_plans():
    two, four = kvcl.ReshardGroup(2), kvcl.ReshardGroup(4)
    assert four.share(32, 8, 3) == ((0, 32), (6, 8))
    steps = kvcl.reshard_plan(1, layers=32, heads=8, source=four, destination=two)
    assert [(s.source, s.destination_heads) for s in steps] == [(2, (0, 2)), (3, (2, 4))]
    assert kvcl.reshard_plan_source(3, layers=32, heads=8, source=four, destination=two) == [steps[1]]
    stages = kvcl.ReshardGroup(1, 2, [3, 1])
    steps = kvcl.reshard_plan(0, layers=4, heads=1, source=stages, destination=kvcl.ReshardGroup(1))
    assert [(s.source, s.source_layers, s.destination_layers) for s in steps] == [(0, (0, 3), (0, 3)),
                                                                                 (1, (0, 1), (3, 4))]
    near = kvcl.reshard_plan(0, layers=1, heads=1, source=four, destination=two, distances=[[3, 2, 1, 2], [0] * 4])
    assert [s.source for s in near] == [2]
    with pytest.raises(kvcl.InvalidParam, match="one must divide the other"):
        kvcl.reshard_plan(0, layers=1, heads=8, source=kvcl.ReshardGroup(3), destination=two)
    with pytest.raises(kvcl.OutOfRange):
        kvcl.reshard_plan(2, layers=1, heads=8, source=four, destination=two)
    with pytest.raises(ValueError, match="pairs"):
        kvcl.reshard_plan(0, layers=1, heads=1, source=four, destination=two, distances=[[1, 2]])
    with pytest.raises(ValueError, match="stage_layers"):
        kvcl.reshard_plan(0, layers=4, heads=1, source=kvcl.ReshardGroup(1, 2, [4]), destination=two)
    with pytest.raises((TypeError, ValueError)):
        kvcl.reshard_plan(-1, layers=4, heads=1, source=four, destination=two)
