"""The site of the docs: links that leave their folder lead to pages of it."""

import posixpath

import pytest

pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")

from tests.support.documents import markdown, site  # needs mkdocs
from tests.support.documents.markdown import DOCS


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("docs/api.md", "[a](../README.md#a-session)", "[a](index.md#a-session)"),
        ("docs/api.md", "[a](recall.md#audit) [b](#c)", "[a](recall.md#audit) [b](#c)"),
        ("docs/api.md", "[a](https://a.b/README.md)", "[a](https://a.b/README.md)"),
        ("CONTRIBUTING.md", "[a](benchmarks/papers/README.md)", "[a](papers.md)"),
        ("docs/decisions/README.md", "[a](../api.md) [b](1.md)", "[a](../api.md) [b](1.md)"),
        ("README.md", '[a](docs/api.md) <img src="docs/b.png">', '[a](api.md) <img src="b.png">'),
        ("benchmarks/papers/README.md", "[a](../../docs/api.md#b)", "[a](api.md#b)"),
    ],
)  # fmt: skip
def test_links_lead_to_pages_of_the_site(source: str, text: str, expected: str) -> None:
    assert site.linked(text, source) == expected


def test_no_link_of_a_page_leaves_the_site() -> None:
    for page in DOCS.rglob("*.md"):
        name = str(page.relative_to(DOCS))
        found = markdown.links(site.linked(page.read_text(), f"docs/{name}"))
        places = [posixpath.normpath(posixpath.join(posixpath.dirname(name), to)) for to in found]
        assert not [place for place in places if place.startswith("..")], name


def test_what_becomes_a_page_exists() -> None:
    assert all((site.REPOSITORY / source).is_file() for source in site.OUTSIDE)
