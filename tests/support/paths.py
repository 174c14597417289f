"""Where the repository is, and what tests read of it."""

import ast
import gc
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[2]
OLD_FORMATS: Final = REPOSITORY / "tests" / "support" / "data" / "old_formats"
"""Files of collections as earlier versions wrote them."""


PRODUCT: Final = ("index", "service", "gcws_search")
"""Folders of the product."""


def sources(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    """Yield every module below some folders, parsed."""
    return chain.from_iterable(map(_parsed, folders))


@cache
def _parsed(package: str) -> list[tuple[Path, ast.Module]]:
    paths = sorted((REPOSITORY / package).rglob("*.py"))
    gc.disable()  # it would look again and again at millions of nodes that stay
    parsed = [(path, ast.parse(path.read_text())) for path in paths]
    gc.freeze()
    gc.enable()
    return parsed
