"""What this library is, how it is set, what it sees."""

from typing import List, NamedTuple, Optional

from . import _kvcl


class Setting(NamedTuple):
    """One setting, as kvcl_info prints it."""

    name: str
    value: Optional[str]
    default: Optional[str]
    source: str
    help: str


def version() -> str:
    """The library's version, "0.1.0"."""
    return _kvcl.version()


def build() -> str:
    """One line that names the library's parts with their versions."""
    return _kvcl.build()


def settings() -> List[Setting]:
    """Every setting (environment variable).

    >>> import kvcl
    >>> [setting.default for setting in kvcl.settings() if setting.name == "KVCL_TIMEOUT"]
    ['30s']
    """
    return [Setting(*row) for row in _kvcl.settings()]


def colls() -> str:
    """The collective algorithms and the selection table, as text."""
    return _kvcl.colls()


def topology() -> str:
    """The machine as the library sees it, as text."""
    return _kvcl.topology()
