"""What callers keep with a collection: whole or not at all, in its file and in every copy."""

from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest

from gcws_search.index.collection.check import check_directory
from gcws_search.index.contracts.errors import (
    CollectionNotFound,
    DamagedFile,
    DiskFull,
    InvalidParameter,
)
from gcws_search.index.contracts.parameters import CollectionConfig
from gcws_search.index.contracts.saved_index import with_checksum
from gcws_search.index.payload import MAX_METADATA_BYTES
from tests.support.index.items import opened_catalog
from tests.support.index.saved_graph import change_file

TEXT = b'{"big":1180591620717411303424,"\xc3\xa4":[null]}'


def test_metadata_outlive_the_process(tmp_path: Path) -> None:
    for before, after in ((None, TEXT), (TEXT, b"{}"), (b"{}", None), (None, TEXT)):
        with closing(opened_catalog(tmp_path)) as catalog:
            stored, _ = catalog.create("things", CollectionConfig(dim=2))
            assert stored.metadata == stored.describe().metadata == before
            stored.replace_metadata(after)
            assert stored.describe().metadata == after


@pytest.mark.parametrize("value", [b"[]", b"1", b"", b"{", b'{"a":NaN}', b'{}, {"a":1}'])
def test_what_is_no_object_is_refused(tmp_path: Path, value: bytes) -> None:
    with closing(opened_catalog(tmp_path)) as catalog:
        stored, _ = catalog.create("things", CollectionConfig(dim=2))
        stored.replace_metadata(TEXT)
        with pytest.raises(InvalidParameter):
            stored.replace_metadata(value)
        assert stored.metadata == TEXT


def test_the_longest_is_64_kib(tmp_path: Path) -> None:
    longest = b'{"a":"' + b"x" * (MAX_METADATA_BYTES - 8) + b'"}'
    with closing(opened_catalog(tmp_path)) as catalog:
        stored, _ = catalog.create("things", CollectionConfig(dim=2))
        stored.replace_metadata(longest)
        with pytest.raises(InvalidParameter, match="65536 bytes"):
            stored.replace_metadata(longest.replace(b"x", b"xx", 1))
        assert stored.metadata == longest


def test_a_change_that_fails_changes_nothing(tmp_path: Path) -> None:
    catalog = opened_catalog(tmp_path)
    stored, _ = catalog.create("things", CollectionConfig(dim=2))
    stored.replace_metadata(TEXT)
    full = mock.patch.object(stored.store, "write_meta", side_effect=DiskFull("things"))
    with full, pytest.raises(DiskFull):
        stored.replace_metadata(None)
    assert stored.metadata == TEXT
    catalog.close()
    with pytest.raises(CollectionNotFound):
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
    tmp_path: Path, value: str
) -> None:
    with closing(opened_catalog(tmp_path)) as catalog:
        catalog.create("things", CollectionConfig(dim=2))[0].replace_metadata(TEXT)
    change_file(tmp_path, "UPDATE meta SET value = ? WHERE name = 'metadata'", value)
    with closing(opened_catalog(tmp_path)) as catalog, pytest.raises(DamagedFile, match="metadata"):
        catalog.get("things")
    [report] = check_directory(tmp_path, repair=True)
    assert any("the metadata" in finding for finding in report.findings)
    with closing(opened_catalog(tmp_path)) as catalog:
        assert catalog.get("things").metadata is None


def test_a_repair_leaves_metadata_as_they_are(tmp_path: Path) -> None:
    with closing(opened_catalog(tmp_path)) as catalog:
        catalog.create("things", CollectionConfig(dim=2))[0].replace_metadata(TEXT)
    change_file(tmp_path, "INSERT INTO links (part, data) VALUES (999, x'00')")
    [report] = check_directory(tmp_path, repair=True)
    assert report.repaired
    with closing(opened_catalog(tmp_path)) as catalog:
        assert catalog.get("things").metadata == TEXT
