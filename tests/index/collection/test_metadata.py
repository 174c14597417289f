"""What callers keep with a collection: whole or not at all, in its file and in every copy."""

from pathlib import Path
from unittest import mock

import pytest

from gcws_search import index as ix
from gcws_search.index.contracts.saved_index import with_checksum
from gcws_search.index.payload import MAX_METADATA_BYTES
from tests.support.index.items import Make
from tests.support.index.saved_graph import Restart

TEXT = b'{"big":1180591620717411303424,"\xc3\xa4":[null]}'


@pytest.fixture
def stored(make: Make) -> ix.StoredCollection:
    return make()


@pytest.mark.usefixtures("stored")
def test_metadata_outlive_the_process(restart: Restart) -> None:
    for before, after in ((None, TEXT), (TEXT, b"{}"), (b"{}", None), (None, TEXT)):
        with restart() as stored:
            assert stored.metadata == stored.describe().metadata == before
            stored.replace_metadata(after)
            assert stored.describe().metadata == after


@pytest.mark.parametrize("value", [b"[]", b"1", b"", b"{", b'{"a":NaN}', b'{}, {"a":1}'])
def test_what_is_no_object_is_refused(stored: ix.StoredCollection, value: bytes) -> None:
    stored.replace_metadata(TEXT)
    with pytest.raises(ix.InvalidParameter):
        stored.replace_metadata(value)
    assert stored.metadata == TEXT


def test_the_longest_is_64_kib(stored: ix.StoredCollection) -> None:
    longest = b'{"a":"' + b"x" * (MAX_METADATA_BYTES - 8) + b'"}'
    stored.replace_metadata(longest)
    with pytest.raises(ix.InvalidParameter, match="65536 bytes"):
        stored.replace_metadata(longest.replace(b"x", b"xx", 1))
    assert stored.metadata == longest


def test_a_change_that_fails_changes_nothing(
    catalog: ix.Catalog, stored: ix.StoredCollection
) -> None:
    stored.replace_metadata(TEXT)
    full = mock.patch.object(stored.store, "write_meta", side_effect=ix.DiskFull("things"))
    with full, pytest.raises(ix.DiskFull):
        stored.replace_metadata(None)
    assert stored.metadata == TEXT
    catalog.close()
    with pytest.raises(ix.CollectionNotFound):
        stored.replace_metadata(None)


@pytest.mark.parametrize(
    "value",
    [
        "{}",
        "00000000 {}",
        with_checksum(b"[]"),
        with_checksum(b'{"a":' + b" " * MAX_METADATA_BYTES + b"1}"),
    ],
    ids=lambda text: text[:20],
)
def test_metadata_that_nobody_wrote_are_damage_that_can_be_repaired(
    stored: ix.StoredCollection, restart: Restart, tmp_path: Path, value: str
) -> None:
    stored.replace_metadata(TEXT)
    change = restart("UPDATE meta SET value = ? WHERE name = 'metadata'", value)
    with pytest.raises(ix.DamagedFile, match="metadata"), change:
        pass
    [report] = ix.check_directory(tmp_path, repair=True)
    assert any("the metadata" in finding for finding in report.findings)
    with restart() as again:
        assert again.metadata is None
