"""The calls between engines or torch and kvcl, read in the installed sources, beside those in calls.golden: a version
with another contract is noticed by name, before it fails in a serving process. (vLLM's connector: vllm_calls.py.)

calls.py [--nixl TREE] GOLDEN FOLDER...: FOLDERs are site-packages, TREE is a checkout of NIXL, since no wheel has its
headers. --write: write what is found into GOLDEN. Needs no package of theirs.
"""

import argparse
import ast
import os
import re
import sys

# (module, what holds the backend): the calls on it.
CALLS = [
    ("lmcache", "lmcache/v1/distributed/l2_adapters/native_connector_l2_adapter.py", ("_client", "native_client")),
    ("lmcache", "lmcache/v1/storage_backend/connector/mooncakestore_connector.py", ("store",)),
    ("sglang", "sglang/srt/mem_cache/storage/mooncake_store/mooncake_store.py", ("store",)),
    ("sglang", "sglang/srt/managers/cache_controller.py", ("storage_backend",)),
    ("sglang", "sglang/srt/mem_cache/hybrid_cache/hybrid_cache_controller.py", ("storage_backend",)),
    ("sglang", "sglang/srt/disaggregation/mooncake/conn.py", ("engine",)),
    ("vllm", "vllm/distributed/kv_transfer/kv_connector/v1/nixl/base_worker.py", ("nixl_wrapper",)),
    ("vllm", "vllm/distributed/kv_transfer/kv_connector/v1/nixl/pull_worker.py", ("nixl_wrapper",)),
    ("vllm", "vllm/distributed/kv_transfer/kv_connector/v1/nixl/push_worker.py", ("nixl_wrapper",)),
]
# Functions that the other side must have as they are: (module, file, class, names or None: all).
METHODS = [
    ("lmcache", "lmcache/v1/distributed/l2_adapters/native_plugin_l2_adapter.py", "NativePluginL2AdapterConfig",
     ("__init__",)),
    ("sglang", "sglang/srt/mem_cache/hicache_storage.py", "HiCacheStorage", None),
    ("sglang", "sglang/srt/mem_cache/hicache_storage.py", "HiCacheStorageConfig", None),
    ("sglang", "sglang/srt/mem_cache/hicache_storage.py", "PoolTransfer", None),
    ("sglang", "sglang/srt/mem_cache/hicache_storage.py", "PoolTransferResult", None),
    ("sglang", "sglang/srt/mem_cache/pool_host/mha.py", "MHATokenToKVPoolHost", ("get_page_buffer_meta",)),
    ("sglang", "sglang/srt/mem_cache/pool_host/mla.py", "MLATokenToKVPoolHost", ("get_page_buffer_meta",)),
    ("sglang", "sglang/srt/disaggregation/mooncake/conn.py", "MooncakeKVManager",
     ("__init__", "init_engine", "_publish_peer_registration", "register_buffer_to_engine")),
    ("sglang", "sglang/srt/disaggregation/common/conn.py", "CommonKVManager",
     ("conclude_failure", "parse_kv_status_message", "record_failure", "update_status")),
    ("sglang", "sglang/srt/disaggregation/common/conn.py", "CommonKVReceiver",
     ("clear", "disconnect_endpoint", "send_metadata")),
    ("sglang", "sglang/srt/plugins/hook_registry.py", "HookRegistry", ("register",)),
    ("vllm", "vllm/v1/kv_offload/tiering/base.py", "SecondaryTierManager", None),
    ("vllm", "vllm/v1/kv_offload/tiering/base.py", "TransferJob", None),
    ("vllm", "vllm/v1/kv_offload/tiering/base.py", "JobResult", None),
    ("vllm", "vllm/v1/kv_offload/tiering/async_lookup.py", "AsyncLookupManager",
     ("__init__", "batch_lookup", "lookup", "flush", "drain_results", "mark_miss", "cleanup", "shutdown")),
    ("vllm", "vllm/distributed/kv_transfer/kv_connector/v1/metrics.py", "KVConnectorStats", None),
    ("vllm", "vllm/distributed/kv_transfer/kv_connector/v1/metrics.py", "KVConnectorPromMetrics", None),
    ("nixl_cu13", "nixl_cu13/_api.py", "nixl_agent_config", ("__init__",)),
    ("nixl_cu13", "nixl_cu13/_api.py", "nixl_agent",
     ("__init__", "add_remote_agent", "check_remote_metadata", "check_xfer_state", "create_backend",
      "deregister_memory", "get_agent_metadata", "get_new_notifs", "get_plugin_params", "get_reg_descs",
      "get_xfer_descs", "get_xfer_telemetry", "initialize_xfer", "make_connection", "make_prepped_xfer",
      "prep_xfer_dlist", "register_memory", "release_dlist_handle", "release_xfer_handle", "remove_remote_agent",
      "send_notif", "transfer")),
    ("torch", "torch/_C/_distributed_c10d.pyi", "ProcessGroup",
     ("all_gather_single", "all_gather_single_coalesced", "all_to_all_single", "allgather", "allreduce",
      "allreduce_coalesced", "alltoall", "barrier", "broadcast", "gather", "recv", "recv_anysource", "reduce",
      "reduce_scatter", "reduce_scatter_single", "reduce_scatter_single_coalesced", "scatter", "send")),
]
# Of NIXL's headers, by which bindings/nixl is compiled: all virtual functions of the engine, and what else it is called
# by or reads.
NIXL = "src/api/cpp/backend"
MEMBERS = [("backend_aux.h", "nixlBackendInitParams"), ("backend_aux.h", "nixlBackendOptionalArgs"),
           ("backend_plugin.h", "nixlBackendPlugin")]


def name_of(node):
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None


def calls_in(tree, holders):
    """Each call of a method of a holder: its arguments as they are written; names asked for by getattr(), and of
    methods and fields that are taken without a call."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in called and name_of(node.value) in holders:
            yield f"takes {node.attr}"
        if not isinstance(node, ast.Call):
            continue
        func = node.func
        if isinstance(func, ast.Attribute) and name_of(func.value) in holders:
            given = [str(i) for i in range(len(node.args))] + [f"{one.arg}=" for one in node.keywords]
            yield f"calls {func.attr}({', '.join(given)})"
        elif name_of(func) in ("getattr", "hasattr") and name_of(node.args[0]) in holders and \
                isinstance(node.args[1], ast.Constant):
            yield f"calls {name_of(func)} {node.args[1].value}"


def methods_in(tree, name, wanted):
    for node in ast.walk(tree):
        if not (isinstance(node, ast.ClassDef) and node.name == name):
            continue
        for one in node.body:
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and (wanted is None or one.name in wanted):
                names = [arg.arg for arg in one.args.posonlyargs + one.args.args + one.args.kwonlyargs]
                yield f"{name}.{one.name}({', '.join(arg for arg in names if arg != 'self')})"
            elif isinstance(one, ast.AnnAssign) and wanted is None:
                yield f"{name}.{one.target.id}"


def class_in(text, name):
    """The body of a C++ class or struct, without comments."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    found = re.search(rf"\b(?:class|struct) {name}\b[^;{{]*\{{(.*?)\n\}};", text, re.S)
    return found[1] if found else ""


def plain(text):
    """C++ with one form of spaces."""
    text = re.sub(r" ?([(),]) ?", r"\1", " ".join(text.split()))
    text = re.sub(r" ?([&*]+) ?", r" \1", text).replace(",", ", ")
    return re.sub(r"\)(?=\w)", ") ", re.sub(r" ?= ?", " = ", text))


def headers_of(tree):
    """What the plugin for NIXL implements, is called by and reads."""
    def header(name):
        with open(os.path.join(tree, NIXL, name), encoding="utf-8") as file:
            return file.read()

    for one in re.findall(r"\bvirtual ([^;{]*)[;{]", class_in(header("backend_engine.h"), "nixlBackendEngine")):
        yield f"nixl: has nixlBackendEngine: virtual {plain(one)}"
    for file, name in MEMBERS:
        for one in re.sub(r"\bpublic:", "", class_in(header(file), name)).split(";")[:-1]:
            yield f"nixl: has {name}: {plain(one)}"
    for one in re.findall(r"^#define NIXL_PLUGIN_API_VERSION .*", header("backend_plugin.h"), re.M):
        yield f"nixl: has {one[8:].strip()}"


def read(folders, file):
    for folder in folders:
        path = os.path.join(folder, file)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as source:
                return ast.parse(source.read())
    return None


def found_in(folders):
    """({package: lines}, packages that are not there)"""
    out, absent = {}, set()
    for package, file, *more in CALLS + METHODS:
        if read(folders, f"{package}/__init__.py") is None:
            absent.add(package)
            continue
        tree = read(folders, file)
        if tree is None:
            lines = {f"{package}: there is no {file}"}
        elif len(more) == 1:
            lines = {f"{package}: {one}" for one in calls_in(tree, more[0])}
        else:
            lines = {f"{package}: has {one}" for one in methods_in(tree, *more)}
        out.setdefault(package, set()).update(lines)
    return out, absent


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--nixl", metavar="TREE")
    parser.add_argument("golden")
    parser.add_argument("folders", nargs="+")
    args = parser.parse_args()
    found, absent = found_in(args.folders)
    if args.nixl is not None:
        found["nixl"] = set(headers_of(args.nixl))
    if args.write:
        with open(args.golden, "w", encoding="ascii") as file:
            file.write("".join(f"{one}\n" for lines in found.values() for one in sorted(lines)))
        return 0
    with open(args.golden, encoding="ascii") as file:
        golden = set(file.read().splitlines())
    failed = 0
    for package, lines in found.items():
        known = {one for one in golden if one.startswith(f"{package}: ")}
        for what, names in (("no longer", known - lines), ("new", lines - known)):
            for one in sorted(names):
                failed += 1
                print(f"FAIL {what}: {one}")
        if known == lines:
            print(f"ok   the calls of {package} are as they were: {len(lines)}")
    for package in sorted(absent):
        print(f"SKIP: there is no {package}")
    if args.nixl is None:
        print("SKIP: NIXL's headers, of which its plugin is made: no checkout of NIXL is named (CI_NIXL_TREE)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
