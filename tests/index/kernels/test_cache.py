"""Where compiled kernels are saved: the first of some folders that can be written to."""

import atexit
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from numba import njit

from gcws_search.index.kernels.cache import KernelCache, cache_folder
from gcws_search.index.kernels.gmm import dense

NAME = "kernels-1"


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file, below which there are no folders; the user has no home, and nothing failed."""
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("HOME", str(file))
    monkeypatch.setattr(KernelCache, "failure", None)
    return file


def test_the_folder_that_the_user_names_comes_first(nowhere: Path, tmp_path: Path) -> None:
    assert cache_folder(tmp_path / "sources", str(tmp_path / "named"), NAME) == (
        tmp_path / "named" / NAME
    )
    assert not (tmp_path / "sources").exists()


def test_a_folder_that_cannot_be_written_to_is_passed_over(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below, beside = str(nowhere / "named"), tmp_path / "__pycache__" / NAME
    assert cache_folder(tmp_path, below, NAME) == cache_folder(tmp_path, "", NAME) == beside
    monkeypatch.setenv("HOME", str(tmp_path))
    home = tmp_path / ".cache" / "gcws-search" / NAME
    assert cache_folder(nowhere, below, NAME) == home
    assert KernelCache.failure is None


def test_a_process_that_can_write_to_none_of_them_has_a_folder_until_it_ends(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending: list[Callable[[], object]] = []

    def register(function: Callable[..., object], *given: object, **named: object) -> None:
        ending.append(lambda: function(*given, **named))

    monkeypatch.setattr(atexit, "register", register)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = cache_folder(nowhere, str(nowhere / "named"), NAME)
    assert folder.parent.parent == tmp_path
    assert folder.parent.is_dir()
    assert "Not a directory" in (KernelCache.failure or "")
    [end] = ending
    end()
    assert not folder.parent.exists()


@njit(cache=True)
def _twice(number: float) -> float:
    return 2 * number


def test_functions_of_others_have_the_cache_that_numba_gives_them() -> None:
    functions: list[Any] = [_twice, dense.exact_dense]
    theirs, ours = (Path(function.stats.cache_path) for function in functions)
    digest = ours.parent.name
    assert digest.startswith("kernels-")
    assert digest not in theirs.parts
