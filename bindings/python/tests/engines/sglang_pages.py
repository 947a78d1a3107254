"""SGLang's own host pools over kvcl.sglang.Storage, without an engine: every byte of pages of MHA and MLA pools in the
three layouts, and how long 128 pages of 1 MiB take beside SGLang's `file` backend (--time FOLDER).

Imports the parts of sglang that it needs without sglang/__init__.py, which wants a GPU.
"""

import argparse
import importlib.machinery
import importlib.util
import sys
import time
import types

spec = importlib.util.find_spec("sglang")
if spec is None:
    sys.exit("no sglang here")
for name, path in (("sglang", ""), ("sglang.srt", "/srt")):
    package = types.ModuleType(name)
    package.__path__ = [spec.submodule_search_locations[0] + path]
    package.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    sys.modules[name] = package

import torch  # noqa: E402
from sglang.srt.mem_cache.hicache_storage import HiCacheFile, HiCacheStorageConfig  # noqa: E402
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, MLATokenToKVPool  # noqa: E402
from sglang.srt.mem_cache.pool_host import base  # noqa: E402
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost  # noqa: E402
from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost  # noqa: E402
from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory  # noqa: E402

PAGE = 64
base.HICACHE_HOST_MEMORY_RESERVE_BYTES = 0  # else no pool is made where less than 10 GB are free


def host_pool(kind, layout, layers, size, heads=2, dim=64):
    common = dict(size=size, page_size=PAGE, dtype=torch.bfloat16, layer_num=layers, device="cpu",
                  enable_memory_saver=False)
    more = dict(device_capacity_tokens=size, start_layer=0, end_layer=layers)
    if kind == "mha":
        pool = MHATokenToKVPool(head_num=heads, head_dim=dim, **common)
        host, info = MHATokenToKVPoolHost, pool.get_device_pool_infos()[0].buffer_info
    else:
        pool = MLATokenToKVPool(kv_lora_rank=dim * heads - 64, qk_rope_head_dim=64, **common)
        host, info, more["target_layer_num"] = MLATokenToKVPoolHost, pool.get_device_pool_infos()[0].buffer_info, layers
    return host(info, 2.0, 0, PAGE, layout, pin_memory=False, **more)


def backend(mla=False, pool="256M", name="model"):
    extra = {"backend_name": "kvcl", "module_path": "kvcl.sglang", "class_name": "Storage", "interface_v1": 1,
             "kvcl": {"pool": pool}}
    config = HiCacheStorageConfig(tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1,
                                  is_mla_model=mla, enable_storage_metrics=False, is_page_first_layout=True,
                                  model_name=name, extra_config=extra)
    return StorageBackendFactory.create_backend("dynamic", config, None), config


def slots(pages):
    return torch.cat([torch.arange(page * PAGE, (page + 1) * PAGE) for page in pages])


def same(a, b):
    """As bytes: random bytes are not all numbers."""
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def check(kind, layout):
    host = host_pool(kind, layout, layers=4, size=16 * PAGE)
    host.kv_buffer.view(torch.uint8).random_(0, 256)
    before = host.kv_buffer.clone()
    storage, _ = backend(kind == "mla")
    storage.register_mem_pool_host(host)
    assert storage._pages.layout is not None, "the pool is not regular"
    keys = [f"{i:064x}" for i in range(9)]
    sources, targets = [3, 1, 4, 15, 9, 2, 6, 5], [20, 21, 22, 23, 24, 25, 26, 27]
    old = [host.get_data_page(page * PAGE).clone() for page in sources]
    assert storage.batch_set_v1(keys[:8], slots(sources)) == [True] * 8
    assert storage.batch_exists(keys) == 8
    assert storage.batch_get_v1(keys, slots(targets + [28])) == [True] * 8 + [False]
    for page, bytes_ in zip(targets, old):
        assert same(host.get_data_page(page * PAGE), bytes_), f"{kind} {layout}: page {page} differs"
    for page in set(range(host.page_num)) - set(targets) - {28}:
        host.kv_buffer, now = before, host.kv_buffer
        was = host.get_data_page(page * PAGE).clone()
        host.kv_buffer = now
        assert same(host.get_data_page(page * PAGE), was), f"{kind} {layout}: page {page} was written"
    page = host.get_data_page(0).clone()
    assert storage.batch_set(["flat"], [page])
    out = [host.get_dummy_flat_data_page()]
    assert storage.batch_get(["flat"], out)[0] is not None and same(out[0], page)
    assert storage.batch_get(["none"], out) == [None]
    storage.close()
    assert storage.batch_exists(keys) == 0
    print(f"{kind} {layout}: 8 pages of {storage._pages.page_bytes} bytes are right", flush=True)


def measure(folder, layout, rounds, n=128):
    """Seconds of a set and of a get of n pages of 1 MiB: ours, and file's as SGLang calls it."""
    host = host_pool("mha", layout, layers=32, size=n * PAGE)
    assert host.page_size * host.size_per_token == 1 << 20
    host.kv_buffer.view(torch.uint8).random_(0, 256)
    storage, config = backend(pool="384M")
    storage.register_mem_pool_host(host)
    file = HiCacheFile(config, folder)
    file.register_mem_pool_host(host)
    at = slots(range(n))
    best = {}

    def timed(what, body):
        begin = time.perf_counter()
        assert body(), what
        best.setdefault(what, []).append(time.perf_counter() - begin)

    def file_set(keys):
        return file.batch_set(keys, [host.get_data_page(at[i * PAGE]) for i in range(n)])

    def file_get(keys):
        pages = file.batch_get(keys, [host.get_dummy_flat_data_page() for _ in keys])
        for i, page in enumerate(pages):
            host.set_from_flat_data_page(at[i * PAGE], page)
        return all(page is not None for page in pages)

    for one in range(rounds):
        keys = [f"{one:08x}{i:056x}" for i in range(n)]
        timed("kvcl set", lambda: all(storage.batch_set_v1(keys, at)))
        timed("kvcl get", lambda: all(storage.batch_get_v1(keys, at)))
        timed("kvcl exists", lambda: storage.batch_exists(keys) == n)
        timed("file set", lambda: file_set(keys))
        timed("file get", lambda: file_get(keys))
        timed("file exists", lambda: file.batch_exists(keys) == n)
        file.clear()
    storage.close()
    for what in ("set", "get", "exists"):
        kvcl, other = (sorted(best[f"{who} {what}"])[rounds // 2] for who in ("kvcl", "file"))
        print(f"{layout} {what}: kvcl {kvcl * 1e3:.2f} ms, file {other * 1e3:.2f} ms, ratio {other / kvcl:.1f}",
              flush=True)


parser = argparse.ArgumentParser()
parser.add_argument("--time", metavar="FOLDER")
parser.add_argument("--rounds", type=int, default=7)
args = parser.parse_args()
layouts = ("page_first", "page_first_direct", "layer_first")
if args.time:
    for one in layouts:
        measure(args.time, one, args.rounds)
else:
    for kind in ("mha", "mla"):
        for one in layouts:
            check(kind, one)
