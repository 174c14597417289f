"""Makes a site of the docs: what lies outside their folder becomes pages of it.

A hook of mkdocs (``mkdocs.yml`` names it). On GitHub the links of the pages lead to the files as
they are; here each such file is a page, and the links lead to that.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

REPOSITORY: Final = Path(__file__).parents[3]
OUTSIDE: Final = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/papers/README.md": "papers.md",
    "LICENSE": "LICENSE",
}
"""Files of the repository, and what they become in the site."""
MARK: Final = "service/page/static/icon.svg"
"""The mark of the page, and of the site."""
DOCUMENTED: Final = (
    "gcws_search.client.collection.Collection",
    "gcws_search.client.connection.Server",
    "gcws_search.client.results",
    "gcws_search.client.errors",
    "gcws_search.index.contracts.errors",
    "gcws_search.index.contracts.parameters",
)
"""What the page of the reference shows."""
_LINK: Final = re.compile(r"(\]\(|\bsrc=\"|\bsrcset=\")([^)\s\"#]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie elsewhere, and the reference."""
    from mkdocs.structure.files import File  # noqa: PLC0415  # tests of links need none of it

    for source, page in OUTSIDE.items():
        text = (REPOSITORY / source).read_text()
        files.append(File.generated(config, page, content=text))
    mark = (REPOSITORY / MARK).read_text()
    files.append(File.generated(config, "icon.svg", content=mark))
    files.append(File.generated(config, "reference.md", content=reference()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let the links of a page lead to pages, where they led to files of the repository."""
    del config, files
    pages = {page: source for source, page in OUTSIDE.items()}
    name = page.file.src_uri
    return linked(markdown, pages.get(name, f"docs/{name}"))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let no cell be the empty head of a column."""
    del page, config, files
    return html.replace("<th></th>", "<td></td>")


def linked(markdown: str, source: str) -> str:
    """Return a page whose links are those of the site.

    ``source``: where the page lies in the repository; relative links start from there.
    """

    folder = posixpath.dirname(source)
    here = posixpath.dirname(OUTSIDE.get(source, source.removeprefix("docs/")))

    def led(match: re.Match[str]) -> str:
        before, target = match.groups()
        if "://" in target:
            return match.group()
        path = posixpath.normpath(posixpath.join(folder, target))
        if path not in OUTSIDE and not path.startswith("docs/"):
            return match.group()
        page = OUTSIDE.get(path, path.removeprefix("docs/"))
        return f"{before}{posixpath.relpath(page, here or '.')}"

    return _LINK.sub(led, markdown)


def reference() -> str:
    """Return the page that mkdocstrings fills."""
    shown = "\n\n".join(f"::: {name}" for name in DOCUMENTED)
    head = "# Reference\n\n`Collection` and `AsyncCollection` have each of the operations."
    return f"{head}\n\n{shown}\n"
