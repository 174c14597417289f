"""Files with a whole collection: NDJSON, or Parquet with `id`, vector, `payload`, `expires`.

The first line of NDJSON, or the metadata of Parquet, contains the settings of the collection that
`load` would not guess.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gcws_search.client.results import Item, SeenItems
from gcws_search.formats.files import whole_file
from gcws_search.formats.payloads import write_json
from gcws_search.formats.sources import COLLECTION, METADATA
from gcws_search.index import InvalidParameter
from gcws_search.index.contracts.parameters import CollectionConfig

if TYPE_CHECKING:
    from gcws_search.client.collection import AsyncCollection

_NDJSON: Final = (".ndjson", ".jsonl")
_PARQUET: Final = ".parquet"
_NAMES: Final = 4000
"""Names that are asked for at a time."""
_Write = Callable[[Sequence[Item]], None]


async def export_items(
    collection: AsyncCollection,
    path: str,
    progress: Callable[[int], None] | None,
    call: Callable[[Callable[[], Any]], Awaitable[Any]],
) -> int:
    """Write all items of a collection to a file, which appears when complete; return how many.

    ``call`` calls a function that writes to the file.
    """
    require_format(path)
    config = collection.config
    is_open = config.dim is None and config.text is None
    is_named = is_open and bool(await collection.names(limit=1))
    description = await _description(collection)
    known: dict[int, str | None] = {}
    count, cursor, seen = 0, None, SeenItems()
    with whole_file(Path(path)) as part:
        file = (
            _open_parquet(part, config, is_named, description)
            if path.endswith(_PARQUET)
            else _open_ndjson(part, description)
        )
        with ExitStack() as stack:
            write = await call(partial(stack.enter_context, file))
            while True:
                page, cursor = await collection.page(cursor, with_vector=config.text is None)
                items = seen.unseen(page)
                # A writer may have added the first name meanwhile.
                is_named = is_named or (is_open and bool(await collection.names(limit=1)))
                if is_named:
                    items = await _by_names(collection, items, known)
                await call(partial(write, items))
                count += len(items)
                if progress is not None and items:
                    progress(len(items))
                if cursor is None:
                    break
            await call(stack.close)
    return count


def require_format(path: str) -> None:
    """Raise InvalidParameter unless a file's name shows its format."""
    if not path.endswith((*_NDJSON, _PARQUET)):
        raise InvalidParameter(
            expected="a file called .ndjson, .jsonl or .parquet", got=repr(path), loc=("path",)
        )


async def _by_names(
    collection: AsyncCollection, items: list[Item], known: dict[int, str | None]
) -> list[Item]:
    """Return items of an open space with vectors by name, if all their coordinates have names.

    Coordinates are numbered by arrival, so another collection may number them differently. Names
    that a writer removed with their last item are found missing; then the item has changed too.
    """
    shown = {each.id: each for each in items}
    changed = shown
    while changed:
        vectors = [each.vector for each in changed.values() if isinstance(each.vector, dict)]
        unknown = {i for each in vectors for i in each["indices"]} - known.keys()
        if unknown:
            names = await collection.names(indices=unknown)
            known |= {index: names.get(index) for index in unknown}
        nameless = [each.id for each in changed.values() if None in _names_of(each, known)]
        now = {each.id: each for each in await collection.get_many(nameless)} if nameless else {}
        changed = {key: each for key, each in now.items() if each.vector != shown[key].vector}
        gone = {*nameless} - now.keys()
        shown = {key: changed.get(key, each) for key, each in shown.items() if key not in gone}
    return [_by_name(each, _names_of(each, known)) for each in shown.values()]


def _by_name(item: Item, names: list[str | None]) -> Item:
    assert isinstance(item.vector, dict)
    if None in names:
        return item
    return replace(item, vector={"names": names, "values": item.vector["values"]})


def _names_of(item: Item, known: dict[int, str | None]) -> list[str | None]:
    assert isinstance(item.vector, dict)
    return [known[index] for index in item.vector["indices"]]


async def _description(collection: AsyncCollection) -> dict[str, Any] | None:
    """Return configuration and names of a collection; None if `load` guesses them."""
    config = collection.config
    names: list[str] = []
    if config.dim is not None:  # names of a fixed dim belong to its first coordinates
        more = True
        while more and len(names) < config.dim:
            wanted = range(len(names), min(config.dim, len(names) + _NAMES))
            found = await collection.names(indices=wanted)
            names += [found[index] for index in wanted if index in found]
            more = len(found) == len(wanted)
    is_guessed = config.form == "dense" or config.dim is None
    if is_guessed and not names and config == CollectionConfig(dim=config.dim):
        return None
    return config.to_dict() | ({"names": names} if names else {})


@contextmanager
def _open_ndjson(path: Path, description: dict[str, Any] | None) -> Iterator[_Write]:
    with path.open("wb") as file:
        if description is not None:
            file.write(write_json({COLLECTION: description}) + b"\n")

        def write(items: Sequence[Item]) -> None:
            for item in items:
                document: dict[str, Any] = {"id": item.id}
                if item.text is None:
                    document["vector"] = item.vector
                else:
                    document["text"] = item.text
                if item.payload is not None:
                    document["payload"] = item.payload
                if item.expires is not None:
                    document["expires"] = item.expires
                file.write(write_json(document) + b"\n")

        yield write
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _open_parquet(
    path: Path, config: CollectionConfig, is_named: bool, description: dict[str, Any] | None
) -> Iterator[_Write]:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    float32, text, time = pa.float32(), pa.string(), pa.timestamp("ms", "UTC")
    if config.text is not None:
        vector = [("text", text)]
    elif config.form == "dense":
        vector = [("vector", pa.list_(float32, config.dim))]
    else:
        keys = ("names", text) if is_named else ("indices", pa.int32())
        vector = [(keys[0], pa.list_(keys[1])), ("values", pa.list_(float32))]
    metadata = None if description is None else {METADATA: write_json(description)}
    schema = pa.schema([("id", text), *vector, ("payload", text), ("expires", time)], metadata)
    with pq.ParquetWriter(path, schema) as writer:

        def write(items: Sequence[Item]) -> None:
            texts = [None if e.payload is None else write_json(e.payload).decode() for e in items]
            columns: dict[str, Any] = {"id": [each.id for each in items], "payload": texts}
            times = [each.expires and datetime.fromisoformat(each.expires) for each in items]
            columns["expires"] = times
            for word, _ in vector:
                columns[word] = [_part(each, word) for each in items]
            writer.write_table(pa.table(columns, schema=schema))

        yield write


def _part(item: Item, word: str) -> Any:
    """Return the text or the vector of an item, or one of the lists of a sparse vector."""
    if word == "text":
        return item.text
    if word == "vector" and isinstance(item.vector, list):
        return item.vector
    found = item.vector.get(word) if isinstance(item.vector, dict) else None
    if found is None:
        raise InvalidParameter(
            expected="names for all coordinates or for none, for Parquet; export .ndjson instead",
            got=f"item {item.id!r}, which does not have {word}",
            loc=("path",),
        )
    return found
