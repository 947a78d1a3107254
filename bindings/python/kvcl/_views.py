"""Events of views (kvcl_view.h): ranks that are suspected, have failed, or are members."""

import asyncio
import enum
from typing import Any, AsyncIterator, NamedTuple, Optional, Tuple, Union


class ViewEventKind(enum.IntEnum):
    """As in kvcl_view.h."""

    SUSPECT = 1      # ranks were silent for KVCL_SUSPECT
    ALIVE_AGAIN = 2  # suspected ranks have sent beats again
    FAILED = 3       # ranks have ended, or the next VIEW excludes them; each rank once
    VIEW = 4         # the members of a new view
    EXCLUDED = 5     # a view excludes this rank: its operations raise Stale
    DRAINED = 6      # living ranks that the next VIEW lacks, since they leave or were deactivated
    JOINED = 8       # slots that processes have joined by the next VIEW
    WAITING = 9      # slots whose processes are members once Comm.activate() names them


class ViewEvent(NamedTuple):
    """An event at this rank. FAILED always comes before the VIEW without the failed rank."""

    kind: Union[ViewEventKind, int]  # an int is a kind of a later version of the library
    ranks: Tuple[int, ...]  # of the world
    view: int
    view_id: int  # differs between any two views
    seconds: float  # of time.monotonic()
    lost: int  # events that a full queue (1,024) dropped before this one


def taken(raw: Optional[Tuple[int, Tuple[int, ...], int, int, int, int]]) -> Optional[ViewEvent]:
    """The event of the extension's tuple."""
    if raw is None:
        return None
    kind, ranks, view, view_id, ns, lost = raw
    known = kind in ViewEventKind._value2member_map_
    return ViewEvent(ViewEventKind(kind) if known else kind, ranks, view, view_id, ns / 1e9, lost)


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


async def follow(context: Any) -> AsyncIterator[ViewEvent]:
    """Yield the events of a context as they come. The loop waits on its descriptor for events."""
    loop = asyncio.get_running_loop()
    fd = context.event_fileno()
    while True:
        event = context.event()
        while event is not None:
            yield event
            event = context.event()
        future = loop.create_future()
        loop.add_reader(fd, _wake, future)
        try:
            await future
        finally:
            loop.remove_reader(fd)
