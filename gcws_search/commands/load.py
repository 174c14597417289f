"""``load``: files into a collection of a server."""

from __future__ import annotations

import hashlib
import json
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from gcws_search.commands.options import (
    LOCAL,
    REJECTED,
    Json,
    Key,
    Url,
    fail,
    failures,
    family,
    print_json,
    server,
    usage,
)
from gcws_search.version import program_version

if TYPE_CHECKING:
    from gcws_search.client.collection import Collection
    from gcws_search.client.connection import Server
    from gcws_search.client.results import Added, Rejected
    from gcws_search.commands.bars import Bar
    from gcws_search.formats.files import Folder, InputFile
    from gcws_search.formats.items import LoadBody
    from gcws_search.formats.sources import Choices, Source

cli = family()

_SHOWN: Final = 20
"""Rejected rows that are named on the terminal."""
_OPEN: Final = "open"
_COUNTS: Final = ("inserted", "updated", "rejected_count")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Task:
    """The options that hold for every file."""

    into: str
    mode: str
    payloads: str
    on_error: str
    key: str | None
    again: bool
    choices: Choices
    power: float | None
    normalize: str | None
    storage: Literal["memory", "mapped"] | None


@dataclass(slots=True)
class _Done:
    """The totals so far."""

    inserted: int = 0
    updated: int = 0
    rejected: int = 0
    dropped: int = 0
    files: list[dict[str, Any]] = field(default_factory=list)

    def add(self, name: str, added: Added) -> None:
        """Count a file; what was loaded before is not stored now."""
        before = added.loaded_before or {"complete": False}
        inserted, updated = added.inserted, added.updated
        if before["complete"]:
            inserted, updated = inserted - before["inserted"], updated - before["updated"]
        self.inserted += inserted
        self.updated += updated
        self.rejected += added.rejected_count
        told: dict[str, Any] = {"file": name, "inserted": inserted, "updated": updated}
        if added.ids is not None:
            told["ids"] = added.ids._asdict()
        if added.loaded_before:
            told["loaded_before"] = dict(added.loaded_before)
        self.files.append(told)


@cli.command(
    "load",
    epilog="Examples: gcws-search load train.csv --into mnist --vector 'px*' --payload label; "
    "zcat items.ndjson.gz | gcws-search load - --into items",
)
def load(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE…",
            help="CSV, TSV, Parquet, Arrow, NDJSON, .npy, .npz or svmlight, also compressed with "
            "gzip or zstd; a folder; - for standard input.",
        ),
    ],
    *,
    into: Annotated[str, typer.Option("--into", metavar="NAME", help="The collection.")],
    id_: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="Column of ids.")
    ] = None,
    vector: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMNS", help="Columns of the vector: 'px*', or 'a,b,c'."),
    ] = None,
    payload: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMNS", help="Columns of the payload; '' for none."),
    ] = None,
    header: Annotated[
        bool | None,
        typer.Option(help="Whether the first line of CSV has the names of columns."),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Encoding of text, such as cp1252; guessed unless given."
        ),
    ] = None,
    missing: Annotated[
        Literal["error", "drop", "zero", "mean"],
        typer.Option(
            help="What a missing number becomes: an error, its row left out, 0, the mean."
        ),
    ] = "error",
    dim: Annotated[
        str | None, typer.Option(help="Number of coordinates, or 'open' for sparse vectors.")
    ] = None,
    normalize: Annotated[
        Literal["none", "l1", "l2"] | None,
        typer.Option(help="Transform of a collection that is created: divide by this norm."),
    ] = None,
    power: Annotated[
        float | None,
        typer.Option(help="Transform of a collection that is created: sign(x)·|x|^power."),
    ] = None,
    storage: Annotated[
        Literal["memory", "mapped"] | None,
        typer.Option(help="Where vectors of a collection that is created lie: memory, or a file."),
    ] = None,
    mode: Annotated[
        Literal["upsert", "insert"], typer.Option(help="What happens to ids that exist.")
    ] = "upsert",
    payloads: Annotated[
        Literal["replace", "keep"],
        typer.Option(help="Payloads of items that exist, where a row has none."),
    ] = "replace",
    on_error: Annotated[
        Literal["stop", "skip"],
        typer.Option(help="At a bad row: stop, or write it to FILE.rejected.ndjson."),
    ] = "stop",
    id_start: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Number rows without ids from here on, over items of these numbers; otherwise "
            "they get the next numbers not taken.",
        ),
    ] = None,
    load_key: Annotated[
        str | None,
        typer.Option("--key", help="Name of this load, by which standard input is resumed."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Load files again that were loaded before.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be loaded, and load nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Create without asking.")] = False,
    as_json: Json = False,
    url: Url = LOCAL,
    key: Key = None,
) -> None:
    """Load files into a collection, which is created where there is none.

    What a file holds is guessed and shown first.

    The same command run again goes on where it was interrupted, and stores nothing twice: --again
    does.
    """
    from gcws_search.formats.sources import Choices, source_of  # noqa: PLC0415  # loads numpy

    choices = Choices(
        id=id_,
        vector=_words(vector),
        payload=_words(payload),
        dim=_dim(dim),
        header=header,
        id_start=id_start,
        lenient=on_error == "skip",
        missing=missing,
    )
    if again:
        load_key = f"{load_key or 'again'}-{secrets.token_hex(8)}"
    task = _Task(
        into=into, mode=mode, payloads=payloads, on_error=on_error, key=load_key, again=again,
        choices=choices, power=power, normalize=normalize, storage=storage,
    )  # fmt: skip
    with ExitStack() as stack, failures():
        inputs = [
            stack.enter_context(closing(each)) for each in _input_files(files, _encoding(encoding))
        ]
        first = source_of(inputs[0], choices)
        _show(inputs[0], first)
        if dry_run:
            _show_rows(first, as_json)
            return
        found = stack.enter_context(server(url, key))
        collection, is_new = _collection(found, task, first, ask=not yes, is_open=dim == _OPEN)
        with _drop_if_empty(found, collection, is_new):
            _name_coordinates(collection, first)
            done = _load_all(collection, inputs, first, task)
    _tell(done, into, as_json)
    if done.rejected:
        raise typer.Exit(REJECTED)


def _words(texts: list[str] | None) -> tuple[str, ...] | None:
    """Return the columns of an option that may be given several times; None where it is not."""
    words = [word.strip() for text in texts or () for word in text.split(",")]
    return tuple(filter(None, words)) if texts else None


def _dim(text: str | None) -> int | None:
    if text is None or text == _OPEN:
        return None
    if not text.isdecimal() or int(text) < 1:
        usage(f"--dim: expected a number of coordinates or 'open', got {text!r}")
    return int(text)


def _encoding(name: str | None) -> str | None:
    from gcws_search.formats.encodings import is_encoding  # noqa: PLC0415

    if name is not None and not is_encoding(name):
        usage(f"--encoding: expected the name of an encoding such as cp1252, got {name!r}")
    return name


def _input_files(paths: list[str], encoding: str | None) -> Iterator[InputFile | Folder]:
    """Yield files and folders of tables; of another folder its files, by name."""
    from gcws_search.formats.files import input_files  # noqa: PLC0415  # loads numpy

    if paths.count("-") > 1:
        usage("expected standard input once, got - twice")
    for path in paths:
        yield from input_files(path, encoding)


def _show(file: InputFile | Folder, source: Source) -> None:
    typer.echo(file.name, err=True)
    for word, value in source.guess:
        typer.echo(f"  {word:8} {value}", err=True)


def _show_rows(source: Source, as_json: bool) -> None:
    body = next(iter(source.segments()))
    shown = min(3, body.rows or 0)
    rows = [body.original(row) for row in range(shown)] if body.original else []
    if as_json:
        print_json({"guess": dict(source.guess), "dim": source.dim, "rows": rows})
        return
    for row in rows:
        typer.echo(json.dumps(row)[:400])


def _collection(
    found: Server, task: _Task, source: Source, *, ask: bool, is_open: bool
) -> tuple[Collection, bool]:
    """Return the collection, created where there is none, and whether it was."""
    from gcws_search.index import CollectionNotFound  # noqa: PLC0415

    try:
        collection = found.collection(task.into)
    except CollectionNotFound:
        pass
    else:
        dim, expected = source.dim, collection.config.dim
        if (
            dim is not None
            and expected is not None
            and dim != expected
            and task.choices.dim is None
        ):
            fail(
                f"{task.into}: expected vectors of {expected} values, "
                f"got {dim} in {_vector_words(source)}; --vector names the columns, "
                "and another --into a new collection"
            )
        return collection, False
    dim = None if is_open else source.dim
    words = "an open space of sparse vectors" if dim is None else f"dim {dim}"
    typer.echo(f"  {'into':8} {task.into}, new: {words}", err=True)
    if ask and sys.stdin.isatty() and sys.stderr.isatty():
        typer.confirm("Create it?", default=True, abort=True, err=True)
    told = source.export or {}
    chosen = {"power": task.power, "normalize": task.normalize}
    transform = told.get("transform", {}) | {k: v for k, v in chosen.items() if v is not None}
    backend = told.get("backend")
    storage = task.storage or told.get("storage", "memory")
    created = found.collection(
        task.into, dim, transform=transform, backend=backend, storage=storage
    )
    return created, True


def _name_coordinates(collection: Collection, source: Source) -> None:
    """Name the coordinates of a fixed dim as an export says, unless they have names."""
    names = (source.export or {}).get("names")
    if names and collection.config.dim is not None and not collection.names(limit=1):
        collection.set_names(names)


@contextmanager
def _drop_if_empty(found: Server, collection: Collection, is_new: bool) -> Iterator[None]:
    """Drop a collection that this command created if it is still empty."""
    from gcws_search.index import GcwsError  # noqa: PLC0415

    try:
        yield
    except BaseException:
        with suppress(GcwsError):
            if is_new and not len(collection):
                found.drop(collection.name)
        raise


def _vector_words(source: Source) -> str:
    return dict(source.guess).get("vector", "the file")


def _load_all(
    collection: Collection, inputs: list[InputFile | Folder], first: Source, task: _Task
) -> _Done:
    from gcws_search.commands.bars import bar  # noqa: PLC0415
    from gcws_search.formats.sources import source_of  # noqa: PLC0415

    done, choices = _Done(), task.choices
    for number, file in enumerate(inputs):
        source = first if number == 0 else source_of(file, choices)
        total = source.rows if source.rows is not None else file.size_bytes
        with bar(file.name, total) as progress:
            if source.rows is None:
                progress.position = lambda file=file: file.read_bytes
            key = _key(file, number, source, task)
            added = _load_file(collection, file, source, task, progress, key)
        done.add(file.name, added)
        done.dropped += len(source.dropped)
        if choices.id_start is not None:
            rows = added.inserted + added.updated + added.rejected_count
            choices = replace(choices, id_start=choices.id_start + rows)
    return done


def _load_file(
    collection: Collection, file: InputFile | Folder, source: Source, task: _Task, progress: Bar,
    key: str | None,
) -> Added:  # fmt: skip
    from gcws_search.client.errors import NoServer  # noqa: PLC0415
    from gcws_search.index import GcwsError  # noqa: PLC0415

    try:
        if task.on_error == "skip":
            return _skipping(collection, file, source, task, progress, key)
        body = source.whole(progress.rows)
        return _upload(collection, body, task, progress, key)
    except KeyboardInterrupt:
        fail(f"{file.name}: interrupted{_goes_on(key, task)}")
    except GcwsError as error:
        notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
        is_interrupted = bool(notes) or isinstance(error, NoServer)
        again = _goes_on(key, task) if is_interrupted else ""
        if getattr(error, "loc", ())[:1] == ("rows",) and not notes:
            again = "; --on-error skip leaves such rows out"
        if getattr(error, "code", None) == "idempotency_mismatch":
            again = "; another --key loads this file"
            if file.path is not None:
                modified = datetime.fromtimestamp(file.modified_ns / 1e9, UTC)
                changed = modified.isoformat("T", "seconds")
                again += f", which has {file.size_bytes} bytes of {changed}"
        fail(f"{file.name}: {_with_column(str(error), error, source)}{notes}{again}")


def _goes_on(key: str | None, task: _Task) -> str:
    """Return how to resume an interrupted load."""
    if key is None:
        return ""
    command = f"--key {task.key} in place of --again" if task.again else "the same command"
    return f"; {command} goes on from there"


def _key(file: InputFile | Folder, number: int, source: Source, task: _Task) -> str | None:
    """Return the name of a load: the same for the same file, options and program."""
    if task.key is not None:
        return task.key if number == 0 else f"{task.key}/{number}"
    if file.path is None:
        return None
    told = [
        task.into, str(file.path.resolve()), file.size_bytes, file.modified_ns, task.mode,
        task.payloads, task.on_error, repr(task.choices), source.guess, program_version(),
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def _upload(
    collection: Collection, body: LoadBody, task: _Task, progress: Bar, key: str | None,
    *, max_rejected: int | None = None,
) -> Added:  # fmt: skip
    from gcws_search.client.remote import RemoteCollection  # noqa: PLC0415
    from gcws_search.client.retries import run  # noqa: PLC0415

    assert isinstance(collection.place, RemoteCollection)
    params = {"mode": task.mode, "on_error": task.on_error, "payloads": task.payloads}
    if max_rejected is not None:
        params["max_rejected"] = str(max_rejected)
    counted = replace(body, pieces=lambda: progress.each(body.pieces()))
    return run(collection.place.load(counted, params, key))


def _skipping(
    collection: Collection, file: InputFile | Folder, source: Source, task: _Task, progress: Bar,
    key: str | None,
) -> Added:  # fmt: skip
    """Load a file part by part, and write every rejected row to a file."""
    from gcws_search.client.results import Added, Rejected  # noqa: PLC0415
    from gcws_search.formats.payloads import write_json  # noqa: PLC0415
    from gcws_search.formats.sources import SEGMENT_ROWS  # noqa: PLC0415

    name = "stdin" if file.path is None else str(file.path)
    output = Path(f"{name}.rejected.ndjson")
    output.unlink(missing_ok=True)
    done, first = Added(0, 0), 0
    before: list[Mapping[str, Any] | None] = []

    def write(rejected: list[Rejected], items: list[Any]) -> None:
        with output.open("ab") as written:
            for (row, code, detail), item in zip(rejected, items, strict=True):
                line = {"row": row, "code": code, "detail": detail, "item": item}
                written.write(write_json(line, default=str) + b"\n")
        for row, _, detail in rejected[: max(0, _SHOWN - len(done.rejected))]:
            typer.echo(f"{file.name}: {source.place(row)}: {_with_name(detail, source)}", err=True)
        progress.rejected += len(rejected)

    told = 0

    def unreadable() -> list[tuple[Rejected, Any]]:
        nonlocal told
        more = source.unreadable[told:]
        told += len(more)
        return [(Rejected(row, "malformed_body", detail), text) for row, detail, text in more]

    for number, body in enumerate(source.segments()):
        part_key = None if key is None else f"{key}-{number}"
        bad = unreadable()
        added = _upload(collection, body, task, progress, part_key, max_rejected=SEGMENT_ROWS)
        rows = body.rows or 0
        numbers = range(first, first + rows) if body.numbers is None else body.numbers
        for row, code, detail in added.rejected:
            one = Rejected(numbers[row], code, detail.removeprefix(f"row {row}: "))
            bad.append((one, body.original(row) if body.original else None))
        bad.sort(key=lambda each: each[0].row)
        found = [each for each, _ in bad]
        write(found, [item for _, item in bad])
        done += replace(added, rejected=found, rejected_count=len(found))
        before.append(added.loaded_before)
        first += rows
        progress.rows(rows)
    if bad := unreadable():
        found = [each for each, _ in bad]
        write(found, [item for _, item in bad])
        done += Added(0, 0, found, len(found))
    if done.rejected:
        typer.echo(f"{output}: {len(done.rejected)} rejected rows", err=True)
    return replace(done, loaded_before=_sum_before(before))


def _sum_before(before: list[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """Return what was loaded of a file before: the sum over its parts."""
    found = [each for each in before if each is not None]
    if not found:
        return None
    joined = {word: sum(each[word] for each in found) for word in _COUNTS}
    is_complete = all(each is not None and each["complete"] for each in before)
    return joined | {"started": found[0]["started"], "complete": is_complete}


def _with_column(text: str, error: Any, source: Source) -> str:
    """Return what is wrong with a row: its number, its column, expected, got."""
    loc: tuple[Any, ...] = getattr(error, "loc", ())
    if len(loc) > 1 and loc[0] == "rows":
        words = f"expected {error.expected}, got {error.got}"
        inner = loc[2:]
        where = f"{source.place(loc[1])}: "
        if source.columns and inner and isinstance(inner[-1], int):
            return f"{where}column {source.columns[inner[-1]]!r}: {words}"
        place = ".".join(str(part) for part in inner if not isinstance(part, int))
        return f"{where}{place}: {words}" if place else f"{where}{words}"
    return text


def _with_name(words: str, source: Source) -> str:
    """Return a message with the name of the column that it is about."""
    text, _, place = words.partition(" (in vector[")
    number = place.rstrip("])")
    if source.columns and number.isdecimal():
        return f"column {source.columns[int(number)]!r}: {text}"
    return words


def _tell(done: _Done, into: str, as_json: bool) -> None:
    for each in done.files:
        if before := each.get("loaded_before"):
            typer.echo(_load_words(each["file"], before), err=True)
    given = [each["ids"] for each in done.files if "ids" in each]
    ids = {"first": given[0]["first"], "last": given[-1]["last"]} if given else None
    if as_json:
        print_json(
            {
                "collection": into,
                "inserted": done.inserted,
                "updated": done.updated,
                "rejected": done.rejected,
                "dropped": done.dropped,
                "files": done.files,
            }
            | ({} if ids is None else {"ids": ids})
        )
        return
    rejected = f", {done.rejected} rejected" if done.rejected else ""
    rejected += f", {done.dropped} left out for missing numbers" if done.dropped else ""
    numbers = f", ids {ids['first']} to {ids['last']}" if ids and done.inserted else ""
    typer.echo(f"{into}: {done.inserted} inserted, {done.updated} updated{rejected}{numbers}")


def _load_words(name: str, before: Mapping[str, Any]) -> str:
    """Return the words for what was loaded of a file before."""
    stored = before["inserted"] + before["updated"]
    if before["complete"]:
        return (
            f"{name}: 0 stored: this file was loaded before ({stored} items, {before['started']}); "
            "--again loads it again"
        )
    return f"{name}: {stored} items of it were stored before, {before['started']}"
