"""Files as `load` reads them, without a server."""

from pathlib import Path

from gcws_search.formats.files import Folder, InputFile
from gcws_search.formats.payloads import read_json
from gcws_search.formats.sources import Choices, Source, source_of
from tests.support.service.client import Json

Found = tuple[Json, Json, Json]
"""Id, vector and payload."""


def source(path: Path, encoding: str | None = None, **choices: Json) -> Source:
    """Return a file or a folder as items."""
    file = Folder(path, encoding) if path.is_dir() else InputFile(path, encoding)
    found = source_of(file, Choices(**choices))
    assert isinstance(found, Source)
    return found


def items(path: Path, encoding: str | None = None, **choices: Json) -> list[Found]:
    """Return the items of a file or a folder."""
    found: list[Found] = []
    read = source(path, encoding, **choices)
    for batch in read.items():
        payloads = batch.payloads or [None] * len(batch)
        texts = [None if text is None else read_json(text) for text in payloads]
        ids: Json = batch.texts() or [None] * len(batch)
        found += zip(ids, batch.rows.json(), texts, strict=True)
    read.file.close()
    return found
