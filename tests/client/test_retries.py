"""Which requests are sent again, and after how long; errors come back as themselves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from gcws_search import (
    AccessRefused,
    Collection,
    CollectionLoading,
    GcwsError,
    InvalidVector,
    NoServer,
    RetryPolicy,
    ServerBusy,
)
from gcws_search.client.connection import Requester
from gcws_search.client.errors import error_of
from gcws_search.client.remote import RemoteCollection, run
from gcws_search.client.wire import Answer, Unreachable
from gcws_search.index import CollectionConfig
from gcws_search.index.contracts import errors as ix
from gcws_search.service import problems
from gcws_search.service.errors import Refused
from gcws_search.service.problems import document

POLICY = RetryPolicy(attempts=3, first_seconds=1, max_seconds=4)
DONE = Answer(200, {}, b"{}")
RESET = Unreachable("reset")
REFUSED = Unreachable("refused", is_sent=False)
GET = "GET /v1"


def problem(status: int, code: str, **headers: str) -> Answer:
    body = {"status": status, "code": code, "detail": "no room; try again", "errors": []}
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, sent, orjson.dumps(body))


class Scripted(Requester):
    """A server whose answers are given; notes requests, and seconds between them."""

    def __init__(self, answers: list[Answer | Unreachable], policy: RetryPolicy) -> None:
        super().__init__("http://there", policy=policy)
        self.answers = iter(answers)
        self.done: list[str | float] = []

    async def exchange(self, method: str, path: str, **options: object) -> Answer:
        self.done.append(f"{method} {path}")
        answer = next(self.answers)
        if isinstance(answer, Unreachable):
            raise answer
        return answer

    async def pause(self, seconds: float) -> None:
        self.done.append(seconds)


def carried_out(
    answers: list[Answer | Unreachable],
    policy: RetryPolicy = POLICY,
    *,
    repeatable: bool = True,
    has_answered: bool = True,
) -> tuple[Answer | Exception, list[str | float]]:
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
    answers: list[Answer | Unreachable] = [
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


BUSY = problem(503, "overloaded")
ENDS: dict[str, tuple[list[Answer | Unreachable], str, object, int]] = {
    "a good answer": ([DONE], "", DONE, 1),
    "no room for too long": ([BUSY] * 3, "", ServerBusy, 3),
    "a time that is too long": (
        [problem(503, "overloaded", retry_after="60")], "", ServerBusy, 1
    ),
    "a dropped connection": ([RESET, RESET, DONE], "", DONE, 3),
    "a server that never answered": ([RESET], "never answered", NoServer, 1),
    "what may have happened": ([RESET], "sent once", NoServer, 1),
    "what was never sent": ([REFUSED, DONE], "sent once", DONE, 2),
    "no room for what was not begun": ([BUSY, DONE], "sent once", DONE, 2),
    "no key": ([problem(401, "key_missing")], "", AccessRefused, 1),
    "another key": ([problem(403, "key_refused")], "", AccessRefused, 1),
    **{
        f"{code} {known}": ([problem(503, code), DONE], known, end, sent)
        for code in ("owner_unavailable", "stopping", "store_unavailable")
        for known, end, sent in (("", DONE, 2), ("sent once", ServerBusy, 1))
    },
}  # fmt: skip
"""What a request is answered, what is known of it, its end, and how often it is sent."""


@pytest.mark.parametrize("case", ENDS)
def test_a_request_ends_so_and_is_sent_so_often(case: str) -> None:
    answers, known, expected, sent = ENDS[case]
    end, done = carried_out(
        answers, repeatable=known != "sent once", has_answered=known != "never answered"
    )
    assert end == expected or type(end) is expected
    assert done.count(GET) == sent
    assert len(pauses(done)) == sent - 1
    if known == "never answered":
        assert "http://there" in str(end)
        assert "gcws-search serve" in str(end)


@pytest.mark.parametrize(
    "write",
    [
        lambda items: items.add([[1]], ids=["a"], if_version=1),
        lambda items: items.set_payload("a", payload={"x": 1}, if_version=1),
        lambda items: items.delete("a", if_version=1),
    ],
)
def test_a_write_over_a_version_is_not_sent_again_once_it_may_be_done(
    write: Callable[[Collection], object],
) -> None:
    """The second one would be told of a conflict with the first."""
    server = Scripted([RESET], POLICY)
    server.has_answered = True
    with pytest.raises(NoServer, match="it may have been done"):
        write(Collection(RemoteCollection("coffees", CollectionConfig(dim=1), server)))


@pytest.mark.parametrize("lost", [RESET, problem(503, "store_unavailable")])
def test_what_is_gone_when_a_delete_is_sent_again_was_deleted(lost: Answer | Unreachable) -> None:
    missing, server = problem(404, "collection_not_found"), Scripted([], POLICY)
    server.has_answered = True
    for answers in ([lost, missing], [lost, lost, DONE]):
        server.answers = iter(answers)
        run(server.ask("DELETE", "/v1/collections/coffees", collection="coffees"))
    server.answers = iter([problem(429, "queue_full"), missing])
    with pytest.raises(ix.CollectionNotFound):
        run(server.ask("DELETE", "/v1/collections/coffees", collection="coffees"))


def test_a_backend_without_a_name_is_attached_once() -> None:
    server = Scripted([RESET], POLICY)
    server.has_answered = True
    with pytest.raises(NoServer, match="it may have been done"):
        Collection(RemoteCollection("coffees", CollectionConfig(dim=1), server)).attach("exact")


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


def test_a_server_is_waited_for_as_long_as_its_start_progresses() -> None:
    refused = document(Refused("loading", "compiling"))
    starting = problem(refused["status"], refused["code"], retry_after="1")

    def progress(loaded: int) -> Answer:
        return Answer(503, {}, orjson.dumps({"phase": "compiling", "loaded": loaded}))

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


def test_an_answer_that_is_no_problem_is_told_by_its_status() -> None:
    end, _ = carried_out([Answer(502, {}, b"<html>")])
    assert "502" in str(end)


def test_a_finding_has_its_place_and_its_parts() -> None:
    body = {
        "code": "invalid_vector",
        "detail": "row 3: expected 4 values, got 3 values",
        "errors": [{"loc": ["rows", 3, "vector"], "msg": "expected 4 values, got 3 values"}],
        "committed": 8192,
    }
    end, _ = carried_out([Answer(422, {}, orjson.dumps(body))])
    assert isinstance(end, InvalidVector)
    assert (end.loc, end.expected, end.got) == (("rows", 3, "vector"), "4 values", "3 values")
    assert "earlier writes of this load stored 8,192 rows" in end.__notes__


# Every error of the index


MADE: list[GcwsError] = [
    ix.InvalidInput(expected="a", got="b"),
    ix.InvalidVector(expected="4 values", got="3 values", loc=("rows", 3, "vector")),
    ix.InvalidId(expected="a string", got="null", loc=("id",)),
    ix.InvalidPayload(expected="an object", got="3"),
    ix.InvalidFilter(expected="a list", got="3", loc=("filter", "must")),
    ix.InvalidParameter(expected="at least 1", got="0", loc=("limit",)),
    ix.CollectionNotFound("plants"),
    ix.ItemNotFound("a"),
    ix.BackendNotFound("rff"),
    ix.SnapshotNotFound("plants", "monday"),
    ix.CollectionExists("plants"),
    ix.CollectionBusy("plants", "it is being dropped"),
    ix.BackendExists("rff"),
    ix.PrimaryBackend("gcws"),
    ix.SnapshotExists("plants", "monday"),
    ix.ItemExists("a", 7),
    ix.VersionConflict("a", 3, 0, 7),
    ix.CollectionLoading("plants"),
    ix.DirectoryLocked(Path("data"), "process 1"),
    ix.DamagedFile("plants", "page 3"),
    ix.DamagedSnapshot("plants", "monday", "page 3"),
    ix.IncompatibleFile("plants", "format 5", "format 9"),
    ix.DiskFull("plants"),
    ix.OutOfDescriptors("plants"),
    ix.StorageFailed("plants", "EIO", "input/output error"),
]


def told(error: GcwsError) -> tuple[int, dict[str, Any]]:
    """Return status and document of what a server answers."""
    return problems.kind_of(error).status, problems.document(error)


@pytest.mark.parametrize("error", MADE, ids=lambda error: type(error).__name__)
def test_an_error_comes_back_as_itself(error: GcwsError) -> None:
    status, document = told(error)
    found = error_of(status, document, collection="plants")
    assert type(found) is type(error)
    if isinstance(error, ix.InvalidInput):
        assert str(found) == str(error)
    else:
        assert str(found) == document["detail"]
    for name in {"item_id", "row", "loc", "expected", "got"} & error.__dict__.keys():
        assert getattr(found, name) == getattr(error, name)


def test_no_class_of_the_index_is_left_out() -> None:
    leaves = {cls for cls in problems.TABLE if issubclass(cls, GcwsError)}
    roots = {GcwsError, ix.NotFound, ix.Conflict, ix.StoreError}
    assert leaves - roots == {type(error) for error in MADE}
