"""Metadata: a JSON object that callers keep with a collection, in its file."""

from __future__ import annotations

from typing import Final

from gcws_search.index.contracts.errors import DamagedFile, InvalidParameter
from gcws_search.index.contracts.saved_index import with_checksum, without_checksum
from gcws_search.index.payload.encoding import is_payload
from gcws_search.index.persistence.writer import Writer
from gcws_search.index.storage.store import Store

MAX_BYTES: Final = 1 << 16
"""Of the JSON text."""


def metadata_of(text: str) -> bytes:
    """Return metadata of what a file holds; ValueError where that is not what was written."""
    document = without_checksum(text)
    if len(document) > MAX_BYTES or not is_payload(document):
        raise ValueError(f"no JSON object of at most {MAX_BYTES} bytes")
    return document


def check_metadata(value: bytes | None) -> None:
    """Raise InvalidParameter where metadata are longer than `MAX_BYTES`, or no object."""
    if value is not None and len(value) > MAX_BYTES:
        raise InvalidParameter(
            expected=f"at most {MAX_BYTES} bytes of JSON",
            got=f"{len(value)} bytes",
            loc=("metadata",),
        )
    if value is not None and not is_payload(value):
        raise InvalidParameter(expected="a JSON object", got="none", loc=("metadata",))


class Metadata:
    """The metadata of one collection.

    Parameters
    ----------
    store : Store
    writer : Writer
        Makes the changes of the store.

    Attributes
    ----------
    value : bytes or None
        JSON text of an object; None where there is none.
    """

    def __init__(self, store: Store, writer: Writer) -> None:
        self._store = store
        self._writer = writer
        self.value: bytes | None = None

    def load(self) -> None:
        """Read what the file has.

        Raises
        ------
        DamagedFile
        """
        text = self._store.meta("metadata")
        try:
            self.value = None if text is None else metadata_of(text)
        except ValueError as error:
            reason = f"its metadata is not what was written ({error})"
            raise DamagedFile(self._store.name, reason) from error

    def replace(self, value: bytes | None) -> None:
        """Replace the metadata, None to remove it; on the disk on return.

        Parameters
        ----------
        value : bytes or None
            JSON text of an object.

        Raises
        ------
        InvalidParameter
            It is longer than `MAX_BYTES`, or no object.
        DiskFull, DirectoryLocked, DamagedFile, CollectionNotFound
        """
        check_metadata(value)

        def change() -> None:
            self._store.write_meta("metadata", None if value is None else with_checksum(value))
            self.value = value

        self._writer.run_as_change(change)
