"""Words of names: the glossary has those of modules, and bans some; packages name their modules."""

import ast
import asyncio
import re
import tokenize
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


def names(path: Path) -> Iterator[str]:
    """Yield what a module names: classes, functions, parameters, attributes and variables."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.arg():
                yield node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr


def test_no_name_has_a_banned_word() -> None:
    """What `asyncio` calls has the names that it calls."""
    _, banned = glossary()
    found = {name for path in modules() for name in names(path)} - {*dir(asyncio.Protocol)}
    assert len(found) > 3000
    assert not {name for name in found if set(re.findall("[a-z]+", name.lower())) & banned}


def test_no_two_public_classes_share_a_name() -> None:
    places: dict[str, set[Path]] = {}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, set()).add(path.resolve())
    assert len(places) > 300
    assert not {name: paths for name, paths in places.items() if len(paths) > 1}


def prose(path: Path) -> str:
    """Return a module's docstrings, comments and messages, without line ends."""
    with path.open("rb") as file:
        tokens = [*tokenize.tokenize(file.readline)]
    kinds = (tokenize.COMMENT, tokenize.STRING)
    texts = (token.string for token in tokens if token.type in kinds)
    return re.sub(r"[\s#]+", " ", " ".join(texts)).lower()


def test_no_text_has_a_banned_phrase() -> None:
    rows = [row for table in markdown.tables((DOCS / "glossary.md").read_text()) for row in table]
    phrases = [row["Banned phrase"] for row in rows if "Banned phrase" in row]
    assert len(phrases) >= 7
    found = [
        (path.name, phrase)
        for path in modules()
        for phrase in re.findall(rf"\b(?:{'|'.join(phrases)})\b", prose(path))
    ]
    assert not found


def packages() -> Iterator[Path]:
    """Yield the folders that say in a list what each of their modules holds."""
    for path in modules():
        if path.name == "__init__.py" and path.parent.name != "gcws_search":
            yield path.parent


@pytest.mark.parametrize("folder", [*packages()], ids=lambda path: path.name)
def test_a_package_says_what_each_of_its_modules_holds(folder: Path) -> None:
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    named = re.findall(r"`(\w+)`", " ".join(re.findall(r"^- ([^:]+):", text, re.MULTILINE)))
    found = (path.stem for path in folder.glob("*.py") if not path.stem.startswith("__"))
    assert sorted(named) == sorted(found)
