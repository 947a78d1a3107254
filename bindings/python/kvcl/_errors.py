"""The library's statuses as exceptions. Each is also the built-in exception of the same meaning, if one exists."""

import enum
from typing import Dict, Type

from . import _kvcl

class Status(enum.IntEnum):
    """The status of a call or an operation, as in kvcl_status.h: OK 0, INPROGRESS 1, errors negative."""

    OK = 0
    INPROGRESS = 1
    ERR_INVALID_PARAM = -1
    ERR_NO_MEMORY = -2
    ERR_NO_SPACE = -3
    ERR_NOT_FOUND = -4
    ERR_UNKNOWN_RANK = -5
    ERR_NOT_REGISTERED = -6
    ERR_BAD_LAYOUT = -7
    ERR_OUT_OF_RANGE = -8
    ERR_ACCESS = -9
    ERR_CANCELED = -10
    ERR_TIMED_OUT = -11
    ERR_RANK_FAILED = -12
    ERR_UNREACHABLE = -13
    ERR_BUSY = -14
    ERR_EXISTS = -15
    ERR_STALE = -16
    ERR_TRUNCATED = -17
    ERR_AUTH = -18
    ERR_VERSION = -19
    ERR_UNSUPPORTED = -20
    ERR_IO = -21
    ERR_PROTOCOL = -22
    ERR_SHUTDOWN = -23
    ERR_INTERNAL = -24
    ERR_WAIT_TIMEOUT = -25
    ERR_DEAD_HANDLE = -26
    ERR_NO_QUORUM = -27
    ERR_REVOKED = -28


class KvclError(Exception):
    """A call or an operation failed. status is the cause; the text is the library's sentence.

    >>> import kvcl
    >>> try:
    ...     kvcl.Layout(layers=0)
    ... except kvcl.BadLayout as error:
    ...     error.status.name
    'ERR_BAD_LAYOUT'
    """

    status: Status = Status.ERR_INTERNAL


class InProgress(KvclError, TimeoutError):
    """The request has not completed: it continues."""

    status = Status.INPROGRESS


class WaitTimeout(InProgress):
    """The wait's time is up; the request continues."""

    status = Status.ERR_WAIT_TIMEOUT


class InvalidParam(KvclError, ValueError):
    """A parameter, or a KVCL_* variable, is invalid."""

    status = Status.ERR_INVALID_PARAM


class NoMemory(KvclError, MemoryError):
    """Out of memory."""

    status = Status.ERR_NO_MEMORY


class NoSpace(KvclError):
    """No free space in the pool, table or buffer."""

    status = Status.ERR_NO_SPACE


class NotFound(KvclError, LookupError):
    """No such key or object."""

    status = Status.ERR_NOT_FOUND


class UnknownRank(KvclError, LookupError):
    """No such rank in this communicator."""

    status = Status.ERR_UNKNOWN_RANK


class NotRegistered(KvclError):
    """The peer has no such cache or memory."""

    status = Status.ERR_NOT_REGISTERED


class BadLayout(KvclError, ValueError):
    """A layout is invalid, or the two sides' do not match."""

    status = Status.ERR_BAD_LAYOUT


class OutOfRange(KvclError, IndexError):
    """A block id or an offset is out of range."""

    status = Status.ERR_OUT_OF_RANGE


class AccessDenied(KvclError):
    """The access right is missing or was revoked."""

    status = Status.ERR_ACCESS


class Canceled(KvclError):
    """The operation was canceled."""

    status = Status.ERR_CANCELED


class TimedOut(KvclError, TimeoutError):
    """The operation's deadline passed. Final: nothing touches its buffers any more."""

    status = Status.ERR_TIMED_OUT


class RankFailed(KvclError, ConnectionError):
    """A rank failed."""

    status = Status.ERR_RANK_FAILED


class Unreachable(KvclError, ConnectionError):
    """The peer cannot be reached."""

    status = Status.ERR_UNREACHABLE


class Busy(KvclError):
    """The object is in use."""

    status = Status.ERR_BUSY


class Exists(KvclError):
    """An object of that name exists."""

    status = Status.ERR_EXISTS


class Stale(KvclError):
    """Incarnation, generation or view is out of date."""

    status = Status.ERR_STALE


class Truncated(KvclError, ValueError):
    """The message is longer than the buffer, or the two sides select different sizes."""

    status = Status.ERR_TRUNCATED


class AuthFailed(KvclError, ConnectionError):
    """The job secret is missing, or a peer did not prove it."""

    status = Status.ERR_AUTH


class VersionMismatch(KvclError, ConnectionError):
    """A peer uses another wire version."""

    status = Status.ERR_VERSION


class Unsupported(KvclError, NotImplementedError):
    """Not supported by this build or on this path."""

    status = Status.ERR_UNSUPPORTED


class IOFailed(KvclError, OSError):
    """Input/output error."""

    status = Status.ERR_IO


class ProtocolError(KvclError, ValueError):
    """Malformed bytes from a peer or a file."""

    status = Status.ERR_PROTOCOL


class Shutdown(KvclError, ValueError):
    """The object is closed, or shutting down."""

    status = Status.ERR_SHUTDOWN


class Internal(KvclError, RuntimeError):
    """A bug in the library: please report it."""

    status = Status.ERR_INTERNAL


class DeadHandle(KvclError, ValueError):
    """The object was freed already."""

    status = Status.ERR_DEAD_HANDLE


class NoQuorum(KvclError):
    """Too few ranks are reachable to decide."""

    status = Status.ERR_NO_QUORUM


class Revoked(KvclError):
    """The communicator was revoked."""

    status = Status.ERR_REVOKED


def by_status() -> Dict[int, Type[KvclError]]:
    """The exception class of every status but OK."""
    table: Dict[int, Type[KvclError]] = {int(s): KvclError for s in Status if s != Status.OK}
    for cls in KvclError.__subclasses__() + InProgress.__subclasses__():
        table[int(cls.status)] = cls
    return table


_kvcl.set_errors(by_status())
