"""Words of names: the glossary has those of modules, and bans some; packages name their modules."""

import ast
import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.documents import markdown
from tests.support.documents.markdown import DOCS
from tests.support.paths import REPOSITORY

PREPOSITIONS = {"by", "of"}


def modules() -> Iterator[Path]:
    """Yield every module of the product."""
    for package in ("index", "service", "gcws_search"):
        yield from sorted((REPOSITORY / package).rglob("*.py"))


def glossary() -> tuple[set[str], set[str]]:
    """Return the words that the glossary explains, and those that it bans."""
    rows = [row for table in markdown.tables((DOCS / "glossary.md").read_text()) for row in table]
    words, banned = (" ".join(row.get(head, "") for row in rows) for head in ("Word", "Banned"))
    return {*re.findall(r"[a-z0-9]+", words.lower())}, {*re.findall(r"[a-z]+", banned.lower())}


def singulars(word: str) -> set[str]:
    """Return a word and what it may be the plural of."""
    return {word, word.removesuffix("s"), word.removesuffix("es"), re.sub("ies$", "y", word)}


def constants(path: Path) -> Iterator[str]:
    """Yield the names in upper case that a module, or a class of it, gives a value."""
    for scope in ast.walk(ast.parse(path.read_text())):
        for line in scope.body if isinstance(scope, ast.Module | ast.ClassDef) else ():
            for node in ast.walk(line) if isinstance(line, ast.Assign | ast.AnnAssign) else ():
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    yield from re.findall(r"^_?[A-Z][A-Z0-9_]+$", node.id)


def test_the_glossary_explains_every_word_of_a_module_name() -> None:
    words, banned = glossary()
    assert len(banned) >= 11
    unknown = set()
    for path in modules():
        name = str(path.relative_to(REPOSITORY))
        used = set(re.findall(r"[a-z0-9]+", name.removesuffix(".py"))[1:]) - PREPOSITIONS
        used -= {"init", "main"}
        if used & banned or any(not singulars(word) & words for word in used):
            unknown.add(name)
    assert not unknown


def test_no_constant_has_a_banned_word() -> None:
    _, banned = glossary()
    names = {name for path in modules() for name in constants(path)}
    assert len(names) > 100
    found = {name for name in names if set(name.lower().split("_")) & banned}
    assert not found


def functions(path: Path) -> Iterator[str]:
    """Yield the names of a module's functions and methods, and of their parameters."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
            given = node.args
            for each in (*given.posonlyargs, *given.args, *given.kwonlyargs):
                yield each.arg


OLD = (
    "index/graph/",
    "index/kernels/gmm/",
    "index/kernels/graph/",
    "index/kernels/quantized/",
)
"""Where functions and parameters have some banned words still."""


def test_no_function_and_no_parameter_has_a_banned_word() -> None:
    """What `asyncio` calls has the names that it calls."""
    _, banned = glossary()
    paths = [path for path in modules() if not str(path.relative_to(REPOSITORY)).startswith(OLD)]
    names = {name for path in paths for name in functions(path)} - {*dir(asyncio.Protocol)}
    assert len(names) > 1000
    found = {name for name in names if set(name.lower().split("_")) & banned}
    assert not found


def packages() -> Iterator[Path]:
    """Yield the folders that say in a list what each of their modules holds."""
    for package in ("index", "service"):
        for path in sorted((REPOSITORY / package).rglob("__init__.py")):
            if "kernels" not in path.parts:
                yield path.parent


@pytest.mark.parametrize("folder", [*packages()], ids=lambda path: path.name)
def test_a_package_says_what_each_of_its_modules_holds(folder: Path) -> None:
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    named = re.findall(r"`(\w+)`", " ".join(re.findall(r"^- ([^:]+):", text, re.MULTILINE)))
    found = (path.stem for path in folder.glob("*.py") if not path.stem.startswith("__"))
    assert sorted(named) == sorted(found)
