"""SGLang's own backend mooncake_store over kvcl.compat.mooncake, by the test that SGLang ships for it, unchanged."""

import os
import runpy

os.environ.setdefault("MOONCAKE_KVCL", '{"block": "8K"}')
os.environ.update(MOONCAKE_MASTER="unused:1", MOONCAKE_TE_META_DATA_SERVER="unused",
                  MOONCAKE_GLOBAL_SEGMENT_SIZE=str(256 << 20))


def main():
    from kvcl.compat import mooncake
    mooncake.install()
    runpy.run_module("sglang.srt.mem_cache.storage.mooncake_store.test_mooncake_store", run_name="__main__")


if __name__ == "__main__":
    main()
