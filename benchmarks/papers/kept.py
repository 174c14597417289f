"""Stores figures one by one as they are measured, so that an interrupted run can resume."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

Key: TypeAlias = tuple[str | int | float | None, ...]
"""All that a figure depends on but the code."""
Figures: TypeAlias = list[float]


class Kept:
    """Figures by what they depend on, in a file of one JSON line each.

    Parameters
    ----------
    file : Path or None
        Where they are; made with the first. None keeps nothing.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._writing = threading.Lock()
        self._known: dict[str, Figures] = {}
        if file is not None and file.exists():
            for line in file.read_text().splitlines():
                try:
                    cell = json.loads(line)
                except ValueError:  # the last line, if the run was interrupted while writing it
                    continue
                self._known[_text(cell["key"])] = cell["figures"]

    def figures(self, key: Key, measure: Callable[[], Figures]) -> Figures:
        """Return the stored value of ``key``, else that of ``measure``, stored unless empty."""
        text = _text(key)
        if text not in self._known:
            found = measure()
            with self._writing:
                self._known[text] = found
                if self._file is not None and found:
                    self._file.parent.mkdir(parents=True, exist_ok=True)
                    line = json.dumps({"key": key, "figures": found})
                    with self._file.open("a") as file:
                        file.write(f"\n{line}")  # a truncated line then invalidates only itself
        return self._known[text]


def _text(key: object) -> str:
    return json.dumps(key)
