"""Warn of long files, functions and sentences, and of words that the glossary lacks or bans.

``python -m tests.lint`` prints each place; it never fails. A reader decides what to do about it.
"""

import ast
import asyncio
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.support.documents import markdown
from tests.support.documents.markdown import DOCS, README, pages
from tests.support.paths import PRODUCT, REPOSITORY, sources

MAX_FILE_LINES = 800
"""Above it a reader asks whether the file is two concepts."""
MAX_LINE = 100
"""Characters of a line of the page's code."""
MAX_README_LINES = 200
MAX_KERNEL_PARAMETERS = 8
"""Positional parameters of a compiled function."""
MAX_KERNEL_LINES = 120
"""Of a compiled function, without its docstring."""
MAX_WORDS = 30
"""Of a sentence."""
PREPOSITIONS = {"by", "of"}


def glossary() -> tuple[set[str], set[str], list[str]]:
    """Return the words that the glossary explains, the words and the phrases that it bans."""
    rows = [row for table in markdown.tables((DOCS / "glossary.md").read_text()) for row in table]
    words, banned = (" ".join(row.get(head, "") for row in rows) for head in ("Word", "Banned"))
    phrases = [row["Banned phrase"] for row in rows if "Banned phrase" in row]
    found = {*re.findall(r"[a-z0-9]+", words.lower())}
    return found, {*re.findall(r"[a-z]+", banned.lower())}, phrases


def singulars(word: str) -> set[str]:
    """Return a word and what it may be the plural of."""
    return {word, word.removesuffix("s"), word.removesuffix("es"), re.sub("ies$", "y", word)}


def names(tree: ast.Module) -> Iterator[str]:
    """Yield what a module names: classes, functions, parameters, attributes and variables."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.arg():
                yield node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr


def prose(path: Path) -> str:
    """Return a module's docstrings, comments and messages, without line ends."""
    with path.open("rb") as file:
        tokens = [*tokenize.tokenize(file.readline)]
    kinds = (tokenize.COMMENT, tokenize.STRING)
    texts = (token.string for token in tokens if token.type in kinds)
    return re.sub(r"[\s#]+", " ", " ".join(texts)).lower()


def kernel_warnings(tree: ast.Module) -> Iterator[str]:
    """Yield the compiled functions that are long or take many positional parameters."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or not any(
            "jit" in ast.unparse(each) for each in node.decorator_list
        ):
            continue
        first = node.body[0]
        described = (first.end_lineno or 0) - first.lineno + 1 if ast.get_docstring(node) else 0
        lines = (node.end_lineno or 0) - node.lineno + 1 - described
        parameters = len(node.args.posonlyargs) + len(node.args.args)
        if lines > MAX_KERNEL_LINES:
            yield f"{node.name}: {lines} lines"
        if parameters > MAX_KERNEL_PARAMETERS:
            yield f"{node.name}: {parameters} positional parameters"


def sentence_warnings(text: str) -> Iterator[str]:
    """Yield the sentences with too many words."""
    for sentence in markdown.sentences(text):
        if (length := markdown.length(sentence)) > MAX_WORDS:
            yield f"{length} words: {sentence[:80]}"


def module_warnings(path: Path, tree: ast.Module) -> Iterator[str]:
    """Yield what a reader should look at in a module of the product."""
    words, banned, phrases = glossary()
    if (lines := path.read_text().count("\n")) > MAX_FILE_LINES:
        yield f"{lines} lines: is it two concepts?"
    used = set(re.findall(r"[a-z0-9]+", str(path.relative_to(REPOSITORY)).removesuffix(".py"))[1:])
    for word in used - PREPOSITIONS - {"init", "main"}:
        if word in banned or not singulars(word) & words:
            yield f"the glossary does not explain {word!r}"
    for name in {*names(tree)} - {*dir(asyncio.Protocol)}:  # what `asyncio` calls
        if {*re.findall("[a-z]+", name.lower())} & banned:
            yield f"{name} has a banned word"
    for phrase in re.findall(rf"\b(?:{'|'.join(phrases)})\b", prose(path)):
        yield f"banned phrase: {phrase}"
    if path.name == "__init__.py":
        yield from sentence_warnings(ast.get_docstring(tree) or "")
    yield from kernel_warnings(tree)


def page_warnings(path: Path) -> Iterator[str]:
    """Yield the long lines of a file of the page: its formatter leaves HTML in JavaScript alone."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if (length := len(line.expandtabs(2))) > MAX_LINE:
            yield f"line {number}: {length} characters"


def warnings() -> Iterator[tuple[Path, str]]:
    """Yield each place and what is odd about it."""
    for suffix in ("css", "html", "js"):
        for path in (REPOSITORY / "service" / "page" / "static").glob(f"*.{suffix}"):
            for warning in page_warnings(path):
                yield path, warning
    for path, tree in sources(*PRODUCT):
        for warning in module_warnings(path, tree):
            yield path, warning
    for page in pages():
        for warning in sentence_warnings(page.read_text()):
            yield page, warning
    if (lines := README.read_text().count("\n")) > MAX_README_LINES:
        yield README, f"{lines} lines"


if __name__ == "__main__":
    for path, warning in warnings():
        print(f"{path.relative_to(REPOSITORY)}: {warning}")  # noqa: T201
