"""Which requests are sent again, and after how long; nothing is sent here."""

from collections.abc import Callable
from typing import TypeVar

import httpx
import pytest

from gcws_search import (
    AccessRefused,
    CollectionLoading,
    GcwsError,
    InvalidVector,
    NoServer,
    RetryPolicy,
    ServerBusy,
)
from gcws_search.client.connection import Requester
from gcws_search.client.remote import run
from gcws_search.service.errors import NotReady
from gcws_search.service.problems import document

R = TypeVar("R")
Answer = httpx.Response | httpx.TransportError
POLICY = RetryPolicy(attempts=3, first_seconds=1, max_seconds=4)
DONE = httpx.Response(200, content=b"{}")
RESET = httpx.ReadError("reset")
GET = "GET /v1"


def problem(status: int, code: str, **headers: str) -> httpx.Response:
    body = {"status": status, "code": code, "detail": "no room; try again", "errors": []}
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, headers=sent, json=body)


class Scripted(Requester):
    """A server whose answers are given; notes requests, and seconds between them."""

    def __init__(self, answers: list[Answer], policy: RetryPolicy) -> None:
        super().__init__("http://there", policy=policy)
        self._answers = iter(answers)
        self.done: list[str | float] = []

    async def exchange(self, method: str, path: str, **options: object) -> httpx.Response:
        self.done.append(f"{method} {path}")
        answer = next(self._answers)
        if isinstance(answer, httpx.TransportError):
            raise answer
        return answer

    async def pause(self, seconds: float) -> None:
        self.done.append(seconds)

    async def call(self, function: Callable[[], R]) -> R:
        raise AssertionError(function)


def carried_out(
    answers: list[Answer],
    policy: RetryPolicy = POLICY,
    *,
    repeatable: bool = True,
    has_answered: bool = True,
) -> tuple[httpx.Response | Exception, list[str | float]]:
    """Return the end of a request that is answered so, and what was done for it."""
    server = Scripted(answers, policy)
    server.has_answered = has_answered
    try:
        return run(server.ask("GET", "/v1", repeatable=repeatable)), server.done
    except GcwsError as error:
        return error, server.done


def test_a_request_that_waits_for_long_says_so_once() -> None:
    told: list[str] = []
    policy = RetryPolicy(attempts=5, first_seconds=0.6, max_seconds=4, report=told.append)
    answers: list[Answer] = [
        problem(503, "overloaded"), RESET, RESET, problem(429, "queue_full"), DONE,
    ]  # fmt: skip
    assert carried_out(answers, policy)[0] == DONE
    assert len(told) == 1
    assert told[0].startswith("http://there does not answer (reset); asking again for about ")
    told.clear()
    short = RetryPolicy(attempts=2, first_seconds=0.1, report=told.append)
    carried_out([problem(429, "queue_full"), DONE], short)
    assert not told


def pauses(done: list[str | float]) -> list[float]:
    return [each for each in done if isinstance(each, float)]


def test_a_good_answer_is_returned_at_once() -> None:
    assert carried_out([DONE]) == (DONE, [GET])


@pytest.mark.parametrize(
    ("status", "code"), [(429, "queue_full"), (503, "overloaded"), (409, "collection_busy")]
)
def test_a_server_without_room_is_asked_again_when_it_says(status: int, code: str) -> None:
    busy = problem(status, code, retry_after="2")
    end, done = carried_out([busy, busy, DONE])
    assert end == DONE
    first, second = pauses(done)
    assert 2.5 <= first <= 3
    assert 3 <= second <= 4


def test_a_server_that_stays_without_room_is_given_up() -> None:
    end, done = carried_out([problem(503, "overloaded")] * 3)
    assert isinstance(end, ServerBusy)
    assert end.status == 503
    assert done.count(GET) == 3


def test_a_server_is_waited_for_as_long_as_its_start_progresses() -> None:
    refused = document(NotReady("compiling"))
    starting = problem(refused["status"], refused["code"], retry_after="1")

    def progress(loaded: int) -> httpx.Response:
        return httpx.Response(503, json={"phase": "compiling", "loaded": loaded})

    steps = [each for loaded in range(40) for each in (starting, progress(loaded))]
    end, done = carried_out([*steps, DONE])
    assert end == DONE
    assert done.count(GET) == 41
    stuck = [starting, progress(7)] * 50
    end, done = carried_out([*steps, *stuck])
    assert isinstance(end, CollectionLoading)
    assert done.count(GET) == 40 + POLICY.attempts
    end, done = carried_out([starting, RESET] * 50)
    assert isinstance(end, CollectionLoading)
    assert done.count(GET) == POLICY.attempts


def test_a_time_that_is_too_long_is_not_waited_for() -> None:
    end, done = carried_out([problem(503, "overloaded", retry_after="60")])
    assert isinstance(end, ServerBusy)
    assert done == [GET]


def test_a_dropped_connection_is_opened_again() -> None:
    end, done = carried_out([RESET, RESET, DONE])
    assert end == DONE
    assert len(pauses(done)) == 2


def test_a_server_that_never_answered_is_not_there() -> None:
    end, done = carried_out([RESET], has_answered=False)
    assert isinstance(end, NoServer)
    assert "http://there" in str(end)
    assert "gcws-search serve" in str(end)
    assert done == [GET]


def test_what_may_have_happened_is_not_asked_for_twice() -> None:
    end, done = carried_out([RESET], repeatable=False)
    assert isinstance(end, NoServer)
    assert done == [GET]


@pytest.mark.parametrize("code", ["owner_unavailable", "stopping"])
def test_a_doubtful_answer_is_final_for_what_may_have_happened_alone(code: str) -> None:
    doubtful = problem(503, code, retry_after="1")
    end, done = carried_out([doubtful], repeatable=False)
    assert isinstance(end, ServerBusy)
    assert done == [GET]
    assert carried_out([doubtful, DONE])[0] == DONE
    full = problem(503, "overloaded", retry_after="1")
    assert carried_out([full, DONE], repeatable=False)[0] == DONE


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [(401, "key_missing", AccessRefused), (403, "key_refused", AccessRefused)],
)
def test_a_refusal_is_final(status: int, code: str, expected: type[Exception]) -> None:
    end, done = carried_out([problem(status, code)])
    assert isinstance(end, expected)
    assert done == [GET]


def test_an_answer_that_is_no_problem_is_told_by_its_status() -> None:
    end, _ = carried_out([httpx.Response(502, content=b"<html>")])
    assert "502" in str(end)


def test_a_finding_has_its_place_and_its_parts() -> None:
    body = {
        "code": "invalid_vector",
        "detail": "row 3: expected 4 values, got 3 values",
        "errors": [{"loc": ["rows", 3, "vector"], "msg": "expected 4 values, got 3 values"}],
        "committed": 8192,
    }
    end, _ = carried_out([httpx.Response(422, json=body)])
    assert isinstance(end, InvalidVector)
    assert (end.loc, end.expected, end.got) == (("rows", 3, "vector"), "4 values", "3 values")
    assert "earlier writes of this load stored 8192 rows" in end.__notes__
