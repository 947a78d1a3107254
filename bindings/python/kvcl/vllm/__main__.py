"""python -m kvcl.vllm: print the connector's options."""

from . import describe

print(describe())
