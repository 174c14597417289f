"""Names of public classes, and the lists in which packages name their modules."""

import ast
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from tests.support.paths import sources

PRODUCT = "index", "service", "gcws_search"


def test_no_two_public_classes_share_a_name() -> None:
    places: dict[str, set[Path]] = {}
    for path, tree in chain.from_iterable(map(sources, PRODUCT)):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, set()).add(path)
    assert len(places) > 300
    assert not {name: paths for name, paths in places.items() if len(paths) > 1}


def packages() -> Iterator[Path]:
    """Yield the folders that say in a list what each of their modules holds."""
    for path, _ in chain.from_iterable(map(sources, PRODUCT)):
        if path.name == "__init__.py" and path.parent.name != "gcws_search":
            yield path.parent


@pytest.mark.parametrize("folder", [*packages()], ids=lambda path: path.name)
def test_a_package_says_what_each_of_its_modules_holds(folder: Path) -> None:
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    named = re.findall(r"`(\w+)`", " ".join(re.findall(r"^- ([^:]+):", text, re.MULTILINE)))
    found = (path.stem for path in folder.glob("*.py") if not path.stem.startswith("__"))
    assert sorted(named) == sorted(found)
