"""``load``: files into a collection of a server."""

from __future__ import annotations

import hashlib
import json
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from gcws_search.client.collection import Collection
from gcws_search.client.connection import Server
from gcws_search.client.errors import NoServer, note_stored
from gcws_search.client.results import Added, GivenIds, Rejected
from gcws_search.commands.options import (
    MAX_REJECTED_TOLD,
    REJECTED,
    Bar,
    Expires,
    Json,
    Normalize,
    Payload,
    Power,
    Scale,
    Storage,
    Ttl,
    Yes,
    arrange,
    ask,
    ask_server,
    asking,
    bar,
    fail,
    family,
    fingerprint_of,
    in_words,
    left_out_words,
    options_of,
    reading,
    report,
    show_guess,
    space_words,
    tell,
    transform_of,
    usage,
    whole_number,
    words_of,
)
from gcws_search.formats.files import (
    WORDS,
    BadFile,
    Folder,
    InputFile,
    input_files,
    rejected_path,
    require_same,
)
from gcws_search.formats.items import SEGMENT_ROWS, LoadBody
from gcws_search.formats.payloads import write_json
from gcws_search.formats.sources import Choices, Source, source_of
from gcws_search.index import (
    CollectionNotFound,
    GcwsError,
    ItemExists,
    WeightKind,
    error_words,
    quantity,
)
from gcws_search.version import program_version

cli = family()

_ASKED: Final = 50
"""Times that a server is asked whether it has ended a load."""
_MALFORMED: Final = "malformed_body"
_STORED: Final = ("inserted", "updated", "similar_count", "repeated_count")
"""Counts of rows that a server has done with, of a load without rejected ones."""
_COUNTS: Final = ("inserted", "updated", "rejected_count")
_TOTALS: Final = ("inserted", "updated", "rejected", "dropped", "similar", "repeated")


@asking(
    cli,
    "load",
    epilog="Examples: gcws-search load train.csv --into mnist --vector 'px*' --payload label; "
    "zcat items.ndjson.gz | gcws-search load - --into items",
)
@reading
def load(
    server: Server,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help=f"{WORDS}, also compressed with gzip, zstd, xz or bzip2; a folder; "
            "s3://bucket/prefix or another address of either; - for standard input.",
        ),
    ],
    *,
    into: Annotated[str, typer.Option("--into", metavar="NAME", help="Name of the collection.")],
    payload: Payload = None,
    choices: Choices,
    encoding: str | None,
    dim: str | None,
    normalize: Normalize = None,
    power: Power = None,
    scale: Scale = None,
    storage: Storage = None,
    ttl: Ttl = None,
    expires: Expires = None,
    mode: Annotated[
        Literal["upsert", "insert", "unless_similar"],
        typer.Option(
            help="Replace items with existing ids, or refuse them, or skip items similar to a "
            "stored one (by --min-score)."
        ),
    ] = "upsert",
    min_score: Annotated[
        float | None,
        typer.Option(help="With unless_similar: the score from which an item is skipped."),
    ] = None,
    recall: Annotated[
        float | None,
        typer.Option(help="With unless_similar: expected share of such items that is found, 0.9."),
    ] = None,
    payloads: Annotated[
        Literal["replace", "keep"],
        typer.Option(help="Payload of an existing item if its new row has none."),
    ] = "replace",
    on_error: Annotated[
        Literal["stop", "skip"],
        typer.Option(help="At a bad row: stop, or write it to FILE.rejected.ndjson."),
    ] = "stop",
    id_start: Annotated[
        int | None,
        typer.Option(
            parser=whole_number(0, 2**63 - 1),
            help="Number rows without ids from here on, and overwrite items with these numbers; "
            "by default they get the next free numbers.",
        ),
    ] = None,
    load_key: Annotated[
        str | None, typer.Option("--key", help="Name of this load, to resume standard input.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Load files that were loaded before.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be loaded, but load nothing.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Load files into a collection, and create it if it does not exist.

    The command first shows how it will read the files.

    Run the same command again to resume an interrupted load; --again loads everything again.
    """
    if (mode == "unless_similar") != (min_score is not None):
        usage("--min-score and --mode unless_similar: expected both, or neither")
    if files.count("-") > 1:
        usage("expected standard input once, got - twice")
    choices = replace(
        choices, payload=words_of(payload), id_start=id_start, lenient=on_error == "skip"
    )
    if again:
        load_key = f"{load_key or 'again'}-{secrets.token_hex(8)}"
    with ExitStack() as stack:
        inputs = [
            stack.enter_context(closing(each))
            for path in files
            for each in input_files(path, encoding, report)
        ]
        first = source_of(inputs[0], choices)
        show_guess(first, scale)
        if dry_run:
            _show_rows(first, as_json)
            return
        collection = _existing(server, into, first)
        is_new = collection is None
        notes_fingerprint = "fingerprint" in first.settled and not (collection and len(collection))
        export = first.export or {}
        if collection is None:
            transform = transform_of(normalize, power, scale)
            options = options_of(first, dim, transform, storage, ttl)
            collection = _create(server, into, first, options, yes=yes)
        params: dict[str, str] = {"mode": mode, "on_error": on_error, "payloads": payloads}
        more = {"min_score": min_score, "recall": recall, "expires": expires}
        params |= {name: str(value) for name, value in more.items() if value is not None}
        done = _Load(collection, params, load_key, again)
        with _drop_if_empty(server, collection, is_new), _taking_names(collection, first):
            names = export.get("names")  # of a fixed dim
            if names and collection.config.dim is not None:
                collection.set_names(names, replace=False)
            done.load_all(inputs, first)
        if notes_fingerprint:  # queries by SMILES need the same one
            before = collection.describe()["metadata"] or {}
            collection.set_metadata(before | {"fingerprint": first.settled["fingerprint"]})
        done.fit(scale)
    if done.tell(as_json):
        raise typer.Exit(REJECTED)


def _show_rows(source: Source, as_json: bool) -> None:
    body = next(iter(source.segments()))
    shown = min(3, body.rows or 0)
    rows = [body.original(row) for row in range(shown)] if body.original else []
    guess = {"guess": dict(source.guess), "dim": source.dim, "rows": rows}
    tell(as_json, guess, *(json.dumps(row)[:400] for row in rows))


def _existing(found: Server, into: str, source: Source) -> Collection | None:
    """Return the collection, None if there is none; exit if it takes other items."""
    try:
        collection = found.collection(into)
    except CollectionNotFound:
        return None
    if "fingerprint" in source.settled:
        fingerprint_of(collection, source.settled["fingerprint"])
    arrange(source, collection)
    expected = collection.config.dim
    is_told = source.choices.dim is not None
    if not is_told and expected is not None and source.dim not in (None, expected):
        words = dict(source.guess).get("vector", "the file")
        fail(
            f"{into}: expected vectors of {quantity(expected, 'value')}, "
            f"got {source.dim} in {words}; --vector names the columns, and another --into a new "
            "collection"
        )
    return collection


@contextmanager
def _taking_names(collection: Collection, source: Source) -> Iterator[None]:
    """Name the coordinates of a new collection like a file's columns, unless it stays empty."""
    naming = ask_server(collection, lambda place: place.take_names(source.names))
    try:
        yield
    finally:
        ask_server(collection, lambda place: place.settle_names(source.names, naming))


def _create(
    found: Server, into: str, source: Source, options: Mapping[str, Any], *, yes: bool
) -> Collection:
    """Create the collection for a file; on a terminal, ask first."""
    text = ((source.export or {}).get("text") or {}) if source.is_text else None
    words = space_words(options["dim"], None if text is None else text.get("tokens", "words"))
    typer.echo(f"  {'into':8} {into}, new: {words}", err=True)
    if not yes and sys.stdin.isatty() and sys.stderr.isatty():
        ask("Create it?", default=True)
    return found.collection(into, text=text, **options)


@contextmanager
def _drop_if_empty(found: Server, collection: Collection, is_new: bool) -> Iterator[None]:
    """Drop a collection that this command created if it is still empty."""
    try:
        yield
    except BaseException:
        with suppress(GcwsError):
            if is_new and not len(collection):
                found.drop(collection.name)
        raise


@dataclass(slots=True)
class _Load:
    """Loads files in order: the options and the results."""

    collection: Collection
    params: Mapping[str, str]
    key: str | None
    again: bool
    files: list[dict[str, Any]] = field(default_factory=list)
    before: Sequence[Mapping[str, Any]] = ()

    def load_all(self, inputs: list[InputFile | Folder], first: Source) -> None:
        """Load all files; the first one is open; ids continue from file to file."""
        choices, self.before = first.choices, self.collection.loads()
        for number, file in enumerate(inputs):
            settled = first.settled if file.format == first.file.format else {}
            source = first if number == 0 else source_of(file, replace(choices, **settled))
            arrange(source, self.collection)
            total = source.rows if source.rows is not None else file.size_bytes
            with bar(file.name, total) as progress:
                if source.rows is None:
                    progress.position = lambda file=file: file.read_bytes
                added = self._load(source, progress, *self._keys(source, number))
            self._count(source, added)
            if choices.id_start is not None:
                rows = added.inserted + added.updated + added.rejected_count
                rows += added.similar_count + added.repeated_count + len(source.dropped)
                choices = replace(choices, id_start=choices.id_start + rows)
        try:
            require_same(inputs)
        except (BadFile, OSError) as error:  # for example a log that grows
            report(f"{error_words(error)}; rows of both may be stored")

    def _count(self, source: Source, added: Added) -> None:
        """Count the results of a file; rows loaded before are counted separately."""
        before = added.loaded_before or {"complete": False}
        inserted, updated = added.inserted, added.updated
        if before["complete"]:
            inserted, updated = inserted - before["inserted"], updated - before["updated"]
        told: dict[str, Any] = {
            "file": source.file.name,
            "inserted": inserted,
            "updated": updated,
            "rejected": added.rejected_count,
            "dropped": len(source.dropped),
            "similar": 0 if before["complete"] else added.similar_count,
            "repeated": 0 if before["complete"] else added.repeated_count,
        }
        if added.ids is not None:
            told["ids"] = added.ids._asdict()
        if added.loaded_before:
            told["loaded_before"] = dict(added.loaded_before)
        self.files.append(told)

    def _keys(self, source: Source, number: int) -> list[str | None]:
        """Return keys of a load to try: equal for the same file, items and program.

        The first key ignores how bad rows are treated. So a load that ended at a bad row can resume
        with other options for these, or after the file was corrected: its first rows are compared.
        The last key includes how missing numbers are treated.
        """
        if self.key is not None:
            return [self.key if number == 0 else f"{self.key}/{number}"]
        file, params = source.file, self.params
        if file.path is None:
            return [None]
        path = str(file.path.resolve() if isinstance(file.path, Path) else file.path)
        choices = replace(source.choices, lenient=False, missing="error")
        told = [
            self.collection.name, path, params["mode"], params["payloads"], repr(choices),
            *(params[word] for word in ("min_score", "recall", "expires") if word in params),
            *(each for each in source.guess if each[0] in ("ids", "vector", "payload")),
            program_version(),
        ]  # fmt: skip
        name, missing = _digest(told), source.choices.missing
        version = [file.size_bytes, file.version]
        versions = [version] if missing == "error" else [version, [*version, missing]]
        return self._with_mended(source, name, [f"{name}-{_digest(each)}" for each in versions])

    def _with_mended(self, source: Source, name: str, keys: list[str]) -> list[str | None]:
        """Return the keys, then that of a load of the file that ended before the file changed."""
        for each in self.before:
            whole, _, part = (each["key"] or "").removeprefix(f"{name}-").partition("-")
            key = f"{name}-{whole}"
            if not (each["key"] or "").startswith(key) or not each["rows"]:
                continue
            if key in keys:
                break
            if not part and each["state"] in ("failed", "interrupted"):
                return [key, *keys]
            self._warn(source, f"changed since it was loaded, {in_words('', each['started'])}")
            break
        return [*keys]

    @staticmethod
    def _warn(source: Source, what: str) -> None:
        """Warn that rows without ids are added to those of another load of the file."""
        if not source.has_ids and source.choices.id_start is None:
            words = "rows without ids are stored besides those of then"
            report(f"{source.file.name}: {what}; {words}")

    def _load(self, source: Source, progress: Bar, key: str | None, *others: str | None) -> Added:
        """Load a file under a key, or under another one if that belongs to other rows."""
        file, again = source.file, ""
        if key is not None:
            command = f"--key {self.key} in place of --again" if self.again else "the same command"
            again = f"; {command} goes on from there"
        if source.choices.lenient:
            rejected_path(file).unlink(missing_ok=True)
        try:
            if file.path is None and (source.choices.lenient or key is not None):
                return self._load_parts(source, progress, key, Added(0, 0))  # readable once
            return self._load_whole(source, progress, key)
        except KeyboardInterrupt:
            fail(f"{file.name}: interrupted{again}")
        except BadFile as error:  # a row that is read while earlier rows are stored
            with suppress(GcwsError):
                known = self._known(key)
                _note_stored(error, known.inserted + known.updated)
            raise
        except GcwsError as error:
            is_other = getattr(error, "code", None) == "idempotency_mismatch"
            if is_other and others:
                self._warn(source, "its rows are others than an earlier load of it has stored")
                progress.start_again(0)
                return self._load(source, progress, *others)
            notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
            is_row = hasattr(error, "row")
            if is_row:
                goes_on = " and goes on from there" if again and notes else ""
                again = f"; --on-error skip leaves such rows out{goes_on}"
            elif not notes and not isinstance(error, NoServer):
                again = ""
            if is_other:
                again = "; another --key loads this file"
                if file.path is not None:
                    modified = datetime.fromtimestamp(file.modified_ns / 1e9, UTC)
                    changed = modified.isoformat("T", "seconds")
                    again += f", which has {file.size_bytes} bytes of {changed}"
            fail(f"{file.name}: {_row_words(error, source)}{notes}{again}")

    def _known(self, key: str | None) -> Added:
        """Return what the load of a key has stored, once the server has ended it."""
        found: dict[str, Any] = {}
        for _ in range(_ASKED):
            loads = (each for each in self.collection.loads() if key and each["key"] == key)
            found = next(loads, {})
            if found.get("state") != "running":
                break
            time.sleep(0.1)
        counts = {word: found.get(word, 0) for word in _STORED}
        ids, before = found.get("ids"), found.get("loaded_before")
        return Added(**counts, ids=ids and GivenIds(**ids), loaded_before=before)

    def _load_whole(self, source: Source, progress: Bar, key: str | None) -> Added:
        """Load a file as one body; if bad rows are left out, continue after one in parts.

        So all loads of a key have the same body, however bad rows are treated.
        """
        try:
            known = self._send(source.whole(progress.rows), progress, key, on_error="stop")
            if not source.unreadable:
                return known
        except GcwsError as error:
            _move_row(error, source.number_of)
            if not (source.choices.lenient and hasattr(error, "row")):
                raise
            known = self._known(key)
        return self._load_parts(source, progress, key, known)

    def _send(self, body: LoadBody, progress: Bar, key: str | None, **params: str) -> Added:
        counted = replace(body, pieces=lambda: progress.each(body.pieces()))
        whole = {**self.params, **params}
        return ask_server(self.collection, lambda place: place.load(counted, whole, key))

    def _load_parts(self, source: Source, progress: Bar, key: str | None, known: Added) -> Added:
        """Load the remaining rows in parts; write each rejected row to a file."""
        path = rejected_path(source.file)
        done, first = known, sum(getattr(known, word) for word in _STORED)
        progress.start_again(first)
        earlier, before = known.loaded_before, list[Mapping[str, Any] | None]()
        if first:
            is_all = earlier and all(earlier[word] == getattr(known, word) for word in _STORED[:2])
            before.append(earlier and {**earlier, "complete": is_all})

        def reject(added: Added, items: Sequence[Any] = (), end: float = inf) -> Added:
            """Write rejected and unreadable rows before ``end``, in order."""
            unreadable = [each for each in source.unreadable if each.row < end]
            source.unreadable[:] = [each for each in source.unreadable if each.row >= end]
            bad = [
                *zip(added.rejected, items, strict=True),
                *((Rejected(row, _MALFORMED, words), text) for row, words, text in unreadable),
            ]
            bad.sort(key=lambda each: each[0].row)
            if bad:
                with path.open("ab") as file:
                    for rejected, item in bad:
                        file.write(write_json(rejected._asdict() | {"item": item}, str) + b"\n")
            for rejected, _ in bad[: max(0, MAX_REJECTED_TOLD - len(done.rejected))]:
                where = f"{source.file.name}: {source.place(rejected.row)}"
                typer.echo(f"{where}: {source.with_column(rejected.detail)}", err=True)
            progress.rejected += len(bad)
            return replace(added, rejected=[each for each, _ in bad], rejected_count=len(bad))

        for number, body in enumerate(source.segments(first)):
            part_key = None if key is None else f"{key}-{number}"
            rows = body.rows or 0
            numbers = range(first, first + rows) if body.numbers is None else body.numbers
            try:
                added = self._send(body, progress, part_key, max_rejected=str(SEGMENT_ROWS))
            except GcwsError as error:
                _move_row(error, numbers.__getitem__)
                _note_stored(error, done.inserted + done.updated)
                raise
            rejected = [
                Rejected(numbers[row], code, words.removeprefix(f"row {row}: "))
                for row, code, words in added.rejected
            ]
            show = body.original or (lambda _: None)
            items = [show(each.row) for each in added.rejected]
            done += reject(replace(added, rejected=rejected), items, numbers[-1])
            before.append(added.loaded_before)
            first += rows
            progress.rows(rows)
        done += reject(Added(0, 0))
        if done.rejected:
            typer.echo(f"{path}: {quantity(len(done.rejected), 'rejected row')}", err=True)
        return replace(done, loaded_before=_sum_before(before))

    def fit(self, scale: WeightKind | None) -> None:
        """Let the collection learn the requested weights unless it has learned them."""
        described = self.collection.describe()
        before = described.get("weights") or {"kind": None, "version": 1}
        if described["items"] and (scale not in (None, before["kind"]) or not before["version"]):
            learned = self.collection.fit(scale)
            words = f"{learned['kind']}, learned from {quantity(learned['items'], 'item')}"
            typer.echo(f"  {'weights':8} {words}", err=True)

    def tell(self, as_json: bool) -> int:
        """Print the totals, and return the number of rejected rows."""
        for each in self.files:
            if before := each.get("loaded_before"):
                stored = quantity(before["inserted"] + before["updated"], "item")
                started = in_words("started", before["started"])
                words = f"loaded in part before ({stored}, {started}); now the rest"
                if before["complete"]:
                    words = f"0 stored: this file was loaded before ({stored}, {started}); "
                    words += "--again loads it again"
                typer.echo(f"{each['file']}: {words}", err=True)
        given = [each["ids"] for each in self.files if "ids" in each]
        ids = {"first": given[0]["first"], "last": given[-1]["last"]} if given else None
        into = self.collection.name
        counts: list[int] = [sum(each[word] for each in self.files) for word in _TOTALS]
        inserted, updated, rejected, dropped, similar, repeated = counts
        told = {"collection": into, **dict(zip(_TOTALS, counts, strict=True)), "files": self.files}
        words = f"{into}: {inserted:,} inserted, {updated:,} updated"
        words += left_out_words(rejected, dropped, repeated, similar)
        if ids and inserted:
            one = ids["first"] == ids["last"]
            words += f", id {ids['first']}" if one else f", ids {ids['first']} to {ids['last']}"
        tell(as_json, told if ids is None else told | {"ids": ids}, words)
        return rejected


def _digest(told: list[Any]) -> str:
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]


def _sum_before(before: list[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """Return the results of earlier loads of a file: the sum over its parts."""
    found = [each for each in before if each is not None]
    if not found:
        return None
    joined = {word: sum(each[word] for each in found) for word in _COUNTS}
    is_complete = all(each is not None and each["complete"] for each in before)
    return joined | {"started": found[0]["started"], "complete": is_complete}


def _move_row(error: Any, row_of: Callable[[int], int]) -> None:
    """Replace the row number of an error about a body by that in the file."""
    loc: tuple[Any, ...] = getattr(error, "loc", ())
    if loc[:1] == ("rows",):
        error.loc = ("rows", row_of(loc[1]), *loc[2:])
    elif isinstance(error, ItemExists):
        error.args = ItemExists(error.item_id, row_of(error.row)).args


def _note_stored(error: Exception, rows: int) -> None:
    """Note the number of rows stored before, unless the error has a note."""
    if not getattr(error, "__notes__", ()):
        note_stored(error, rows)


def _row_words(error: Any, source: Source) -> str:
    """Return the text of an error, with its row if it has one."""
    loc: tuple[Any, ...] = getattr(error, "loc", ())
    is_row = len(loc) > 1 and loc[0] == "rows"
    return source.error_words(error, loc[1]) if is_row else str(error)
