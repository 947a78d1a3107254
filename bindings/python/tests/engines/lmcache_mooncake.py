"""LMCache's own connector for Mooncake (remote_url mooncakestore://), unchanged, over kvcl.compat.mooncake: whole
LMCacheEngines without a model, whose "GPU" is a tensor of the host. One process stores, another one looks up and loads,
through a kvcl_serve of each form of LMCache's values: bytes alone, out of and into LMCache's registered memory, and
bytes behind LMCache's own header. Every byte is compared. The kvcl_serve is killed, and the next one is used.

lmcache_mooncake.py [store | load]
"""

import faulthandler
import json
import os
import signal
import subprocess
import sys
import traceback

import engine
from engine import check, until

LAYERS, HEADS, HEAD, CHUNK = 4, 2, 64, 256  # CHUNK: tokens of a value
VALUE = 2 * LAYERS * CHUNK * HEADS * HEAD * 2  # bytes of bf16
HEADER = 4 * 7  # LMCache's, before a value
FORMS = {"bare": VALUE, "headed": VALUE + HEADER}  # save_chunk_meta: false and true
TOKENS = list(range(3, 3 + 3 * CHUNK + 100))  # three chunks and a part, which is stored by itself only if asked for
HITS = 3 * CHUNK


def kv(tokens):
    """What a model might compute: the same in each process."""
    import torch
    torch.manual_seed(sum(tokens))
    return torch.randn(2, LAYERS, len(tokens), HEADS * HEAD).to(torch.bfloat16)


def copier():
    """LMCache has no connector for a CPU: this one takes the tensor as the argument kv of store() and retrieve()."""
    import torch
    from lmcache.v1.gpu_connector.gpu_connectors import GPUConnectorInterface

    class Copier(GPUConnectorInterface):
        def from_gpu(self, memory_obj, start, end, **more):
            memory_obj.tensor.copy_(more["kv"][:, :, start:end])

        def to_gpu(self, memory_obj, start, end, **more):
            more["kv"][:, :, start:end].copy_(memory_obj.tensor)

        def batched_from_gpu(self, memory_objs, starts, ends, **more):
            for each in zip(memory_objs, starts, ends):
                self.from_gpu(*each, **more)

        def batched_to_gpu(self, memory_objs=None, starts=None, ends=None, **more):
            for each in zip(memory_objs, starts, ends):
                self.to_gpu(*each, **more)

        def get_shape(self, num_tokens):
            return torch.Size([2, LAYERS, num_tokens, HEADS * HEAD])

    return Copier()


class Cache:
    """An LMCacheEngine over mooncakestore://, as its user configures it."""

    def __init__(self, form, kvcl, segment="0", **settings):
        """kvcl: the options of KVCL. segment: setup()'s global_segment_size."""
        import torch
        from lmcache.utils import mock_up_broadcast_fn, mock_up_broadcast_object_fn
        from lmcache.v1.cache_engine import LMCacheEngine
        from lmcache.v1.config import LMCacheEngineConfig
        from lmcache.v1.metadata import LMCacheMetadata
        from lmcache.v1.token_database import ChunkedTokenDatabase
        os.environ["MOONCAKE_KVCL"] = json.dumps({"timeout": 20, **kvcl})
        self.config = LMCacheEngineConfig.from_defaults(
            chunk_size=CHUNK, local_cpu=False, max_local_cpu_size=0.125, remote_serde="naive",
            remote_url="mooncakestore://unused:50051", extra_config={
                "save_chunk_meta": form == "headed", "transfer_timeout": 60, "mooncake_prefer_local_alloc": True,
                "mooncake_local_hostname": "localhost", "mooncake_metadata_server": "P2PHANDSHAKE",
                "mooncake_master_server_address": "unused:50051", "mooncake_global_segment_size": segment}, **settings)
        self.metadata = LMCacheMetadata(
            model_name="m", world_size=1, local_world_size=1, worker_id=0, local_worker_id=0, kv_dtype=torch.bfloat16,
            kv_shape=(LAYERS, 2, CHUNK, HEADS, HEAD), chunk_size=CHUNK)
        self.tokens_of = ChunkedTokenDatabase(self.config, self.metadata)
        self.lmcache = LMCacheEngine(self.config, self.metadata, self.tokens_of, copier(), mock_up_broadcast_fn,
                                     mock_up_broadcast_object_fn)
        self.lmcache.post_init()
        self.remote = self.lmcache.storage_manager.storage_backends["RemoteBackend"]
        self.connector = self.remote.connection.getWrappedConnector()
        self.puts, ended = 0, self.remote.batched_put_callback

        def counted(future, keys):
            ended(future, keys)
            self.puts += 1

        self.remote.batched_put_callback = counted

    def keys(self, tokens):
        return [key for _, _, key in self.tokens_of.process_tokens(tokens)]

    def store(self, tokens):
        """store(), and wait until the put that it has begun has ended."""
        before = self.puts
        self.lmcache.store(tokens, kv=kv(tokens))
        return until(lambda: self.puts > before, engine.LIMIT)

    def lookup(self, tokens):
        return self.lmcache.lookup(tokens)

    def retrieve(self, tokens):
        """The tokens that have arrived, and whether these, and no other bytes, are what was stored."""
        import torch
        out = torch.zeros(2, LAYERS, len(tokens), HEADS * HEAD, dtype=torch.bfloat16)
        n = int(self.lmcache.retrieve(tokens, kv=out).sum())
        want = kv(tokens)
        want[:, :, n:] = 0
        return n, torch.equal(out.view(torch.int16), want.view(torch.int16))

    def run(self, coroutine):
        """A call of the connector, in the loop where LMCache runs it."""
        import asyncio
        return asyncio.run_coroutine_threadsafe(coroutine, self.remote.loop).result(engine.LIMIT)

    def close(self):
        self.lmcache.close()


def single(cache, form):
    """The connector's calls that the engine does not make."""
    import torch
    key, other = cache.keys(list(range(7, 7 + CHUNK)))[0], cache.keys(list(range(8, 8 + CHUNK)))[0]
    one = cache.remote.local_cpu_backend.allocate(cache.connector.meta_shapes, cache.connector.meta_dtypes,
                                                  cache.connector.meta_fmt)
    one.tensor.copy_(kv(list(range(CHUNK))))
    check(f"{form}: an absent key", not cache.run(cache.connector.exists(key)))
    cache.remote.submit_put_task(key, one).result(engine.LIMIT)
    check(f"{form}: one value is put", cache.run(cache.connector.exists(key)) and cache.connector.exists_sync(key))
    many = cache.keys(TOKENS[:HITS])
    check(f"{form}: leading keys are counted", cache.run(
        cache.connector.batched_async_contains("a", [*many, key, other, key])) == 4)
    found = cache.run(cache.connector.batched_get([other, key]))
    check(f"{form}: an absent value costs no other one",
          found[0] is None and torch.equal(found[1].raw_tensor, one.raw_tensor), found)
    found[1].ref_count_down()
    one.ref_count_down()


def alone(form):
    """A pool in LMCache's process, whose size is Mooncake's setting, and values of any length."""
    cache = Cache(form, {"block": VALUE // 4}, str(64 << 20), save_unfull_chunk=True)
    check(f"{form}, alone: values of any length are stored", cache.store(TOKENS))
    check(f"{form}, alone: and found", cache.lookup(TOKENS) == len(TOKENS), cache.lookup(TOKENS))
    got = cache.retrieve(TOKENS)
    check(f"{form}, alone: and loaded", got == (len(TOKENS), True), got)
    cache.close()


def store():
    for form, block in FORMS.items():
        cache = Cache(form, {"store": os.path.abspath(form), "block": block})
        check(f"{form}: LMCache's memory is registered", cache.connector.registered_buffer_ptr)
        check(f"{form}: an empty store has nothing", cache.lookup(TOKENS) == 0)
        check(f"{form}: chunks are stored", cache.store(TOKENS))
        cache.close()
        check(f"{form}: closed", cache.connector.store.health_check() == 0)
        alone(form)
    engine.end()


def load():
    from lmcache.v1.lookup_client.mooncake_lookup_client import MooncakeLookupClient
    for form, block in FORMS.items():
        cache = Cache(form, {"store": os.path.abspath(form), "block": block})
        client = MooncakeLookupClient(cache.config, cache.metadata, "unused:50051")
        check(f"{form}: another process finds the chunks", cache.lookup(TOKENS) == HITS, cache.lookup(TOKENS))
        check(f"{form}: so does LMCache's lookup client", client.lookup(TOKENS) == HITS, client.lookup(TOKENS))
        got = cache.retrieve(TOKENS)
        check(f"{form}: and loads them", got == (HITS, True), got)
        other = TOKENS[:2 * CHUNK] + TOKENS[5:]
        check(f"{form}: of another prompt the common chunks", cache.lookup(other) == 2 * CHUNK == client.lookup(other))
        single(cache, form)

        write(f"{form}.kill")
        check(f"{form}: the kvcl_serve is killed", until(lambda: os.path.exists(f"{form}.killed")))
        got = cache.retrieve(TOKENS)
        check(f"{form}: without it nothing is found", got == (0, True) and cache.lookup(TOKENS) == 0, got)
        check(f"{form}: and storing harms nothing", cache.store(TOKENS))
        write(f"{form}.start")
        check(f"{form}: the next one is used", until(lambda: cache.connector.store.health_check() == 1, engine.LIMIT))
        check(f"{form}: it has nothing", cache.lookup(TOKENS) == 0)
        check(f"{form}: chunks are stored again", cache.store(TOKENS))
        got = cache.retrieve(TOKENS)
        check(f"{form}: and loaded", got == (HITS, True), got)
        cache.close()
        client.store.close()
    engine.end()


def write(name):
    with open(name, "w", encoding="ascii"):
        pass


def main():
    faulthandler.dump_traceback_later(engine.LIMIT, exit=True)
    if len(sys.argv) > 1:
        try:
            return {"store": store, "load": load}[sys.argv[1]]()
        except BaseException:  # noqa: B902: LMCache's threads would keep the process
            traceback.print_exc()
            os._exit(1)
    servers = {form: engine.Server(form, block=block) for form, block in FORMS.items()}
    environment = {**os.environ, "PYTHONHASHSEED": "0"}  # LMCache's keys of equal tokens are equal with it alone
    children = []
    try:
        for step in ("store", "load"):
            children.append(subprocess.Popen([sys.executable, __file__, step], env=environment))
            for form in FORMS if step == "load" else ():
                until(lambda: os.path.exists(f"{form}.kill") or children[-1].poll() is not None, engine.LIMIT)
                servers[form].end(signal.SIGKILL)
                write(f"{form}.killed")
                until(lambda: os.path.exists(f"{form}.start") or children[-1].poll() is not None, engine.LIMIT)
                servers[form] = engine.Server(form, block=FORMS[form])
            children[-1].wait(engine.LIMIT)
    finally:
        for child in children:
            child.kill()
            child.wait()
        for one in servers.values():
            one.end()
    return sum(child.returncode != 0 for child in children)


if __name__ == "__main__":
    sys.exit(main())
