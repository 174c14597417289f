"""The command line: the list of commands and their modules.

A command's module is imported when the command is called, so that `--help` loads neither numpy nor
the web framework.
"""

from __future__ import annotations

import inspect
import re
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from gcws_search.commands.options import FAILED, report
from gcws_search.imports import quick_imports
from gcws_search.version import program_version

_DATA: Final = "Items"
_SEARCH: Final = "Search"
_SERVER: Final = "Server"
_FILES: Final = "Files of a stopped server"

COMMANDS: Final[dict[str, tuple[str, str, str]]] = {
    "load": ("commands.load", _DATA, "Load files into a collection."),
    "export": ("commands.server", _DATA, "Write all items of a collection to a file."),
    "create": ("commands.items", _DATA, "Create a collection."),
    "fit": ("commands.items", _DATA, "Learn weights of coordinates from the items."),
    "get": ("commands.items", _DATA, "Print items by their ids."),
    "count": ("commands.items", _DATA, "Count items, or those that match a filter."),
    "delete": ("commands.items", _DATA, "Delete items by their ids, or by a filter."),
    "collections": ("commands.server", _DATA, "List collections, or show or drop one."),
    "payload": ("commands.items", _DATA, "Change payloads of items, without their vectors."),
    "names": ("commands.server", _DATA, "Show or set the names of coordinates."),
    "query": ("commands.query", _SEARCH, "Find the items most similar to one."),
    "find": ("commands.query", _SEARCH, "Find items by a text in their ids and payloads."),
    "explain": ("commands.query", _SEARCH, "Show why two items are similar."),
    "groups": (
        "commands.groups",
        _SEARCH,
        "Find groups of near-duplicates, and delete all but one.",
    ),
    "pairs": ("commands.groups", _SEARCH, "Find pairs of near-duplicates."),
    "join": ("commands.groups", _SEARCH, "Find the items similar to the rows of a file."),
    "dedupe": ("commands.dedupe", _SEARCH, "Find near-duplicates in files larger than memory."),
    "compare": ("commands.query", _SEARCH, "Compare the search methods of a collection."),
    "backends": (
        "commands.query",
        _SEARCH,
        "List, attach and drop search methods to compare with.",
    ),
    "recall": ("commands.query", _SEARCH, "Show requested recall beside audited recall."),
    "serve": ("service.cli", _SERVER, "Serve the REST API until stopped."),
    "shard": ("service.cluster.command", _SERVER, "Run a replica of one shard."),
    "cluster": ("service.cluster.command", _SERVER, "Place, move and end replicas of a cluster."),
    "bulk": ("commands.bulk", _SERVER, "Load files into a new collection of a cluster."),
    "demo": ("commands.demo", _SERVER, "Serve three sample collections."),
    "health": ("commands.server", _SERVER, "Show whether a server is ready."),
    "snapshot": ("commands.server", _SERVER, "Make, list, move and restore snapshots."),
    "version": ("commands.server", _SERVER, "Print the version."),
    "check": ("commands.server", _FILES, "Verify files, and repair them."),
    "vacuum": ("commands.server", _FILES, "Rewrite files without free space."),
}
"""Of each command its module, its panel in the list, and what the list says of it."""

_UsageError: Final[Any] = typer.BadParameter.__bases__[0]  # typer exports no name for it
_HELP_SHOWN: Final = "NoArgsIsHelpError"
_INTERRUPTED: Final = 130
_ALIKE: Final = 0.7
_MEANT: Final = {
    r"^Invalid value: ": "",
    r"^Invalid value for '(.+?)': ": r"\1: ",
    r"^Missing (?:argument|option) '(.+?)'(?: / '.+?')*": r"expected \1, got none",
    r"^Got unexpected extra arguments?(?:\(s\))? \((.*)\)": r"expected no more arguments, got \1",
    r"^Option '(.+?)' requires an argument": r"\1: expected a value, got none",
    r"('.*') is not one of (.+)": r"expected one of \2, got \1",
    r"(?:file|path) ('.*') does not exist": r"expected a file, got nothing called \1",
    r", unable to parse string as an? \w+": "",
    r"Input should be a valid integer": "expected a whole number",
    r"Input should be a valid number": "expected a number",
    r"Input should be (greater|less)": r"expected a number \1",
    r"Input should be ": "expected ",
    r": Value error, ": ": ",
}
"""Sentences of typer and pydantic, and the same ones in our form: expected this, got that."""
_VALUES: Final = {"int": "NUMBER", "float": "NUMBER", "path": "PATH", "file": "PATH"}

EPILOG: Final = """
[bold]Examples[/bold]

  gcws-search serve

  gcws-search load train.csv --into mnist --payload label

  gcws-search query mnist --id 7 --limit 5

  gcws-search export mnist -o mnist.parquet

  gcws-search demo

Commands that ask a server take --url and --api-key, or GCWS_URL and GCWS_API_KEY.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 some rows were rejected.
"""


class _Commands(TyperGroup):
    """Commands that are imported when they are called."""

    def __init__(self, **options: Any) -> None:
        # The list shows these in the order of the panels; suggestions use the names.
        shown = {
            name: TyperCommand(name, help=words, rich_help_panel=panel)
            for name, (_, panel, words) in COMMANDS.items()
        }
        super().__init__(**options | {"commands": shown})

    def main(self, *given: Any, **named: Any) -> Any:
        """Run the called command; usage errors are one sentence, too."""
        if not named.get("standalone_mode", True):
            return super().main(*given, **named)
        try:
            code = super().main(*given, **{**named, "standalone_mode": False})
        except typer.Abort:
            report("stopped")
            sys.exit(FAILED)
        except _UsageError as error:
            if error.__class__.__name__ != _HELP_SHOWN:
                report(_usage_words(error))
            sys.exit(error.exit_code)
        if code == _INTERRUPTED:
            report("interrupted")
            sys.exit(FAILED)
        sys.exit(code if isinstance(code, int) else 0)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        if name is None or command is None:
            return name, command, rest
        with quick_imports():
            module = import_module(f"gcws_search.{COMMANDS[name][0]}")
        found = typer.main.get_group(module.cli).commands[name]
        _arrange_help(found, ctx)
        return name, found, rest

    def get_params(self, ctx: Any) -> Any:
        params = super().get_params(ctx)
        _name_values(params)
        return params


def _usage_words(error: Any) -> str:
    """Return the error of a command line, a suggestion, and where to find help."""
    text: str = error.format_message().rstrip(".")
    if hasattr(error, "possibilities") and hasattr(error, "option_name"):
        meant = get_close_matches(error.option_name, error.possibilities or (), cutoff=_ALIKE)
        text = f"No such option {error.option_name!r}"
        if meant:
            text += f". Did you mean {' or '.join(map(repr, meant))}?"
        elif error.ctx.parent is None:
            text += "; the options of a command stand after its name"
    for written, meant_words in _MEANT.items():
        text = re.sub(written, meant_words, text)
    if hasattr(error.__cause__, "errors") and ", got " not in text:
        text += f", got {error.__cause__.errors()[0]['input']!r}"
    if error.ctx is None:
        return text
    separator = " " if text.endswith("?") else "; "
    return f"{text}{separator}{error.ctx.command_path} --help says more"


def _arrange_help(command: Any, ctx: Any) -> None:
    """Format the help of a command and its subcommands: paragraphs, and values of options."""
    command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(command.help or ""))
    _name_values(command.get_params(ctx))
    for each in getattr(command, "commands", {}).values():
        _arrange_help(each, ctx)


def _name_values(params: Any) -> None:
    """Show a word for each value, none for a flag; the help lists choices."""
    for param in params:
        kind = param.type_descriptor
        if param.param_type_name == "argument":
            param.metavar = param.metavar or param.name.upper()
            param.display_type = lambda _: None  # the option's name says it
        elif param.is_flag:
            param.metavar = ""
        elif param.metavar is None:
            param.metavar = _VALUES.get(param.display_type(ctx=None).strip("<>").split()[0], "TEXT")
            param._get_number_range_help_str = lambda: None  # it would make names too narrow
            if kind.is_choice:
                param.metavar = "WORD"
                param.help += f" One of {', '.join(kind.choices)}."


app = typer.Typer(
    cls=_Commands,
    name="gcws-search",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog=EPILOG,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(program_version())
        raise typer.Exit


@app.callback()
def _top(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Near-neighbour search for weighted, signed vectors."""


def main() -> None:
    """Run the command line."""
    app()
