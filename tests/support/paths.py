"""Where the repository is, and what tests read of it."""

import ast
from functools import cache
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[2]
OLD_FORMATS: Final = REPOSITORY / "tests" / "support" / "data" / "old_formats"
"""Files of collections as earlier versions wrote them."""


@cache
def sources(package: str) -> list[tuple[Path, ast.Module]]:
    """Return every module below a top-level folder, parsed."""
    paths = sorted((REPOSITORY / package).rglob("*.py"))
    return [(path, ast.parse(path.read_text())) for path in paths]
