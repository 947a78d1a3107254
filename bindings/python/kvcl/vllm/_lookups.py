"""Whether the store has a request's blocks: one question a request, asked and answered between the engine's polls."""

import dataclasses
import time
from typing import Any, Callable, Dict, List, Optional

import kvcl

from ._plan import Plan

AGAIN = 0.002  # seconds between two questions about a handover that has not arrived
LEAST = 0.001  # seconds that a step spends on new questions, and
SHARE = 0.05   # of the time since the last one, if that is more; one question at least


@dataclasses.dataclass
class _Question:
    first: int
    names: int
    asked: float              # the first time
    deadline: float
    call: Optional[kvcl.Call] = None
    again: float = 0.0        # not before


class Lookups:
    """link: to the store. keys(names) gives the keys of blocks, parts for each."""

    def __init__(self, link: Any, plan: Plan, keys: Callable[[List[bytes]], List[bytes]], parts: int,
                 options: Any) -> None:
        self._link, self._plan, self._keys, self._parts, self._options = link, plan, keys, parts, options
        self._open: Dict[str, _Question] = {}
        self._left = LEAST  # of this step
        self._last = time.monotonic()

    def step(self) -> None:
        """The requests of a step are known: those that come to be asked for now are of the next one."""
        now = time.monotonic()
        self._left, self._last = max(LEAST, SHARE * (now - self._last)), now

    def forget(self, request: str) -> None:
        """The request was scheduled, or has ended."""
        self._open.pop(request, None)

    def reset(self) -> None:
        """Answers are of no more use: keys have changed."""
        self._open.clear()

    def ask(self, request: str, tokens: int, computed: int, patience: float = 0.0) -> Optional[int]:
        """The tokens beyond computed that the store has; None: ask again. Waits at most patience seconds."""
        now = time.monotonic()
        question = self._open.get(request)
        if question is None or question.first * self._plan.size != computed:
            question = self._begin(request, tokens, computed, now)
        if question.names == 0:
            return 0
        if self._plan.direct(request):
            return self._plan.tokens(request, computed, question.first, question.names)
        if self._options["store"] == "none":
            self._plan.give_up(request)
            return 0
        client = self._link.ready()
        if client is None and not self._plan.expects(request):
            return 0
        found = self._found(request, question, now)
        if found is None and now >= question.deadline:
            self._plan.give_up(request)
            return 0
        if found is None and question.call is None and client is not None and now >= question.again and self._left > 0:
            _, names = self._plan.wanted(request, tokens, computed)
            question.call = (client.exists if self._plan.scattered else client.match)(self._keys(names))
            self._left -= time.monotonic() - now
            if patience > 0:
                self._link.wait(question.call, patience)
                found = self._found(request, question, now)
        return None if found is None else self._plan.tokens(request, computed, question.first, found)

    def _begin(self, request: str, tokens: int, computed: int, now: float) -> _Question:
        first, names = self._plan.wanted(request, tokens, computed)
        limit = self._options["handover_timeout" if self._plan.expects(request) else "match_timeout"]
        question = self._open[request] = _Question(first, len(names), now, now + limit)
        return question

    def _found(self, request: str, question: _Question, now: float) -> Optional[int]:
        """Leading blocks found; None: there is no answer yet, or not all of a handover has arrived."""
        call = question.call
        if call is None:
            return None
        self._link.progress()
        if not call.done:
            return None
        question.call, question.again = None, now + AGAIN
        if call.error is not None:
            return None if self._plan.expects(request) else 0
        found = self._plan.found(question.first, call.result, self._parts)
        if self._plan.expects(request) and found < question.names:
            return None
        question.call = call  # the answer stays
        return found
