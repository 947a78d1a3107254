"""The options of the connector (kv_connector_extra_config): the table, and what they ask of each other. Pure."""

from typing import Any, Dict, Mapping

from .. import _options
from .._options import Option

OPTIONS = (
    Option("store", "", "the file with the address of kvcl_serve (its --clients); required. It may appear later. "
           "Files of several ranks, with commas: the engine changes to another one when its own is lost or silent. "
           "none: no store, for prefill and decode apart with handover direct"),
    Option("secret_file", "", "the job's secret; default: KVCL_SECRET_FILE"),
    Option("path", "", "auto, shm, tcp or rdma; default: KVCL_PATH", ("auto", "shm", "tcp", "rdma")),
    Option("tenant", "", "engines of different tenants share no blocks"),
    Option("tenant_secret_file", "", "a file whose bytes are mixed into all keys: without it a tenant's keys can "
           "neither be found nor guessed"),
    Option("model", "", "the name by which engines know that they run the same weights; default: the model's name or "
           "path as vLLM was given it"),
    Option("load", "auto", "async: other requests run while blocks are loaded; sync: the step that needs them waits; "
           "auto: it waits if no other request runs and the load is short", ("auto", "async", "sync")),
    Option("by_layer", "no", "yes: save each layer of a block while the next ones are computed, or let a decode engine "
           "read it; with load sync, wait for each layer where it is needed. CUDA graphs are then split at the layers",
           ("no", "yes")),
    Option("save", "prompt", "prompt: blocks of prompts; all: those of generated tokens too; none",
           ("prompt", "all", "none")),
    Option("load_errors", "recompute", "what vLLM does with a request whose load failed (kv_load_failure_policy): "
           "recompute its blocks, or fail it", ("recompute", "fail")),
    Option("min_tokens", 0, "do not load less than so many tokens"),
    Option("timeout", 10.0, "seconds that a transfer may take"),
    Option("match_timeout", 1.0, "seconds that a request waits for the store's answer before it is computed"),
    Option("handover", "direct", "direct: a decode engine reads the blocks of a prompt out of the prefill engine's "
           "memory; store: out of the store", ("direct", "store")),
    Option("handover_timeout", 30.0, "seconds that a decode engine waits for the blocks of a prefill engine before it "
           "computes the prompt itself, and that a prefill engine keeps them"),
    Option("retry", 1.0, "seconds between attempts to connect"),
)


def read(given: Mapping[str, Any]) -> Dict[str, Any]:
    """The value of every option. ValueError names what is wrong."""
    out = _options.read("kv_connector_extra_config", OPTIONS, given)
    files = [one.strip() for one in out["store"].split(",")]
    if not all(files):
        raise ValueError("option store is missing: name the file that kvcl_serve --clients writes")
    if "none" in files and len(files) > 1:
        raise ValueError(f"option store is {out['store']!r}: none and files exclude each other (./none is a file of "
                         "that name)")
    out["store"] = ",".join(files)
    if out["store"] == "none" and out["handover"] != "direct":
        raise ValueError("option store is none: handover store needs one")
    return out


def describe() -> str:
    """A line for each option, as `python -m kvcl.vllm` prints it."""
    return _options.describe(OPTIONS)
