"""The site of the docs: links that leave their folder lead to pages of it."""

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
        ("docs/contributing.md", "[a](../benchmarks/papers/README.md)", "[a](papers.md)"),
        ("README.md", '[a](docs/api.md) <img src="docs/b.png">', '[a](api.md) <img src="b.png">'),
        ("benchmarks/papers/README.md", "[a](../../docs/api.md#b)", "[a](api.md#b)"),
    ],
)  # fmt: skip
def test_links_lead_to_pages_of_the_site(source: str, text: str, expected: str) -> None:
    assert site.linked(text, source) == expected


def test_no_link_of_a_page_leaves_the_site() -> None:
    for page in DOCS.glob("*.md"):
        found = markdown.links(site.linked(page.read_text(), f"docs/{page.name}"))
        assert not [target for target in found if target.startswith("..")], page.name


def test_what_becomes_a_page_exists() -> None:
    assert all((site.REPOSITORY / source).is_file() for source in site.OUTSIDE)
