"""Options of the engines' modules: a table of them, reading what an engine was given, and printing the table. Pure."""

import dataclasses
import difflib
import os
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple

UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
LONGEST = 1e6      # seconds
MOST = 2**63 - 1   # of a whole number


def bytes_of(value: Any) -> int:
    """Bytes: 262144, "256K", "4G", "1 GiB"."""
    if isinstance(value, str):
        lower = value.strip().lower()
        digits = lower.rstrip("bikmgt ")
        unit = lower[len(digits):].strip().removesuffix("b").removesuffix("i")
        if not digits.isdecimal() or unit not in UNITS:
            raise ValueError("bytes are needed, such as 262144, 256K or 4G")
        value = int(digits) << UNITS[unit]
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("bytes are needed, such as 262144, 256K or 4G")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def number(value: Any) -> int:
    """A whole number, at least 0; also as a string."""
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if not _is_number(value) or not 0 <= value <= MOST or int(value) != value:
        raise ValueError("a number is needed, at least 0, without a fraction")
    return int(value)


def seconds(value: Any) -> float:
    """A number above 0."""
    if not _is_number(value):
        raise ValueError("a number is needed, of seconds")
    if not 0 < value <= LONGEST:
        raise ValueError(f"seconds are needed, above 0, at most {LONGEST:.0f}")
    return float(value)


def truth(value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise ValueError("true or false is needed")
    return value


def text(value: Any) -> str:
    """A string, or a path."""
    if not isinstance(value, (str, os.PathLike)):
        raise ValueError("a string is needed")
    return os.fspath(value)


@dataclasses.dataclass(frozen=True)
class Option:
    """One option. choices: what it may be. kind reads a value that was given, and raises ValueError; without it the
    default says the type: text, a whole number, or seconds. least, most: of whole numbers."""

    name: str
    default: Any
    help: str
    choices: Tuple[str, ...] = ()
    kind: Optional[Callable[[Any], Any]] = None
    least: int = 0
    most: int = MOST

    def read(self, given: Any) -> Any:
        if self.choices and given not in self.choices:
            raise ValueError(f"one of {', '.join(self.choices)} is possible")
        kind = self.kind or {str: text, int: number, float: seconds}[type(self.default)]
        value = kind(given)
        if isinstance(value, int) and not self.least <= value <= self.most:
            raise ValueError(f"{self.least} to {self.most} are possible")
        return value


def read(who: str, table: Sequence[Option], given: Mapping[str, Any]) -> Dict[str, Any]:
    """The value of every option of the table; None is as if it were not given. ValueError names what is wrong, with the
    nearest name of one that does not exist."""
    by_name = {option.name: option for option in table}
    values = {option.name: option.default for option in table}
    for name, value in given.items():
        if name not in by_name:
            near = difflib.get_close_matches(str(name), by_name, 1, 0.5)
            raise ValueError(f"{who}: there is no option {name!r}"
                             + (f": did you mean {near[0]!r}?" if near else f": there are {', '.join(by_name)}"))
        if value is None:
            continue
        try:
            values[name] = by_name[name].read(value)
        except ValueError as why:
            raise ValueError(f"{who}: option {name} is {value!r}: {why}") from None
    return values


def describe(table: Sequence[Option]) -> str:
    """A line for each option."""
    lines = []
    for option in table:
        default = f" (default {option.default})" if option.default not in ("", None) else ""
        lines.append(f"{option.name:20}{option.help}{default}")
    return "\n".join(lines)
