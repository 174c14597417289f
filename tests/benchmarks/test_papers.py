"""Each reproduction of a paper runs, in small, and leaves its table and its picture."""

from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.papers.sheet import Options

QUICK = (
    "binning", "collisions", "correlation", "fourier", "hashed_svm", "kernel_svm", "search",
)  # fmt: skip


@pytest.mark.parametrize("name", QUICK)
def test_an_experiment_runs_on_made_data(name: str, tmp_path: Path) -> None:
    sheet = import_module(f"benchmarks.papers.{name}").run(Options(quick=True))
    sheet.write(tmp_path, threads=1)
    page, picture = (tmp_path / f"{name}.{suffix}" for suffix in ("md", "png"))
    rows = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    assert len(rows) > 2 * len(sheet.tables)
    assert picture.read_bytes().startswith(b"\x89PNG")
