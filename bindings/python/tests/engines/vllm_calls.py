"""The connector's class against vLLM's own base class, without an engine: the calls that an engine makes, in their
order, over memory of this process. A version of vLLM that calls otherwise is noticed by name.
"""

import dataclasses
import faulthandler
import inspect
import os
import signal
import sys
import time
from types import SimpleNamespace as NS

import engine
import torch
import vllm.distributed.parallel_state as parallel_state
from engine import check, until
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorRole
from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash

LAYERS, BLOCKS, HEADS, TOKENS, CONTENT = [f"layer.{i}" for i in range(4)], 256, 2, 16, 32
PART = len(LAYERS) * TOKENS * CONTENT * 2

# The methods that an engine calls, with their parameters, as in vLLM 0.32.
GOLDEN = """
__init__(vllm_config, role, kv_cache_config)
bind_connector_metadata(connector_metadata)
bind_kv_cache_manager(kv_cache_manager)
build_connector_meta(scheduler_output)
build_connector_worker_meta()
build_kv_connector_stats(data)
build_prom_metrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)
clear_connector_metadata()
finish_forward()
get_block_ids_with_load_errors()
get_external_cache_hit_sources(request, num_external_tokens)
get_finished(finished_req_ids)
get_finished_count()
get_handshake_metadata()
get_kv_connector_kv_cache_events()
get_kv_connector_stats()
get_loaded_kv_cache_group_ids(request)
get_mem_pool_context()
get_num_new_matched_tokens(request, num_computed_tokens)
get_required_kvcache_layout(vllm_config)
get_transfer_results(finished_req_ids)
handle_preemptions(kv_connector_metadata)
has_connector_metadata()
has_pending_block_frees()
has_pending_push_work()
on_new_request(request)
register_finished_partial_tail(request, block_ids, partial_tail_offloads)
register_kv_caches(kv_caches)
request_finished(request, block_ids)
requires_piecewise_for_cudagraph(extra_config)
reset_cache()
reset_capture_state()
save_kv_layer(layer_name, kv_layer, attn_metadata, kwargs)
set_host_xfer_buffer_ops(copy_operation)
set_xfer_handshake_metadata(metadata)
set_xfer_handshake_metadata_pp_aware(metadata)
shutdown()
start_load_kv(forward_context, kwargs)
take_events()
update_connector_output(connector_output)
update_state_after_alloc(request, blocks, num_external_tokens)
wait_for_layer_load(layer_name)
wait_for_save()
bind_gpu_block_pool(gpu_block_pool)
""".split("\n")


def signatures():
    """As GOLDEN, of the vLLM that is installed."""
    out = []
    for name, method in inspect.getmembers(KVConnectorBase_V1, callable):
        if name == "__init__" or not name.startswith("_"):
            names = [one for one in inspect.signature(method).parameters if one not in ("self", "cls")]
            out.append(f"{name}({', '.join(names)})")
    return out


class FullAttentionSpec:
    block_size, num_kv_heads, page_size_bytes, dtype = TOKENS, HEADS, HEADS * TOKENS * CONTENT * 2, torch.bfloat16


class SlidingWindowSpec(FullAttentionSpec):
    sliding_window = 40


class Blocks:
    def __init__(self, ids):
        self.ids = ids

    def get_block_ids(self):
        return (self.ids,)


class Fake:
    """An engine: its memory, both sides of the connector, and one method for each step."""

    def __init__(self, role, overlap=False, events=True, other=None, **options):
        """overlap: of steps (asynchronous scheduling). events: stored blocks are told. other(config, kv) changes vLLM's
        configurations before the connector sees them."""
        from kvcl.vllm import KVCLConnector
        options = {"match_timeout": 60.0, "timeout": 60.0, **options}
        transfer = NS(kv_connector_extra_config=options, kv_load_failure_policy="",
                      is_kv_consumer=role != "kv_producer", is_kv_producer=role != "kv_consumer")
        config = NS(
            kv_transfer_config=transfer, kv_events_config=NS(enable_kv_cache_events=events),
            model_config=NS(use_mla=False, get_total_num_kv_heads=lambda: HEADS, model="m", revision=None,
                            quantization=None, dtype=torch.bfloat16, hf_text_config=NS(to_dict=dict),
                            max_model_len=2048),
            cache_config=NS(enable_prefix_caching=True, cache_dtype="auto", prefix_caching_hash_algo="sha256"),
            parallel_config=NS(tensor_parallel_size=1), device_config=NS(device_type="cpu"),
            scheduler_config=NS(async_scheduling=overlap))
        kv = NS(kv_cache_groups=[NS(kv_cache_spec=FullAttentionSpec(), layer_names=LAYERS)], num_blocks=BLOCKS,
                kv_cache_layout="LBHNC", hash_block_size=None)
        if other is not None:
            other(config, kv)
        self.memory = {name: torch.zeros(BLOCKS, HEADS, TOKENS, CONTENT, dtype=torch.bfloat16) for name in LAYERS}
        self.worker = KVCLConnector(config, KVConnectorRole.WORKER, kv)
        self.worker.register_kv_caches(self.memory)
        self.scheduler = KVCLConnector(config, KVConnectorRole.SCHEDULER, kv)
        self.spent, self.events, self.waited = [], [], []
        self.begun, self.zeroed = [], None  # loads under way when a step is prepared; blocks that vLLM zeroes then

    def ready(self):
        return self.scheduler._link.ready() and self.worker._link.ready()

    def step(self, new=(), counts=None, blocks=None, compute=None, preempted=()):
        """new: (request, tokens computed). counts: tokens of each request in this step. compute(layer) is the model."""
        table = blocks or {}
        output = NS(num_scheduled_tokens=counts or {}, preempted_req_ids=set(preempted), finished_req_ids=set(),
                    new_block_ids_to_zero=self.zeroed,
                    scheduled_new_reqs=[NS(req_id=one.request_id, num_computed_tokens=n) for one, n in new],
                    scheduled_cached_reqs=NS(req_ids=[], num_computed_tokens=[]),
                    kv_connector_block_state=NS(get_block_ids=lambda one: (table[one],) if one in table else None))
        begun = time.perf_counter()
        meta = self.scheduler.build_connector_meta(output)
        spent = time.perf_counter() - begun
        worker, waits = self.worker, any(load.waited for load in meta.work.loads)
        worker.handle_preemptions(meta)
        self.begun.append(len(worker._transfers._loading))
        worker.bind_connector_metadata(meta)
        if waits:
            worker.start_load_kv(NS())
        for i, name in enumerate(LAYERS):
            worker.wait_for_layer_load(name)
            if compute is not None:
                compute(i)
            worker.save_kv_layer(name, self.memory[name], None)
        worker.start_load_kv(NS())
        worker.wait_for_save()
        results = worker.get_transfer_results(set())
        failed = worker.get_block_ids_with_load_errors()
        worker.get_kv_connector_stats()
        out = NS(finished_sending=results.finished_sending, finished_recving=results.finished_recving,
                 invalid_block_ids=failed, kv_connector_worker_meta=worker.build_connector_worker_meta())
        worker.clear_connector_metadata()
        begun = time.perf_counter()
        self.scheduler.update_connector_output(out)
        self.events += self.scheduler.take_events()
        self.spent.append(spent + time.perf_counter() - begun)
        return out

    def matched(self, request, local=0):
        begun = time.monotonic()
        while (answer := self.scheduler.get_num_new_matched_tokens(request, local))[0] is None:
            assert time.monotonic() < begun + 60
            time.sleep(0.001)
        return answer

    def run(self, request, blocks, fill=None, local=0):
        """A request from its arrival to its end: (tokens from elsewhere, blocks that failed, what request_finished
        returned)."""
        self.scheduler.on_new_request(request)
        tokens, later = self.matched(request, local)
        self.waited += [not later] if tokens else []
        self.scheduler.update_state_after_alloc(request, Blocks(blocks), tokens)
        failed = set()
        if later:
            received = set()
            while request.request_id not in received:
                out = self.step()
                failed |= out.invalid_block_ids
                received = out.finished_recving
            self.scheduler.update_state_after_alloc(request, Blocks(blocks), 0)
        done = local + tokens
        compute = None if fill is None else lambda i: fill(i, blocks[done // TOKENS:])
        out = self.step([(request, done)], {request.request_id: request.num_tokens - done},
                        {request.request_id: blocks}, compute)
        failed |= out.invalid_block_ids
        return tokens, failed, self.scheduler.request_finished_all_groups(request, (blocks,))

    def fill(self, layer, blocks, salt=0):
        for block in blocks:
            self.memory[LAYERS[layer]][block] = torch.full((HEADS, TOKENS, CONTENT), block % 50 + layer + salt)

    def same(self, mine, other, theirs):
        return all(torch.equal(self.memory[name][mine], other.memory[name][theirs]) for name in LAYERS)


def request(name, n, params=None, salt="prompt"):
    import kvcl
    tokens = list(range(n))
    return NS(request_id=name, num_prompt_tokens=n, num_tokens=n, prompt_token_ids=tokens, all_token_ids=tokens,
              block_hashes=[kvcl.key_from_string(f"{salt} {i}") for i in range(n // TOKENS)], kv_transfer_params=params,
              cache_salt=None, lora_request=None, mm_features=[], status=NS(name="FINISHED_LENGTH_CAPPED"))


def store_calls(store):
    for options in ({}, {"load": "async"}, {"load": "sync"}, {"load": "sync", "by_layer": "yes"}):
        how = ", ".join(f"{a} {b}" for a, b in options.items()) or "load auto"
        fake = Fake("kv_both", store=store.file, tenant=how, **options)
        check(f"{how}: the store is taken up", until(fake.ready))
        tokens, _, (keep, _) = fake.run(request("a", 100), list(range(10, 17)), fake.fill)
        check(f"{how}: nothing is found in an empty store", tokens == 0, tokens)
        told, sent = fake.events, set()
        check(f"{how}: blocks are kept until they are saved", keep or told)
        until(lambda: sent.update(fake.step().finished_sending) or (told and (sent or not keep)))
        check(f"{how}: the request is named then", sent == ({"a"} if keep else set()), sent)
        check(f"{how}: the blocks are told as events", [len(one.block_hashes) for one in told] == [6] and
              told[0].token_ids == list(range(96)) and told[0].parent_block_hash is None, told)
        tokens, failed, _ = fake.run(request("b", 100), list(range(30, 37)), fake.fill)
        check(f"{how}: they are found and loaded", tokens == 96 and not failed, (tokens, failed))
        check(f"{how}: and have their bytes", fake.same(list(range(30, 36)), fake, list(range(10, 16))))
        tokens, _, _ = fake.run(request("c", 100), [*range(30, 33), *range(50, 54)], fake.fill, local=48)
        check(f"{how}: those beyond the engine's own", tokens == 48 and fake.same([50, 51, 52], fake, [13, 14, 15]))
        check(f"{how}: a step waits for them, or not", set(fake.waited) == {how != "load async"}, fake.waited)
        check(f"{how}: a reset is answered", fake.scheduler.reset_cache() is True)
        found, sent = [], set()
        for name in ("d", "e"):
            tokens, _, (keep, _) = fake.run(request(name, 100), list(range(70, 77)), fake.fill)
            found.append(tokens)
            until(lambda keep=keep, name=name: sent.update(fake.step().finished_sending) or name in sent or not keep)
        check(f"{how}: what was stored before is not found, but what is stored after", found == [0, 96], found)
        check(f"{how}: nothing failed inside", not fake.worker._told and not fake.scheduler._told)
        fake.worker.shutdown()
        fake.scheduler.shutdown()


def choice_calls(store):
    """When a step waits for its load, with load auto and sync."""
    fake = Fake("kv_both", store=store.file, tenant="choice")
    until(fake.ready)
    sent = set()
    keep = fake.run(request("a", 100), list(range(10, 17)), fake.fill)[2][0]
    until(lambda: sent.update(fake.step().finished_sending) or "a" in sent or not keep)
    other, table = request("other", 100, salt="other"), {"other": list(range(60, 67))}
    fake.scheduler.on_new_request(other)
    fake.step([(other, 0)], {"other": 100}, table)
    fake.run(request("b", 100), list(range(20, 27)))
    check("auto: no step waits while another request is computed", fake.waited == [False], fake.waited)
    fake.scheduler.request_finished_all_groups(other, (table["other"],))
    fake.step()
    fake.scheduler._engine = dataclasses.replace(fake.scheduler._engine, token_bytes=1 << 20)
    fake.run(request("c", 100), list(range(30, 37)))
    check("auto: nor for a load that is not short", fake.waited == [False, False], fake.waited)
    for side in (fake.worker, fake.scheduler):
        check("nothing failed inside", not side._told, side._told)
        side.shutdown()
    for errors, waits in (("recompute", False), ("fail", True)):
        fake = Fake("kv_both", overlap=True, store=store.file, tenant="choice", load="sync", load_errors=errors)
        until(fake.ready)
        tokens, failed, _ = fake.run(request("a", 100), list(range(30, 37)))
        check(f"sync: steps that overlap wait only if a failed load ends its request ({errors})",
              fake.waited == [waits] and tokens == 96 and not failed, (fake.waited, tokens, failed))
        check("and their loads begin when the step before has ended", not any(fake.begun[-1:]), fake.begun)
        fake.worker.shutdown()
        fake.scheduler.shutdown()


def lost_calls(store, options):
    """A block is lost between the lookup and the load that a step waits for. What the step computes is wrong, so that
    nothing of it is stored; what later ones compute is, once the scheduler knows."""
    how = ", ".join(f"{a} {b}" for a, b in options.items())
    fake = Fake("kv_both", overlap="load_errors" in options, store=store.file, tenant=f"lost {how}", **options)
    until(fake.ready)
    keep, sent = fake.run(request("a", 100), list(range(10, 17)), fake.fill)[2][0], set()
    until(lambda: sent.update(fake.step().finished_sending) or "a" in sent or not keep)
    one, blocks, client = request("b", 160), list(range(30, 40)), fake.worker._link.ready()

    def stored():
        has = client.wait(client.exists(fake.worker._keys(one.block_hashes)))
        return [all(has[at:at + HEADS]) for at in range(0, len(has), HEADS)]

    fake.scheduler.on_new_request(one)
    tokens, later = fake.matched(one)
    check(f"{how}: six blocks are found, and the step waits", tokens == 96 and not later, (tokens, later))
    client.wait(client.remove(fake.worker._keys(one.block_hashes[2:3])))
    fake.scheduler.update_state_after_alloc(one, Blocks(blocks), tokens)
    out = fake.step([(one, 96)], {"b": 64}, {"b": blocks}, lambda layer: fake.fill(layer, blocks[6:], 9))
    check(f"{how}: the third one fails", out.invalid_block_ids == {32}, out.invalid_block_ids)
    fake.worker._transfers.wait_saves()
    check(f"{how}: what the step computed is not stored", stored() == [True, True, False, True, True, True] +
          [False] * 4, stored())
    if "load_errors" not in options:
        fake.step([(one, 32)], {"b": 128}, {"b": blocks}, lambda layer: fake.fill(layer, blocks[2:]))
        until(lambda: fake.step() and all(stored()))
        check(f"{how}: what is computed again is", all(stored()), stored())
        tokens, failed, _ = fake.run(request("c", 161), list(range(50, 61)))
        check(f"{how}: and is loaded", tokens == 160 and not failed and
              fake.same(list(range(56, 60)), fake, list(range(36, 40))), (tokens, failed))
    for side in (fake.worker, fake.scheduler):
        check(f"{how}: nothing failed inside", not side._told, side._told)
        side.shutdown()


def differ(**changes):
    """What changes attributes of model_config, or of the part whose name a value's key begins with."""
    def other(config, kv):
        for name, value in changes.items():
            part, _, field = name.partition("__")
            if part == "spec":
                kv.kv_cache_groups[0].kv_cache_spec = type("FullAttentionSpec", (FullAttentionSpec,), {field: value})()
            elif part == "kv":
                setattr(kv, field, value)
            else:
                setattr(getattr(config, part), field, value)
    return other


# A field by which engines of one store differ: how the line names it, and what is changed.
OTHERS = [
    ("model is 'other' here and 'm' there", differ(model_config__model="other")),
    ("revision is 'b' here and '' there", differ(model_config__revision="b")),
    ("quantization is 'awq' here and '' there", differ(model_config__quantization="awq")),
    ("config is", differ(model_config__hf_text_config=NS(to_dict=lambda: {"rope_theta": 5}))),
    ("dtype is 'torch.float16' here and 'torch.bfloat16' there", differ(spec__dtype=torch.float16)),
    ("cache dtype is 'fp8' here and 'auto' there", differ(cache_config__cache_dtype="fp8")),
    (f"block size is {2 * TOKENS} here and {TOKENS} there", differ(spec__block_size=2 * TOKENS)),
    ("hash is 'xxhash' here and 'sha256' there", differ(cache_config__prefix_caching_hash_algo="xxhash")),
    ("tensor-parallel size is 2 here and 1 there",
     lambda config, kv: differ(parallel_config__tensor_parallel_size=2, kv__kv_cache_layout="BLNHC")(config, kv)),
]


def other_calls(store):
    """Engines that share a store and differ in a field: the later one finds nothing, and says which field."""
    lines = engine.Lines()
    for layout in ("LBHNC", "BLNHC"):  # in the other one the tensor-parallel size is a field
        lines.lines.clear()
        first = Fake("kv_both", store=store.file, tenant=f"others {layout}", other=differ(kv__kv_cache_layout=layout))
        until(first.ready)
        sent = set()
        keep = first.run(request("a", 100), list(range(10, 17)), first.fill)[2][0]
        until(lambda first=first, sent=sent, keep=keep: sent.update(first.step().finished_sending) or "a" in sent
              or not keep)
        same = Fake("kv_both", store=store.file, tenant=f"others {layout}", other=differ(kv__kv_cache_layout=layout))
        until(same.ready)
        same.scheduler.on_new_request(request("b", 100))
        found = same.matched(request("b", 100))[0]
        check(f"{layout}: an engine that differs in nothing finds the blocks, and says nothing",
              found > 0 and not lines.having("shares blocks with this one"), (found, lines.lines))
        same.worker.shutdown()
        same.scheduler.shutdown()
        for said, other in OTHERS:
            if ("tensor-parallel" in said) != (layout == "BLNHC"):
                continue
            lines.lines.clear()
            second = Fake("kv_both", store=store.file, tenant=f"others {layout}", other=other)
            until(lambda second=second: second.scheduler._link.ready())
            second.scheduler.on_new_request(request("b", 100))
            tokens, _ = second.matched(request("b", 100))
            told = [line for line in lines.having("shares blocks with this one") if said in line]
            check(f"an engine whose {said.partition(' is')[0]} differs finds nothing, and says so",
                  tokens == 0 and told, (tokens, lines.lines))
            second.worker.shutdown()
            second.scheduler.shutdown()
        first.worker.shutdown()
        first.scheduler.shutdown()


def option_calls(store):
    """Options that do not apply to a model with sliding windows, or to an engine, are not ignored in silence."""
    def windows(config, kv):
        kv.kv_cache_groups = [NS(kv_cache_spec=spec(), layer_names=LAYERS) for spec in (FullAttentionSpec,
                                                                                       SlidingWindowSpec)]

    lines = engine.Lines()
    for options, said in (({"store": store.file, "by_layer": "yes"}, "by_layer is yes, which a model with sliding"),
                          ({"store": store.file, "load": "sync"}, "load is sync, which a model with sliding windows"),
                          ({"store": "none"}, "option store is none, and a model with sliding windows")):
        lines.lines.clear()
        fake = Fake("kv_both", other=windows, **options)
        check(f"sliding windows: {said.partition(',')[0]}, and it says so", lines.having(said), lines.lines)
        fake.worker.shutdown()
        fake.scheduler.shutdown()
    fake = Fake("kv_both", other=differ(parallel_config__use_ubatching=True), store="none", by_layer="yes")
    check("micro-batches: by_layer is yes, and it says so", lines.having("by_layer is yes, which an engine of micro") and
          not fake.worker._by_layer and not fake.scheduler._plan._announces, lines.lines)
    fake.worker.shutdown()
    fake.scheduler.shutdown()


def fault_calls(store):
    """An exception inside the connector costs what it belongs to, is logged once, and ends nothing."""
    lines, sent = engine.Lines(), set()
    fake = Fake("kv_both", store=store.file, tenant="faults")
    until(fake.ready)

    def fails(*given, **more):
        raise RuntimeError("a fault of this test")

    ask, fake.scheduler._lookups.ask = fake.scheduler._lookups.ask, fails
    for name in ("a", "b"):
        tokens, _, (keep, _) = fake.run(request(name, 100), list(range(10, 17)), fake.fill)
        check("a lookup with a fault finds nothing", tokens == 0, tokens)
        until(lambda keep=keep, name=name: sent.update(fake.step().finished_sending) or name in sent or not keep)
    said = lines.having("get_num_new_matched_tokens failed: the engine goes on without it")
    check("it is logged once", len(said) == 1, lines.lines)
    fake.scheduler._lookups.ask = ask
    client = fake.worker._link.ready()
    client.get = fails
    tokens, failed, _ = fake.run(request("c", 100), list(range(30, 37)), fake.fill)
    check("a load with a fault fails, with its blocks", tokens == 96 and failed == set(range(30, 36)), (tokens, failed))
    del client.get
    tokens, failed, _ = fake.run(request("d", 100), list(range(50, 57)), fake.fill)
    check("and the next one does not", tokens == 96 and not failed, (tokens, failed))
    fake.worker.shutdown()
    fake.scheduler.shutdown()


def handover_calls():
    first, second = Fake("kv_producer", store="none"), Fake("kv_consumer", store="none", handover_timeout=5.0)
    first.scheduler.set_xfer_handshake_metadata_pp_aware({(0, 0): first.worker.get_handshake_metadata()})
    check("a rank's address is known before the first step", list(first.scheduler._plan.peers) == [0])
    check("a rank that nobody reads tells none", second.worker.get_handshake_metadata() is None)
    for turn, (n, local) in enumerate(((100, 0), (96, 0), (7, 0), (100, 32))):
        blocks = list(range(20, 20 + -(-n // TOKENS)))
        tokens, _, (keep, params) = first.run(request("p", n, {"do_remote_decode": True}), blocks, first.fill)
        check(f"handover of {n} tokens, {local} there: blocks are kept, and named", keep and
              params["kvcl_blocks"] == blocks, params)
        into = list(range(40, 40 + len(blocks)))
        tokens, failed, _ = second.run(request("d", n, params), into, local=local)
        check(f"handover of {n} tokens, {local} there: they are read", tokens == n - local - (turn > 0) and not failed,
              (tokens, failed))
        check("a step waits for an engine that was read before", second.waited[-1] == (turn > 0), second.waited)
        check("its read begins before the step is prepared", second.begun[-1] == (turn > 0), second.begun)
        check("with their bytes", second.same(into[local // TOKENS:], first, blocks[local // TOKENS:]))
        sent = set()
        check("and freed", until(lambda: sent.update(first.step().finished_sending) or "p" in sent))
    tokens, _, (keep, params) = first.run(request("p", 100, {"do_remote_decode": True}), blocks, first.fill)
    second.zeroed, into = into, list(range(60, 67))
    tokens, failed, _ = second.run(request("d", 100, params), into)
    check("but not if vLLM zeroes blocks then", second.begun[-1] == 0 and second.waited[-1] and not failed and
          second.same(into, first, blocks), (second.begun, failed))
    second.zeroed = None
    tokens, _, (keep, params) = first.run(request("p", 100, {"do_remote_decode": True}), blocks, first.fill)
    hidden = set()
    second.scheduler.bind_kv_cache_manager(NS(block_pool=None, get_block_ids=lambda one: ([200, *into, 201],),
                                              evict_blocks=hidden.update))
    tokens, failed, _ = second.run(request("d", 100, params, salt="another prompt"), into)
    check("another prompt: the blocks fail, and are computed", failed == set(into) and second.waited[-1], failed)
    check("and other requests do not find them meanwhile", hidden == {*into, 201}, hidden)
    first.worker.shutdown()
    tokens, failed, _ = second.run(request("d", 100, params), into)
    check("the engine is gone: the blocks fail, and are computed", failed == set(into) and not second.waited[-1],
          failed)
    for side in (second.worker, second.scheduler, first.scheduler):
        check("nothing failed inside", not side._told, side._told)
        side.shutdown()


def late_lease_calls(store):
    """A step has computed before it is known that the blocks it was handed are another prompt's: nothing is stored."""
    first = Fake("kv_producer", store="none", tenant="late")
    second = Fake("kv_both", store=store.file, tenant="late")
    until(second.ready)
    first.scheduler.set_xfer_handshake_metadata_pp_aware({(0, 0): first.worker.get_handshake_metadata()})
    blocks, into, transfers = list(range(20, 26)), list(range(40, 46)), second.worker._transfers
    ended, look, wait = [], transfers.peers._check, transfers.wait_loads

    def late(*given):
        while not ended:
            yield None
        yield from look(*given)

    def waiting():
        ended.append(True)
        wait()

    for turn in range(2):
        params = first.run(request("p", 96, {"do_remote_decode": True}), blocks, first.fill)[2][1]
        one = request(f"d {turn}", 96, params, salt="another prompt" if turn else "prompt")
        tokens, failed, _ = second.run(one, into)
        check(f"a handover whose lease is read late, {turn}: it fails if it is of another prompt",
              tokens and second.waited[-1] == (turn == 1) and failed == (set(into) if turn else set()),
              (tokens, failed))
        transfers.wait_saves()
        transfers.peers._check, transfers.wait_loads = late, waiting
    client = second.worker._link.ready()
    stored = client.wait(client.exists(second.worker._keys(one.block_hashes)))
    check("and nothing of what the step computed is stored", not any(stored), stored)
    for fake in (first, second):
        for side in (fake.worker, fake.scheduler):
            check("nothing failed inside", not side._told, side._told)
            side.shutdown()


def names_of(events, kind):
    """The blocks of all events of this kind."""
    return {name for one in events if type(one).__name__ == kind for name in one.block_hashes}


def event_calls():
    """Blocks that the store drops are told."""
    store = engine.Server(block=PART, file=os.path.abspath("events"), pool=str(24 * PART))
    fake = Fake("kv_both", store=store.file, timeout=5.0)
    until(fake.ready)
    first, second = request("a", 100), request("b", 192, salt="other")

    def told(kind, request):
        names = {maybe_convert_block_hash(one) for one in request.block_hashes}
        return lambda: fake.step() and names_of(fake.events, kind) >= names

    fake.run(first, list(range(10, 17)), fake.fill)
    check("blocks that were stored are told", until(told("BlockStored", first)), len(fake.events))
    check("and not as removed", not names_of(fake.events, "BlockRemoved"))
    fake.run(second, list(range(30, 42)), fake.fill)  # 24 blocks of the store, which has room for as many
    check("blocks that the store has evicted are told", until(told("BlockRemoved", first)), len(fake.events))
    check("and those that it has are not", until(told("BlockStored", second)) and not told("BlockRemoved", second)())
    fake.events.clear()
    store.end(signal.SIGKILL)
    check("all blocks of a killed server are told", until(told("BlockRemoved", second)), len(fake.events))
    for side in (fake.worker, fake.scheduler):
        check("nothing failed inside", not side._told, side._told)
        side.shutdown()


def times(store):
    """The scheduler's time in a step, with nothing to do and with 32 requests."""
    fake = Fake("kv_both", store=store.file, tenant="times")
    until(fake.ready)
    fake.spent.clear()
    for _ in range(300):
        fake.step()
    idle = sorted(fake.spent)[150]
    requests = [request(f"r{i}", 200, salt=f"salt {i}") for i in range(32)]
    table = {one.request_id: list(range(i, i + 13)) for i, one in enumerate(requests)}
    for one in requests:
        fake.scheduler.on_new_request(one)
    fake.step([(one, 0) for one in requests], {one.request_id: 200 for one in requests}, table)
    fake.spent.clear()
    for i in range(300):
        fake.step([(one, 200 + i) for one in requests], {one.request_id: 1 for one in requests}, table)
    busy = sorted(fake.spent)[150]
    asked = []
    for one in requests:
        begun = time.perf_counter()
        fake.scheduler.get_num_new_matched_tokens(one, 0)
        asked.append(time.perf_counter() - begun)
    print(f"scheduler's time in a step, median: {idle * 1e6:.1f} us with nothing to do, {busy * 1e6:.1f} us with 32 "
          f"requests; a question to the store {sorted(asked)[16] * 1e6:.1f} us", file=sys.stderr)
    fake.worker.shutdown()
    fake.scheduler.shutdown()


def main():
    faulthandler.dump_traceback_later(engine.LIMIT, exit=True)
    parallel_state.get_tensor_model_parallel_rank = lambda: 0
    known, found = {one for one in GOLDEN if one}, set(signatures())
    check("vLLM's interface is as it was", known == found,
          {"gone": sorted(known - found), "new": sorted(found - known)})
    store = engine.Server(block=PART, file=os.path.abspath("calls"))
    store_calls(store)
    choice_calls(store)
    for options in ({"load": "sync"}, {"load": "sync", "by_layer": "yes"}, {"load": "sync", "load_errors": "fail"}):
        lost_calls(store, options)
    other_calls(store)
    option_calls(store)
    fault_calls(store)
    handover_calls()
    late_lease_calls(store)
    event_calls()
    times(store)
    store.end()
    engine.end()


if __name__ == "__main__":
    main()
