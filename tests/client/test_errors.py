"""Every error of the index comes back from a server as itself."""

from pathlib import Path
from typing import Any

import pytest

from gcws_search import GcwsError
from gcws_search.client.errors import error_of
from gcws_search.index.contracts import errors as ix
from gcws_search.service import problems

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
