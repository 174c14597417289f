"""A progress bar on the terminal; nothing without one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Bar:
    """Counts rows and bytes, and shows them."""

    def __init__(self, progress: Progress | None, task: TaskID | None) -> None:
        self._progress = progress
        self._task = task
        self._started = time.monotonic()
        self.rows_done = self.bytes_done = self.rejected = 0
        self.position: Callable[[], int] | None = None

    def rows(self, count: int) -> None:
        """Count rows, and update the bar."""
        self.rows_done += count
        if self._progress is None or self._task is None:
            return
        seconds = max(1e-3, time.monotonic() - self._started)
        done = self.rows_done if self.position is None else self.position()
        rejected = f", [red]{self.rejected} rejected[/red]" if self.rejected else ""
        megabytes = f", {self.bytes_done / seconds / 1e6:,.1f} MB/s" if self.bytes_done else ""
        self._progress.update(
            self._task,
            completed=done,
            told=f"{self.rows_done:,} rows, {self.rows_done / seconds:,.0f}/s{megabytes}{rejected}",
        )

    def each(self, pieces: Iterable[Any]) -> Iterator[Any]:
        """Yield pieces of a body, and count their bytes."""
        for piece in pieces:
            self.bytes_done += len(piece)
            yield piece


@contextmanager
def bar(title: str, total: int | None) -> Iterator[Bar]:
    """Yield a bar; without a terminal it shows nothing."""
    if not sys.stderr.isatty():
        yield Bar(None, None)
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.markup import escape  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[told]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield Bar(progress, progress.add_task(escape(title), total=total, told=""))
