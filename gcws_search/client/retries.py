"""Requests to a server: which are sent again, how often, and after how long."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, TypeVar

import orjson

from gcws_search.client.errors import NoServer, error_of

R = TypeVar("R")

_TOLD_SECONDS: Final = 1.0
"""Waits shorter than this are not reported."""
_BUSY: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_STARTING: Final = "loading"
"""Code of the problem of a server, or of a collection, that has not started yet."""
_DOUBTFUL: Final = frozenset({"owner_unavailable", "stopping"})
"""Codes of problems after which the request may have been served all the same."""


@dataclass(frozen=True, slots=True)
class Send:
    """A request. A callable ``content`` is called again for each attempt.

    ``repeatable``: it may be sent again where it may have been served.
    """

    method: str
    path: str
    content: bytes | Callable[[], Iterable[bytes | memoryview]] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True


_READY: Final = Send("GET", "/readyz")


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class DroppedConnection(Exception):
    """No answer came; ``has_answered``: the server did before, and may be on its way back."""

    def __init__(self, url: str, cause: str, *, has_answered: bool) -> None:
        self.url = url
        self.cause = cause
        self.has_answered = has_answered
        super().__init__(cause)


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """How often a request is sent, and how long a client waits between.

    Parameters
    ----------
    attempts : int
        How often a request is sent at most.
    first_seconds, max_seconds : float
        The wait doubles from the first to the largest; chance takes off up to a half. A server that
        says ``Retry-After`` is given that time, and is not asked again if it is above the largest.
    report : callable or None
        Called with a sentence once a request has waited for a second.
    """

    attempts: int = 8
    first_seconds: float = 0.1
    max_seconds: float = 10.0
    report: Callable[[str], None] | None = None

    @property
    def longest_seconds(self) -> float:
        """About how long a request waits in all, before its last attempt."""
        waits = (self.first_seconds * 2.0**attempt for attempt in range(self.attempts - 1))
        return 0.75 * sum(min(self.max_seconds, each) for each in waits)

    def wait_seconds(self, attempt: int) -> float:
        """Return how long to wait after an attempt, the first being 0."""
        longest = min(self.max_seconds, self.first_seconds * 2**attempt)
        return float(longest * random.uniform(0.5, 1))


def run(coroutine: Coroutine[Any, Any, R]) -> R:
    """Return the result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: R = end.value
        return result
    raise AssertionError("a requester that blocks was suspended")


class Requester(ABC):
    """Sends requests to a server, again after 429, 503 or a lost connection.

    Its methods are coroutines. They suspend on an event loop, or block and never suspend.
    """

    policy: RetryPolicy

    @abstractmethod
    async def exchange(self, request: Send) -> Reply:
        """Send a request once; raise DroppedConnection where no answer comes."""

    @abstractmethod
    async def pause(self, seconds: float) -> None:
        """Wait."""

    @abstractmethod
    async def call(self, function: Callable[[], R]) -> R:
        """Call a function that computes for a while."""

    async def ask(self, request: Send, collection: str | None = None) -> Reply:
        """Return the answer to a request; wait for a starting server while it makes progress.

        ``collection`` is the name of the one that is asked, for errors. A problem that the server
        answers is raised as the class of its code.
        """
        policy = self.policy
        waited, is_told = 0.0, policy.report is None
        attempt, progress = -1, None
        while True:
            attempt += 1
            until = f"for about {policy.longest_seconds:.0f} s"
            try:
                reply = await self.exchange(request)
            except DroppedConnection as dropped:
                is_last = attempt + 1 >= policy.attempts
                if is_last or not request.repeatable or not dropped.has_answered:
                    raise NoServer(dropped.url, dropped.cause) from dropped
                wait = policy.wait_seconds(attempt)
                cause = f"{dropped.url} does not answer ({dropped.cause})"
            else:
                if reply.status < HTTPStatus.BAD_REQUEST:
                    return reply
                text = reply.headers.get("retry-after", "")
                after = float(text) if text.isdecimal() else 0.0
                # Of conflicts only another operation on the same name is over soon.
                is_conflict = reply.status == HTTPStatus.CONFLICT and after > 0
                is_busy = reply.status in _BUSY or is_conflict
                problem = problem_of(reply.content)
                if not request.repeatable and problem.get("code") in _DOUBTFUL:
                    is_busy = False
                if problem.get("code") == _STARTING:
                    before, progress = progress, await self._progress()
                    if progress is not None and progress != before:
                        attempt = 0
                    until = "as long as its start progresses"
                is_last = attempt + 1 >= policy.attempts
                if is_last or not is_busy or after > policy.max_seconds:
                    raise error_of(reply.status, problem, collection=collection)
                wait = after + policy.wait_seconds(attempt)
                cause = str(problem.get("detail") or f"the server answered {reply.status}")
            waited += wait
            if not is_told and waited >= _TOLD_SECONDS and policy.report is not None:
                is_told = True
                policy.report(f"{cause}; asking again {until}")
            await self.pause(wait)

    async def _progress(self) -> list[Any] | None:
        """Return how far the start of a server has come; None where it does not say."""
        try:
            reply = await self.exchange(_READY)
        except DroppedConnection:
            return None
        document = problem_of(reply.content)
        return [document.get(word) for word in ("phase", "loaded", "total")] if document else None


def problem_of(content: bytes) -> dict[str, Any]:
    """Return the JSON object that an answer holds; an empty one where it holds none."""
    try:
        document = orjson.loads(content)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
