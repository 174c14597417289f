"""Files of the page: what is vendored, what a browser may do, and how much it fetches."""

import gzip
import hashlib
import json
import re
from pathlib import Path
from typing import Final

import httpx
import pytest

from gcws_search.service.api.page import POLICY, read_files, version_of
from tests.support.documents import page_types
from tests.support.paths import REPOSITORY
from tests.support.service.client import Client, Serve, assert_problem

STATIC: Final = REPOSITORY / "service" / "page" / "static"
VENDOR: Final = STATIC / "vendor"
MAX_COMPRESSED: Final = 122_000
"""Bytes of all that a page without molecules fetches, each file by itself."""
MAX_OURS: Final = 70_000
"""Bytes of all own code, that of the API page too, compressed as one."""
INDEX: Final = STATIC / "index.html"
BROWSER: Final = {"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}
OURS: Final = sorted(
    path for path in STATIC.rglob("*") if path.is_file() and VENDOR not in path.parents
)


def page(client: Client, path: str = "/") -> httpx.Response:
    return client.get(path, headers=BROWSER)


def addresses(html: str) -> list[str]:
    """Return the files that an HTML file takes: all that it links to but the page."""
    return [link for link in re.findall(r'(?:href|src)="([^"]+)"', html) if link not in (".", "#/")]


# Vendored files


def test_every_vendored_file_is_listed_with_its_hash_and_licence() -> None:
    listed = json.loads((VENDOR / "vendored.json").read_text())
    licences = (VENDOR / "LICENCES.txt").read_text()
    code = {path.name for path in VENDOR.iterdir() if path.suffix in (".js", ".css")}
    assert {entry["file"] for entry in listed} == code
    for entry in listed:
        content = (VENDOR / entry["file"]).read_bytes()
        assert hashlib.sha512(content).hexdigest() == entry["sha512"], entry["file"]
        assert f"== {entry['package']}-{entry['version']} " in licences
        assert entry["licence"]


def test_a_changed_file_has_another_address() -> None:
    files = read_files()
    version = version_of(files)
    assert version == version_of(read_files())
    assert version != version_of({**files, "main.js": b""})
    assert re.fullmatch(r"[0-9a-f]{16}", version)
    assert {"main.js", "style.css", "vendor/preact.js", "vendor/swagger-ui-bundle.js"} <= {*files}
    assert not [name for name in files if name.endswith((".json", ".txt"))]


# Our own files


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_a_file_of_the_page_writes_no_html_and_names_no_other_host(path: Path) -> None:
    text = path.read_text()
    banned = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc"
    assert not re.findall(banned, text)
    hosts = set(re.findall(r"https?://([\w.-]+)", text))
    assert hosts <= {"www.w3.org"}, "names of namespaces alone"


def test_types_of_answers_are_those_of_the_api() -> None:
    api = json.loads((REPOSITORY / "openapi.json").read_text())
    assert page_types.FILE.read_text() == page_types.page_types(api)


def test_no_html_has_a_script_or_a_style_within() -> None:
    for path in STATIC.glob("*.html"):
        text = path.read_text()
        assert not re.findall(r"<style|\sstyle=|\son\w+=", text)
        assert all(not body.strip() for body in re.findall(r"<script[^>]*>(.*?)</script>", text))


def test_a_page_without_molecules_is_small() -> None:
    without = {"smiles-drawer.js", "swagger-ui-bundle.js", "swagger-ui.css"}
    without |= {f"docs.{kind}" for kind in ("css", "html", "js")}
    sizes = {
        name: len(gzip.compress(body, 9))
        for name, body in read_files().items()
        if name.rpartition("/")[2] not in without
    }
    assert len(sizes) > 15
    assert sum(sizes.values()) < MAX_COMPRESSED, sizes
    assert len(gzip.compress(b"".join(path.read_bytes() for path in OURS), 9)) < MAX_OURS


def test_what_the_page_starts_with_is_fetched_at_once() -> None:
    wanted = {"main.js"}
    waiting = ["main.js"]
    while waiting:
        text = (STATIC / waiting.pop()).read_text()
        found = set(re.findall(r'^(?:import|\}) .*from "\./([\w.-]+)";', text, re.MULTILINE))
        waiting += found - wanted
        wanted |= found
    links = re.findall(r'"modulepreload" href="\{assets\}/([\w.-]+)"', INDEX.read_text())
    assert sorted(links) == sorted(wanted - {"main.js"})


# Served


def test_a_browser_gets_the_page_and_anybody_else_the_service(client: Client) -> None:
    assert page(client).headers["content-type"].startswith("text/html")
    for accept in ("*/*", "application/json", ""):
        found = client.get("/", headers={"Accept": accept})
        assert found.json() == client.get("/v1").json()
        assert found.headers["vary"] == "Accept"


def test_page_and_files_need_no_key_but_what_they_ask_for_does(serve: Serve) -> None:
    client = serve(api_key="a-key")
    for link in addresses(page(client).text):
        assert client.get(f"/{link}").status_code == 200
    assert_problem(client.get("/"), 401, "key_missing")


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_may_load_its_own_files_alone(client: Client, path: str) -> None:
    found = page(client, path)
    assert found.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert found.headers["cache-control"] == "no-cache"
    for link in addresses(found.text):
        assert not link.startswith(("/", "http")), "relative, so that a prefix may stand before it"
        file = client.get(f"/{link}")
        assert file.headers["content-security-policy"] == POLICY
        assert file.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert file.headers["x-content-type-options"] == "nosniff"


def test_files_are_compressed_for_those_who_take_it_and_there_is_no_other(client: Client) -> None:
    [script] = [link for link in addresses(page(client).text) if link.endswith("preact.js")][:1]
    plain = client.get(f"/{script}", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    packed = client.get(f"/{script}", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content == (VENDOR / "preact.js").read_bytes()
    assert int(packed.headers["content-length"]) < len(plain.content) / 2
    names = ("none.js", "../assets.py", "vendor/vendored.json", "")
    files = [f"/page/{version_of(read_files())}/{name}" for name in names]
    for path in (*files, "/page/0123456789abcdef/main.js", "/redoc"):
        assert_problem(client.get(path), 404, "route_not_found")
