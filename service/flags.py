"""Flags and variables of commands that start a server, and where they listen."""

import inspect
import json
import socket
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

import typer
from pydantic import ValidationError

from gcws_search.service.settings import Settings

_PREFIX: Final = "GCWS_"
_OF_OTHERS: Final = {"GCWS_URL", "GCWS_CHROMIUM"}
"""Variables of other commands, and of the tests."""

_METAVARS: Final = {bool: "true|false", int: "INTEGER", float: "NUMBER", Path: "PATH"}


def _metavar(annotation: Any) -> str:  # noqa: ANN401  # of any form
    """Return what a setting's value looks like."""
    if get_origin(annotation) is Literal:
        return "|".join(get_args(annotation))
    for kind in (annotation, *get_args(annotation)):
        if kind in _METAVARS:
            return _METAVARS[kind]
    return "TEXT"


def flags(*others: inspect.Parameter) -> inspect.Signature:
    """Return a signature with a flag for each setting, none of them given, behind some others."""
    parameters = [*others]
    for name, field in Settings.model_fields.items():
        default = field.default
        told = json.dumps(default) if isinstance(default, bool) else default
        shown = "" if default is None else f" [default: {told}]"
        option = typer.Option(
            f"--{name.replace('_', '-')}",
            help=f"{field.description}{shown}",
            envvar=f"GCWS_{name.upper()}",
            show_envvar=True,
            metavar=_metavar(field.annotation),
        )
        option.default = None
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=str | None
            )
        )
    return inspect.Signature(parameters)


def settings_from(given: dict[str, Any]) -> Settings:
    """Return the settings: flags before variables before defaults."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        found = [
            f"{'.'.join(map(str, entry['loc']))}: {entry['msg']}"
            for entry in error.errors(include_input=False)
        ]
        raise typer.BadParameter("; ".join(found)) from None


def unread(variables: Iterable[str]) -> list[str]:
    """Return a sentence for each variable that looks like a setting and is none."""
    known = {f"{_PREFIX}{name.upper()}" for name in Settings.model_fields} | _OF_OTHERS
    sentences = []
    for name in sorted(variables):
        if name.upper().startswith(_PREFIX) and name.upper() not in known:
            near = get_close_matches(name.upper(), known, 1)
            hint = f"; the nearest setting is {near[0]}" if near else ""
            sentences.append(f"nothing reads the variable {name}{hint}")
    return sentences


def require_address(settings: Settings) -> None:
    """Raise OSError where the server could not listen, before it takes the data folder."""
    try:
        found = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, _, _, _, address in found:
            try:
                trial = socket.socket(family)
            except OSError:  # a family that the system does not have: the server passes over it
                continue
            with trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind(address)
            return
    except OSError as error:
        told = f"cannot listen on {settings.host}, port {settings.port}: {error.strerror or error}"
        raise OSError(f"{told}; --host and --port choose another address") from None
