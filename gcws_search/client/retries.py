"""Requests sent again: which, how often, and after how long."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import orjson

from gcws_search.client.errors import NoServer, error_of
from gcws_search.client.operations import Pause, Plan, Reply, Send

_TOLD_SECONDS: Final = 1.0
"""Waits shorter than this are not worth a word."""
_BUSY: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_STARTING: Final = "loading"
"""Code of the problem of a server, or of a collection, that has not started yet."""
_READY: Final = Send("GET", "/readyz")
_DOUBTFUL: Final = frozenset({"owner_unavailable", "stopping"})
"""Codes of problems after which the request may have been served all the same."""


class DroppedConnection(Exception):
    """No answer came.

    Attributes
    ----------
    url : str
    cause : str
    has_answered : bool
        Whether the server answered an earlier request, so that it may be on its way back.
    """

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


def answered(request: Send, policy: RetryPolicy, collection: str | None = None) -> Plan[Reply]:
    """Return the answer to a request, sent again where the server had no room or went away.

    A server that starts is waited for as long as its start progresses.

    Parameters
    ----------
    request : Send
    policy : RetryPolicy
    collection : str or None
        Name of the collection that is asked, for errors.

    Raises
    ------
    NoServer
    GcwsError
        What the server answers as a problem, as the class of its code.
    """
    waited = 0.0
    is_told = policy.report is None
    attempt = -1
    progress: Any = None
    while True:
        attempt += 1
        try:
            reply: Reply = yield request
        except DroppedConnection as dropped:
            is_last = attempt + 1 >= policy.attempts
            if is_last or not request.repeatable or not dropped.has_answered:
                raise NoServer(dropped.url, dropped.cause) from dropped
            wait = policy.wait_seconds(attempt)
            until = f"for about {policy.longest_seconds:.0f} s"
            cause = f"{dropped.url} does not answer ({dropped.cause})"
        else:
            if reply.status < HTTPStatus.BAD_REQUEST:
                return reply
            after = _retry_after_seconds(reply.headers)
            # Of conflicts only another operation on the same name is over soon.
            is_busy = reply.status in _BUSY or (reply.status == HTTPStatus.CONFLICT and after > 0)
            problem = _document(reply)
            if not request.repeatable and problem.get("code") in _DOUBTFUL:
                is_busy = False
            until = f"for about {policy.longest_seconds:.0f} s"
            if problem.get("code") == _STARTING:
                before, progress = progress, (yield from _progress())
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
        yield Pause(wait)


def _progress() -> Plan[Any]:
    """Return how far the start of a server has come; None where it does not say."""
    try:
        reply: Reply = yield _READY
    except DroppedConnection:
        return None
    document = _document(reply)
    return [document.get(word) for word in ("phase", "loaded", "total")] if document else None


def _retry_after_seconds(headers: Mapping[str, str]) -> float:
    text = headers.get("retry-after", "")
    return float(text) if text.isdecimal() else 0.0


def _document(reply: Reply) -> dict[str, Any]:
    try:
        document = orjson.loads(reply.content)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
