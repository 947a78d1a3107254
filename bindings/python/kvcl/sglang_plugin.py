"""SGLang's plugin: it makes "kvcl" a choice of --disaggregation-transfer-backend (kvcl.sglang_disagg).

SGLang finds plugins by entry points of installed packages, in each of its processes, and kvcl's wheel has one. Where
kvcl was installed otherwise (make install), this makes a folder with the entry point, which PYTHONPATH then names:

    python -m kvcl.sglang_plugin FOLDER
"""

import os
import sys
from typing import Any

GROUP, ENTRY = "sglang.srt.plugins", "kvcl = kvcl.sglang_plugin:register"
BACKEND = "kvcl"


def register() -> None:
    """What SGLang calls. The transfer classes are imported when an engine first asks for them."""
    from sglang.srt.arg_groups import choices
    from sglang.srt.disaggregation import utils
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    if BACKEND in choices.DISAGG_TRANSFER_BACKEND_CHOICES:
        return
    choices.add_disagg_transfer_backend_choices([BACKEND])
    _add_member(utils.TransferBackend, BACKEND.upper(), BACKEND)
    HookRegistry.register("sglang.srt.disaggregation.utils.get_kv_class", _class_of, HookType.AROUND)


def _add_member(kind: Any, name: str, value: str) -> None:
    """SGLang's backends are an enumeration without a call that adds one."""
    member = object.__new__(kind)
    member._name_, member._value_ = name, value
    member.__objclass__ = kind
    member._sort_order_ = len(kind._member_names_)
    setattr(kind, name, member)
    kind._member_names_.append(name)
    kind._member_map_[name] = member
    kind._value2member_map_[value] = member


def _class_of(original: Any, transfer_backend: Any, class_type: Any) -> Any:
    """SGLang's get_kv_class(), with the classes of the backend kvcl."""
    if transfer_backend.value != BACKEND or class_type.value == "kvargs":
        return original(transfer_backend, class_type)
    from . import sglang_disagg
    return sglang_disagg.CLASSES.get(class_type.value)


def main() -> None:
    """Make the folder."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m kvcl.sglang_plugin FOLDER\n"
                 "Makes FOLDER/kvcl_sglang.dist-info, by which SGLang finds the plugin: put FOLDER into PYTHONPATH.")
    about = os.path.join(sys.argv[1], "kvcl_sglang.dist-info")
    os.makedirs(about, exist_ok=True)
    for name, text in (("METADATA", "Metadata-Version: 2.1\nName: kvcl-sglang\nVersion: 1\n"),
                       ("entry_points.txt", f"[{GROUP}]\n{ENTRY}\n")):
        with open(os.path.join(about, name), "w", encoding="ascii") as file:
            file.write(text)
    print(f"SGLang finds the plugin with PYTHONPATH={os.path.abspath(sys.argv[1])}")


if __name__ == "__main__":
    main()
