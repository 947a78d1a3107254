"""Events of views (kvcl_view.h): who is suspected, who has failed, who is a member."""

import asyncio
import enum
from typing import Any, AsyncIterator, NamedTuple, Optional, Tuple, Union


class ViewEventKind(enum.IntEnum):
    """As in kvcl_view.h."""

    SUSPECT = 1      # silent for KVCL_SUSPECT
    ALIVE_AGAIN = 2  # suspected, and heard again
    FAILED = 3       # have ended, or are excluded by the VIEW that comes next; each once
    VIEW = 4         # the members of a new view
    EXCLUDED = 5     # this rank was excluded: its operations raise Stale
    DRAINED = 6      # live, and go by the VIEW that comes next: deactivated, or they leave
    JOINED = 8       # processes have joined in these slots by the VIEW that comes next


class ViewEvent(NamedTuple):
    """What this rank was told. FAILED always comes before the VIEW without the rank."""

    kind: Union[ViewEventKind, int]  # a number: of a later version of the library
    ranks: Tuple[int, ...]  # of the world
    view: int
    view_id: int  # differs between any two views
    seconds: float  # of time.monotonic()
    lost: int  # events that a full queue (1,024) dropped before this one


def taken(raw: Optional[Tuple[int, Tuple[int, ...], int, int, int, int]]) -> Optional[ViewEvent]:
    if raw is None:
        return None
    kind, ranks, view, view_id, ns, lost = raw
    known = kind in ViewEventKind._value2member_map_
    return ViewEvent(ViewEventKind(kind) if known else kind, ranks, view, view_id, ns / 1e9, lost)


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


async def follow(context: Any) -> AsyncIterator[ViewEvent]:
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
