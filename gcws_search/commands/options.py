"""Shared by commands: options, errors that end a command, printing of answers and progress."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, redirect_stdout
from dataclasses import replace
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NoReturn, TypeVar

import typer

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from gcws_search.client.collection import Collection
    from gcws_search.client.connection import Server
    from gcws_search.client.remote import RemoteCollection
    from gcws_search.formats.sources import Choices, Source

T = TypeVar("T")
LOCAL: Final = "http://127.0.0.1:8000"
FAILED: Final = 1
_CUT: Final = ("text", "vector", "others", "payload", "sha256")
"""Columns of a table that are cut where a terminal is too narrow, and to how little."""
_TIMES: Final = ("created", "started", "expires")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What would move the cursor, color a terminal or turn a line round, within an id or a payload."""
_DIGITS: Final = {*"-0123456789,."}
_LEAST: Final = 8
_LARGE: Final = 10_000
"""Numbers from here on are shown without digits behind the point."""
REJECTED: Final = 3
_WHOLE: Final = re.compile(r"[-+]?[0-9]{1,1000}")


def whole_number(least: int | None = None, most: int | None = None) -> Callable[[str | int], int]:
    """Return the parser of an option: digits in ASCII with an optional sign, within bounds.

    Python also reads 1_0 and, by pydantic, 1.0.
    """

    def parse(given: str | int) -> int:
        text = str(given)
        if not _WHOLE.fullmatch(text):
            raise ValueError(f"expected a whole number, got {text!r}")
        number = int(text)
        if least is not None and number < least:
            raise ValueError(f"expected a whole number, at least {least}, got {text}")
        if most is not None and number > most:
            raise ValueError(f"expected a whole number, at most {most}, got {text}")
        return number

    return parse


Url = Annotated[str, typer.Option("--url", envvar="GCWS_URL", help="Address of the server.")]
Key = Annotated[
    str | None, typer.Option("--api-key", envvar="GCWS_API_KEY", help="API key of the server.")
]
Json = Annotated[
    bool, typer.Option("--json", help="Print JSON: one object, or one object a line for a list.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
IfVersion = Annotated[
    int | None,
    typer.Option(parser=whole_number(1), help="Only if the item has this version; takes one id."),
]
Ttl = Annotated[
    float | None,
    typer.Option(
        "--ttl", help="For a new collection: seconds after its write at which an item expires."
    ),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the collection.")]
Fingerprint = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="Fingerprint of SMILES: morgan:2 or another radius, atompair, torsion, reaction.",
    ),
]
Recall = Annotated[float, typer.Option(help="Expected share of the true results; 1 finds all.")]
Dim = Annotated[
    str | None, typer.Option("--dim", help="Number of coordinates, or 'open' for sparse vectors.")
]
Payload = Annotated[
    list[str] | None, typer.Option(metavar="COLUMNS", help="Columns of the payload; '' for none.")
]
OnError = Annotated[Literal["stop", "skip"], typer.Option(help="At a bad row: stop, or skip it.")]
Tokens = Annotated[
    Literal["words", "characters"], typer.Option(help="Words or characters of texts.")
]
Ngrams = Annotated[
    str,
    typer.Option(
        metavar="LOW-HIGH", help="Number of consecutive tokens per coordinate: 3, or 1-3."
    ),
]
Expires = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Expiry of items without their own: 2027-01-01T00:00:00Z, or seconds from now.",
    ),
]
Normalize = Annotated[
    Literal["none", "l1", "l2"] | None,
    typer.Option(help="Transform of a new collection: divide by this norm."),
]
Power = Annotated[
    float | None, typer.Option(help="Transform of a new collection: sign(x)·|x|^power.")
]
Scale = Annotated[
    Literal["idf", "standard", "robust", "max"] | None,
    typer.Option(help="Weights of coordinates, learned from the items: 1/σ, 1/IQR, 1/max, idf."),
]
Storage = Annotated[
    Literal["auto", "memory", "mapped"] | None,
    typer.Option(help="Where a new collection keeps vectors: in memory, or in a mapped file."),
]
_OPEN: Final = "open"
"""The value of --dim for an open space."""


def _choices_of(
    *,
    id_: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="Column of ids.")
    ] = None,
    vector: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMNS", help="Columns of the vector: 'px*', or 'a,b,c'."),
    ] = None,
    text: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of texts, instead of a vector.")
    ] = None,
    dim: Dim = None,
    header: Annotated[
        bool | None, typer.Option(help="Whether the first line of CSV holds the column names.")
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Text encoding, such as cp1252; default guessed."),
    ] = None,
    missing: Annotated[
        Literal["error", "drop", "zero", "mean"],
        typer.Option(
            help="How to treat a missing number: fail, drop its row, use 0, or use the mean."
        ),
    ] = "error",
    zero_based: Annotated[
        bool,
        typer.Option("--zero-based", help="Coordinates of svmlight count from 0; default guessed."),
    ] = False,
    one_based: Annotated[
        bool, typer.Option("--one-based", help="Coordinates of svmlight count from 1.")
    ] = False,
    transpose: Annotated[
        bool, typer.Option("--transpose", help="Rows of CSV are features, and its columns items.")
    ] = False,
    fingerprint: Fingerprint = None,
    sheet: Annotated[
        str | None, typer.Option(metavar="NAME", help="Sheet of a workbook; default the first.")
    ] = None,
    ksize: Annotated[
        int | None, typer.Option(parser=whole_number(1), help="Use only sketches of this k.")
    ] = None,
    moltype: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="Use only sketches of dna, protein, dayhoff or hp."),
    ] = None,
    bin_: Annotated[
        float | None, typer.Option("--bin", help="Width of the bins for peaks of spectra, 0.01.")
    ] = None,
) -> Any:
    from gcws_search.formats.files import is_encoding  # noqa: PLC0415  # loads numpy
    from gcws_search.formats.sources import Choices  # noqa: PLC0415

    if text is not None and (vector is not None or dim is not None):
        usage("--text: expected neither --vector nor --dim beside it")
    if zero_based and one_based:
        usage("expected one of --zero-based and --one-based, got both")
    if encoding is not None and not is_encoding(encoding):
        usage(f"--encoding: expected the name of an encoding such as cp1252, got {encoding!r}")
    return Choices(
        id=id_,
        vector=words_of(vector),
        text=text,
        dim=dim_of(dim),
        header=header,
        missing=missing,
        zero_based=zero_based if zero_based or one_based else None,
        transpose=transpose or None,
        fingerprint=fingerprint,
        ksize=ksize,
        moltype=moltype and moltype.lower(),
        sheet=sheet,
        bin=bin_,
    )


def reading(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter ``choices`` of a command by the options for the roles of columns."""
    added = signature(_choices_of, eval_str=True).parameters
    own = signature(command, eval_str=True).parameters

    def read(*server: Server, **given: Any) -> None:
        chosen = {name: given[name] if name in own else given.pop(name) for name in added}
        command(*server, choices=_choices_of(**chosen), **given)

    parameters = list[Parameter]()
    for name, each in own.items():
        parameters += added.values() if name == "choices" else [each] * (name not in added)
    read.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    read.__annotations__ = {}
    read.__name__, read.__doc__ = command.__name__, command.__doc__
    return read


def family() -> typer.Typer:
    """Return a group with which a module registers its commands."""
    return typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich"
    )


@contextmanager
def failures() -> Iterator[None]:
    """End the command with one sentence and exit code 1 after an error."""
    from gcws_search.formats.files import BadFile  # noqa: PLC0415  # loads numpy
    from gcws_search.index import GcwsError, error_words  # noqa: PLC0415

    try:
        yield
    except BrokenPipeError:
        raise  # the reader closed the pipe, and the command ends silently
    except (GcwsError, BadFile, OSError) as error:
        fail(error_words(error))


def asking(
    commands: typer.Typer, name: str, epilog: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command with a server as its first argument, from --url and --api-key.

    See `failures` for its errors.
    """

    def register(command: Callable[..., None]) -> Callable[..., None]:
        def ask(*, url: Url = LOCAL, key: Key = None, **given: Any) -> None:
            from gcws_search.client.connection import RetryPolicy, connect  # noqa: PLC0415

            # A new server compiles kernels for a minute, the first time.
            policy = RetryPolicy(attempts=60, max_seconds=2, report=report)
            with failures(), connect(url, key, policy=policy) as server:
                command(server, **given)

        address = [*signature(ask, eval_str=True).parameters.values()][:-1]
        command.__annotations__.pop("server", None)  # its type is imported when it is needed
        own = [*signature(command, eval_str=True).parameters.values()][1:]
        ask.__signature__ = Signature([*own, *address])  # type: ignore[attr-defined]
        ask.__annotations__ = {}
        ask.__doc__ = command.__doc__
        commands.command(name, epilog=epilog)(ask)
        return command

    return register


def ask_server(
    collection: Collection, ask: Callable[[RemoteCollection], Coroutine[Any, Any, T]]
) -> T:
    """Return the answer of a collection's server."""
    from gcws_search.client.remote import RemoteCollection, run  # noqa: PLC0415  # loads numpy

    assert isinstance(collection.place, RemoteCollection)
    return run(ask(collection.place))


MAX_REJECTED_TOLD: Final = 20
"""Rejected rows that are named on the terminal."""


def report(message: str) -> None:
    """Print a sentence on standard error."""
    typer.echo(f"gcws-search: {message}", err=True)


def fail(message: str) -> NoReturn:
    """Print a sentence and end with exit code 1."""
    report(message)
    raise typer.Exit(FAILED)


def ask(question: str, *, default: bool = False) -> None:
    """Ask whether to continue; end with exit code 1 unless the answer is yes."""
    try:
        typer.confirm(question, default=default, abort=True, err=True)
    except typer.Abort:
        if not sys.stdin.isatty():
            typer.echo(err=True)
        fail("stopped; --yes goes ahead without asking")


def require_output(path: str | Path | None, formats: tuple[str, ...] = ("",)) -> None:
    """End unless a file, if any, can be written: before any work is done."""
    if path is None:
        return
    if not str(path).endswith(formats):
        names = f"{', '.join(formats[:-1])} or {formats[-1]}"
        usage(f"--output: expected a file called {names}, got {str(path)!r}")
    folder = Path(path).parent
    if not folder.is_dir():
        fail(f"--output: expected a folder that is there, got {str(folder)!r}")


def usage(message: str) -> NoReturn:
    """End with exit code 2."""
    raise typer.BadParameter(message)


def object_from(text: str | None, option: str) -> dict[str, Any] | None:
    """Return the JSON object of an option, None for null or no option."""
    if text is None:
        return None
    from gcws_search.formats.payloads import read_json  # noqa: PLC0415  # loads numpy

    try:
        found = read_json(text)
    except ValueError:
        found = text
    if not isinstance(found, dict | None):
        usage(f"{option}: expected a JSON object such as '{{\"label\": 3}}', got {text!r:.60}")
    return found


def dim_of(text: str | None) -> int | None:
    """Return the number of coordinates in --dim, None for an open space or no option."""
    if text is None or text == _OPEN:
        return None
    if not text.isdecimal() or int(text) < 1:
        usage(f"--dim: expected a number of coordinates or 'open', got {text!r}")
    return int(text)


def words_of(texts: list[str] | None) -> tuple[str, ...] | None:
    """Return the columns of an option that may be repeated; None if it is not given."""
    words = [word.strip() for text in texts or () for word in text.split(",")]
    return tuple(filter(None, words)) if texts else None


def ngrams_of(given: str) -> list[int]:
    """Return the minimum and the maximum length in --ngrams."""
    parts = given.split("-")
    if len(parts) > len(("low", "high")) or not all(part.isdecimal() for part in parts):
        usage(f"--ngrams: expected a number or two, such as 1-3, got {given!r}")
    return [int(parts[0]), int(parts[-1])]


def show_guess(source: Source, scale: str | None = None) -> None:
    """Print how a file is read; a ``scale`` is the remedy for a warning about columns' units."""
    typer.echo(source.file.name, err=True)
    for word, value in source.guess:
        if word != "warning" or scale is None:
            typer.echo(f"  {word:8} {value}", err=True)


def space_words(dim: int | None, text: str | None) -> str:
    """Return a text for the items of a collection: texts by their tokens, or vectors."""
    if text is not None:
        return f"texts by {text}"
    return "an open space of sparse vectors" if dim is None else f"dim {dim}"


def transform_of(
    normalize: str | None, power: float | None, scale: str | None = None
) -> dict[str, Any]:
    """Return the parts of a transform in options."""
    chosen = {"power": power, "normalize": normalize, "weights": scale}
    return {word: value for word, value in chosen.items() if value is not None}


def options_of(
    source: Source,
    dim: str | None,
    transform: Mapping[str, Any],
    storage: str | None,
    ttl: float | None,
) -> dict[str, Any]:
    """Return the configuration of a new collection for a file: from options, or from an export."""
    export = source.export or {}
    return {
        "dim": None if dim == _OPEN or source.is_text else source.dim,
        "transform": export.get("transform", {}) | transform,
        "backend": export.get("backend"),
        "storage": storage or export.get("storage", "auto"),
        "ttl": ttl or export.get("ttl"),
    }


def fingerprint_of(collection: Collection, wanted: str | None) -> str | None:
    """Return the fingerprint that a collection was loaded with, which must equal ``wanted``.

    It is in the metadata; without one there, return ``wanted``.
    """
    known = (collection.describe()["metadata"] or {}).get("fingerprint")
    if wanted is not None and isinstance(known, str) and known != wanted:
        fail(
            f"--fingerprint: expected {known!r}, which {collection.name!r} was loaded with, "
            f"got {wanted!r}"
        )
    return known if isinstance(known, str) else wanted


def arrange(source: Source, collection: Collection) -> None:
    """Order a file's columns by a collection's coordinates, by name.

    Exits if a collection of texts gets vectors, or one of vectors texts.
    """
    if source.is_text != (collection.config.text is not None):
        kinds = "vectors, got texts; a collection of texts takes them"
        if not source.is_text:
            kinds = "texts, whose column --text names, got vectors"
        fail(f"{collection.name}: expected {kinds}")
    if source.names is not None:
        names = ask_server(collection, lambda place: place.names_by_coordinate())
        source.arrange(names, collection.config.dim)


@contextmanager
def opened_for(
    path: str, collection: Collection, choices: Choices, encoding: str | None = None
) -> Iterator[Source]:
    """Open a file as items, with columns in the order of a collection's coordinates."""
    from gcws_search.formats.files import InputFile  # noqa: PLC0415  # loads numpy
    from gcws_search.formats.sources import source_of  # noqa: PLC0415

    with closing(InputFile(path, encoding)) as file:
        if file.format == "smiles":
            fingerprint = fingerprint_of(collection, choices.fingerprint)
            choices = replace(choices, fingerprint=fingerprint)
        source = source_of(file, choices)
        arrange(source, collection)
        yield source


def tell(as_json: bool, answer: Any, *lines: str) -> bool:
    """Print an answer as a line of JSON, or as lines for people; return whether as JSON."""
    for line in [json.dumps(answer, ensure_ascii=False)] if as_json else lines:
        typer.echo(line)
    return as_json


def tell_rows(
    as_json: bool,
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[str] | None = None,
    none: str | None = None,
) -> bool:
    """Print rows as JSON, one object per line, or as a table for people.

    none: a sentence for people if there are no rows.
    """
    found = [*rows]
    if as_json:
        for row in found:
            tell(True, row)
    elif found and columns is not None:
        _print_table(found, columns)
    elif not found and none is not None:
        report(none)
    return as_json


def _print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print rows as a table; see `_CUT` for narrow terminals.

    A column called ``bytes`` or ``seconds`` has units.
    """
    from rich import box  # noqa: PLC0415
    from rich.cells import cell_len  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console()
    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False)
    cells = {name: [in_words(name, row.get(name)) for row in rows] for name in columns}
    least = 0
    for name in columns:
        title = name.removesuffix("_seconds").replace("_", " ")
        values = [row.get(name) for row in rows if row.get(name) is not None]
        if values and all(isinstance(each, int | float) for each in values):
            title, *cells[name] = _align([title, *cells[name]])
        width = max(map(cell_len, [title, *cells[name]]))
        is_cut = console.is_terminal and name in _CUT and width > _LEAST
        least += 3 + (_LEAST if is_cut else width)  # with the separator
        table.add_column(title, no_wrap=not is_cut, min_width=None if is_cut else width)
    for row in zip(*cells.values(), strict=True):
        table.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in row))
    console.width = max(console.width, least)
    console.print(table)


def _align(cells: Sequence[str]) -> list[str]:
    """Align a title and numbers right, decimal points in one column unless they have units."""
    title, *numbers = cells
    if all(set(cell) <= _DIGITS for cell in numbers):
        behind = [len(cell) - len(cell.partition(".")[0]) for cell in numbers]
        numbers = [
            cell + " " * (max(behind) - length)
            for cell, length in zip(numbers, behind, strict=True)
        ]
    width = max(map(len, [title, *numbers]))
    return [cell.rjust(width) for cell in (title, *numbers)]


def left_out_words(rejected: int, dropped: int, repeated: int, similar: int = 0) -> str:
    """Return a text on the rows that were not stored, and why."""
    told = {
        "rejected": rejected,
        "left out for missing numbers": dropped,
        "not stored, for they are like others": similar,
        "replaced by later rows of their id": repeated,
    }
    return "".join(f", {count:,} {words}" for words, count in told.items() if count)


def in_words(name: str, value: Any) -> str:
    """Return a value formatted for people: units, thousands, ``key=value`` of an object."""
    from rich.filesize import decimal  # noqa: PLC0415

    match value:
        case None:
            found = "open" if name == "dim" else ""
        case bool():
            found = "yes" if value else "no"
        case int():
            found = decimal(value) if name.partition("_")[0] == "bytes" else f"{value:,}"
        case float() if name.endswith("seconds"):
            found = f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"
        case float():
            found = f"{value:.4g}" if abs(value) < _LARGE else f"{value:,.0f}"
        case list():
            found = ", ".join(in_words("", each) for each in value)
        case {"indices": indices, "values": values} if name == "vector":
            found = ", ".join(
                f"{i}:{in_words('', x)}" for i, x in zip(indices, values, strict=True)
            )
        case dict():
            found = "  ".join(f"{key}={_quoted(each)}" for key, each in value.items())
        case str() if name in _TIMES:
            found = re.sub(r"^(\S+)T(\d\d:\d\d:\d\d)(\.\d+)?(Z|\+00:00)$", r"\1 \2 UTC", value)
        case _:
            found = str(value)
    return _CONTROL.sub(" ", found)


def _quoted(value: Any) -> str:
    """Return a value of an object; text unquoted if that is unambiguous."""
    if isinstance(value, str) and value and not set(value) & set(' "=\n\t'):
        return value
    return json.dumps(value, ensure_ascii=False)


class Bar:
    """Counts rows and bytes, and shows them on a terminal."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task
        self._started = time.monotonic()
        self.rows_done = self.bytes_done = self.rejected = 0
        self.position: Callable[[], int] | None = None

    def rows(self, count: int) -> None:
        """Count rows, and update the bar."""
        self.rows_done += count
        self._show()

    def start_again(self, count: int) -> None:
        """Restart the count of rows at a number."""
        self.rows_done, self.bytes_done = count, 0

    def each(self, pieces: Iterable[Any]) -> Iterator[Any]:
        """Yield pieces of a body, and count their bytes; then wait for the server."""
        for piece in pieces:
            self.bytes_done += len(piece)
            yield piece
        self._show(", committing")

    def _show(self, step: str = "") -> None:
        seconds = max(1e-3, time.monotonic() - self._started)
        done = self.rows_done if self.position is None else self.position()
        rejected = f", [red]{self.rejected} rejected[/red]" if self.rejected else ""
        megabytes = f", {self.bytes_done / seconds / 1e6:,.1f} MB/s" if self.bytes_done else ""
        told = f"{self.rows_done:,} rows, {self.rows_done / seconds:,.0f}/s{megabytes}{rejected}"
        self._progress.update(self._task, completed=done, told=told + step)


@contextmanager
def bar(title: str, total: int | None) -> Iterator[Bar]:
    """Yield a progress bar; without a terminal it shows nothing."""
    from rich.console import Console  # noqa: PLC0415
    from rich.markup import escape  # noqa: PLC0415
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[told]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    ) as progress:
        yield Bar(progress, progress.add_task(escape(title), total=total, told=""))


@contextmanager
def steps() -> Iterator[Callable[[str, float | None], None]]:
    """Yield a function that shows a step and its share on a terminal.

    Output of libraries in between, such as Ray's about a lost node, is no part of an answer.
    """
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(stderr=True)
    with (
        redirect_stdout(sys.stderr),
        Progress(console=console, transient=True, disable=not sys.stderr.isatty()) as bars,
    ):
        tasks: dict[str, Any] = {}

        def show(word: str, share: float | None) -> None:
            if word not in tasks:
                tasks[word] = bars.add_task(word, total=None if share is None else 1.0)
            bars.update(tasks[word], completed=share)

        yield show
