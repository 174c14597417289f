"""Every error is a problem with a stable code."""

import errno
from collections.abc import Callable, Iterator
from typing import get_args

import pytest

from gcws_search import index as ix
from gcws_search.service import errors as sv, problems
from tests.support.service.client import Client, assert_problem


def tree(root: type[Exception]) -> Iterator[type[Exception]]:
    yield root
    for child in root.__subclasses__():
        yield from tree(child)


def test_the_table_names_every_error_of_the_index_and_of_the_service() -> None:
    """A client's errors descend from the same root, and never come up in a service."""
    of_index = {cls for cls in tree(ix.GcwsError) if cls.__module__.startswith(ix.__name__ + ".")}
    own = {cls for cls in tree(sv.ServiceError) if cls.__module__ == sv.__name__}
    assert of_index | own - {sv.Refused} <= set(problems.TABLE)
    assert set(problems.REFUSALS) == set(get_args(sv.Refusal))


@pytest.mark.parametrize(
    ("status", "retries"), [(429, True), (503, True), (507, True), (404, False), (422, False)]
)
def test_retry_after_stands_where_waiting_helps(status: int, retries: bool) -> None:
    known = [*problems.TABLE.values(), *problems.REFUSALS.values()]
    kinds = [kind for kind in known if kind.status == status]
    assert kinds
    assert all((kind.retry_after_seconds is not None) == retries for kind in kinds)


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (OSError(errno.EMFILE, "Too many open files", "/secret"), 503, "out_of_descriptors"),
        (OSError(errno.ENOSPC, "No space left on device", "/secret"), 507, "disk_full"),
        (OSError(errno.EROFS, "Read-only file system", "/secret"), 503, "storage_failed"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 500, "internal_error"),
        (OSError("no number"), 500, "internal_error"),
    ],
)
def test_what_the_system_refuses_anywhere_is_a_listed_problem(
    client: Client, monkeypatch: pytest.MonkeyPatch, error: OSError, status: int, code: str
) -> None:
    monkeypatch.setattr(ix.Catalog, "get", raising(error))
    problem = assert_problem(client.get("/v1/collections/plants"), status, code)
    assert "secret" not in str(problem)


def test_the_log_has_the_file_that_the_storage_failed_for(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    error = ix.StorageFailed("plants", "EIO", "Input/output error")
    error.__cause__ = OSError(errno.EIO, "Input/output error", "/data/plants.sqlite")
    monkeypatch.setattr(ix.Catalog, "get", raising(error))
    problem = assert_problem(client.get("/v1/collections/plants"), 503, "storage_failed", "EIO")
    assert "/data" not in str(problem)
    [record] = [each for each in caplog.records if each.levelname == "ERROR"]
    assert "/data/plants.sqlite" in record.getMessage()
    assert record.exc_info is None


def test_a_wrong_method_is_a_problem_that_names_the_right_ones(client: Client) -> None:
    response = client.post("/v1/collections/plants/items")
    assert_problem(response, 405, "method_not_allowed", "GET", "PUT", "PATCH")
    assert response.headers["allow"] == "GET, HEAD, PUT, PATCH"


def test_a_request_id_is_echoed_or_made(client: Client) -> None:
    ids = [
        client.get("/livez", headers={"X-Request-Id": sent}).headers["x-request-id"]
        for sent in ("abc-123", "", "a b", "x" * 200)
    ]
    assert ids[0] == "abc-123"
    assert len({*ids} - {"", "a b", "x" * 200}) == 4
