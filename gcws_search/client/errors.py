"""Errors between a client and its server; problems of the API as the index's own errors.

::

    GcwsError                      the root; the index's own classes come back as themselves
    └── ServerError                status, code, detail
        ├── NoServer               url
        ├── ServerBusy             429 or 503 after the last attempt
        └── AccessRefused          no key, a wrong one, or one that may only read
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from gcws_search.index.contracts import errors as index_errors
from gcws_search.index.contracts.errors import GcwsError, InvalidInput, Loc, quantity

_BUSY: Final = (429, 503)
_REFUSED: Final = (401, 403)
_GIVE_KEY: Final = "give connect api_key=, or the command GCWS_API_KEY or --api-key"
_QUOTED: Final = re.compile(r"'([^']*)'")
_FINDING: Final = re.compile(r"expected (.*), got (.*)", re.DOTALL)
_ROW: Final = re.compile(r"(?:item|row|query) (\d+)")


class ServerError(GcwsError):
    """A server could not execute a request.

    Attributes
    ----------
    status : int or None
        HTTP status; None if no answer came.
    code : str
        The stable name of the cause.
    detail : str
        One sentence.
    """

    def __init__(self, detail: str, *, status: int | None = None, code: str = "") -> None:
        self.status = status
        self.code = code
        self.detail = detail
        super().__init__(detail)


class NoServer(ServerError):
    """The server does not answer, or the connection broke and could not be restored."""

    def __init__(self, url: str, cause: str) -> None:
        self.url = url
        cause = re.sub(r"^\[(?:Errno -?\d+|SSL: \w+)\] | \(_ssl\.c:\d+\)$", "", cause)
        super().__init__(
            f"expected a server at {url}, got {cause}; `gcws-search serve` starts one",
            code="no_server",
        )


class ServerBusy(ServerError):
    """The server was busy, or still loading, at every attempt."""


class AccessRefused(ServerError):
    """The key is missing, wrong, or read-only."""


CLASSES: Final[Mapping[str, type[GcwsError]]] = {
    **{
        re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower(): cls
        for name, cls in vars(index_errors).items()
        if isinstance(cls, type) and issubclass(cls, GcwsError) and cls is not GcwsError
    },
    "loading": index_errors.CollectionLoading,
}
"""The code of a problem, and the class that it stands for."""


def error_of(
    status: int, document: Mapping[str, Any], *, collection: str | None = None
) -> GcwsError:
    """Return the exception for a server's answer: a problem (RFC 9457) about a collection."""
    error = _problem_of(status, document, collection)
    note_stored(error, document.get("committed") or 0)
    if "row" in document:  # from a load
        error.__dict__["row"] = document["row"]
    return error


def _problem_of(status: int, document: Mapping[str, Any], collection: str | None) -> GcwsError:
    code, detail = str(document.get("code", "")), str(document.get("detail", ""))
    cls = CLASSES.get(code)
    if cls is None:
        detail = detail or f"expected an answer of gcws-search, got status {status} of another"
        kind = ServerError
        if status in _REFUSED:
            kind, detail = AccessRefused, f"{detail}; {_GIVE_KEY}"
        elif status in _BUSY:
            kind = ServerBusy
        return kind(detail, status=status, code=code)
    if issubclass(cls, InvalidInput):
        found: Mapping[str, Any] = next(iter(document.get("errors") or ()), {})
        parts = _FINDING.fullmatch(str(found.get("msg", detail)))
        if parts is None:
            return ServerError(detail, status=status, code=code)
        loc: Loc = tuple(found.get("loc", ()))
        return cls(expected=parts[1], got=parts[2], loc=loc)
    # The constructors would write the sentence again that the server has written.
    error = cls.__new__(cls)
    Exception.__init__(error, detail)
    quoted, parts = _QUOTED.findall(detail), _FINDING.search(detail)
    known = {
        "name": collection,
        "collection": collection,
        "item_id": quoted[0] if quoted else None,
        "row": int(at[1]) if (at := _ROW.search(detail)) else None,
        "reason": detail,
        "expected": document.get("expected", parts[1] if parts else None),
        "got": document.get("got", parts[2] if parts else None),
    }
    error.__dict__.update(known)
    return error


def note_stored(error: Exception, rows: int) -> None:
    """Add a note to an error: the rows that earlier writes of its load stored."""
    if rows:
        error.add_note(f"earlier writes of this load stored {quantity(rows, 'row')}")
