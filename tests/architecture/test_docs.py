"""README and docs: every example is executed, and what they name exists."""

import asyncio
import doctest
import importlib.util
import os
import posixpath
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import httpx
import jupytext
import pytest
from _pytest.mark.structures import ParameterSet
from typer.testing import CliRunner

from benchmarks.rivals.summary import summary
from gcws_search import sklearn as transformers
from gcws_search.commands.app import app
from gcws_search.service.app import create_app
from gcws_search.service.settings import Settings
from tests.support.documents import curl, markdown, notebooks, pictures, site
from tests.support.documents.markdown import DOCS, README, pages
from tests.support.paths import PRODUCT, REPOSITORY, sources
from tests.support.service.browser import SCHEMES
from tests.support.service.client import Json, started
from tests.support.service.live_server import listening

BASE = "http://localhost:8000"
LANGUAGES = {"", "sh", "console", "python", "pycon"}
"""Of fenced blocks; none is a diagram, and the packaging tests read ``sh``."""
OTHER_VARIABLES = {
    "GCWS_BIND", "GCWS_DATABASE_MEMORY", "GCWS_MEMORY", "GCWS_ROUTER_PORTS", "GCWS_SECRETS",
    "GCWS_URL", "GCWS_CHROMIUM",
}  # fmt: skip
"""Read by the compose file, by the commands that ask a server, and by the tests of the page."""

OTHERS = [REPOSITORY / "benchmarks/papers/README.md", REPOSITORY / "CONTRIBUTING.md"]
OTHERS += [REPOSITORY / "CHANGELOG.md"]


def params(found: Iterable[Path]) -> list[ParameterSet]:
    """Return pages as parameters, called by their paths."""
    return [pytest.param(page, id=str(page.relative_to(REPOSITORY))) for page in found]


PAGES = params(pages())
LINKED = params([*pages(), *OTHERS])
CONVERSATIONS = params(page for page in pages() if "```pycon" in page.read_text())
SESSIONS = params(page for page in pages() if "```console" in page.read_text())


def joined() -> str:
    return "\n".join(page.read_text() for page in pages())


# Examples


async def answers(requests: list[httpx.Request], data_dir: Path) -> list[str]:
    """Return what a service of its own answers to requests sent one after another."""
    own = create_app(Settings.model_validate({"data_dir": data_dir, "audit_share": 0}))
    transport = httpx.ASGITransport(own)
    async with own.router.lifespan_context(own), httpx.AsyncClient(transport=transport) as client:
        while (await client.get(f"{BASE}/readyz")).status_code != 200:  # noqa: ASYNC110  # told by HTTP alone
            await asyncio.sleep(0.01)
        return [(await client.send(request)).text for request in requests]


def requests_of(page: Path) -> list[curl.Step]:
    """Return the steps of a page that are requests."""
    return [step for step in curl.steps(page.read_text()) if "curl " in step.command]


@pytest.mark.parametrize("page", SESSIONS)
def test_the_session_answers_as_the_page_says(page: Path, tmp_path: Path) -> None:
    """Every page goes on from the session of the README."""
    steps = requests_of(README)
    assert len(steps) > 3
    if page != README:
        steps += requests_of(page)
    found = asyncio.run(answers([curl.request(step.command) for step in steps], tmp_path))
    for step, answer in zip(steps, found, strict=True):
        assert step.matches(answer), f"{step.command}\nanswered\n{answer}"


def test_the_python_of_the_docs_loads_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [program] = [content for language, content in markdown.blocks(joined()) if language == "python"]
    client = started(tmp_path)
    client.wait_until_ready()
    client.put("/v1/collections/coffees", json={"dim": 4})

    class Through:
        """Stands for httpx's client: the same requests, without a network."""

        def __init__(self, base_url: str) -> None:
            self._base = base_url.removeprefix("http://localhost:8000")

        def post(self, path: str, **more: Json) -> httpx.Response:
            return client.post(f"{self._base}{path}", **more)

    monkeypatch.setattr(httpx, "Client", Through)
    try:
        exec(program, {})
        shown = client.get("/v1/collections/coffees/items").json()["items"]
    finally:
        client.stop()
    assert capsys.readouterr().out.count("inserted") == 2
    assert [item["id"] for item in shown] == ["100", "101", "santos", "sidamo"]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a server without collections but one."""
    with listening(tmp_path_factory.mktemp("data")) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("page", CONVERSATIONS)
def test_the_interpreter_answers_as_the_docs_say(
    page: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The examples of a page share their names, and a folder of their own."""
    if "import rdkit" in page.read_text() or "from rdkit" in page.read_text():
        pytest.importorskip("rdkit")  # which has no wheels for some machines
    monkeypatch.chdir(tmp_path)
    known: dict[str, Json] = {}
    for language, content in markdown.blocks(page.read_text()):
        if language != "pycon":
            continue
        example = doctest.DocTestParser().get_doctest(
            content.replace(BASE, url).replace("…", "..."), known, page.name, None, None
        )
        # Raises where an answer is another.
        runner = doctest.DebugRunner(verbose=False, optionflags=doctest.ELLIPSIS)
        runner.run(example, clear_globs=False)
        known = example.globs


@pytest.mark.parametrize("name", notebooks.PAGES)
def test_a_notebook_is_its_page_and_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "molecules":
        pytest.importorskip("rdkit")
    text = (notebooks.FOLDER / f"{name}.py").read_text()
    assert text == notebooks.notebook((DOCS / f"{name}.md").read_text())
    monkeypatch.chdir(tmp_path)
    cells = jupytext.reads(text, fmt="py:percent").cells
    programs = [cell.source for cell in cells if cell.cell_type == "code"]
    assert len(programs) > 3
    known: dict[str, Json] = {}
    for program in programs:
        exec(program, known)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_of_a_language_that_is_tested(page: Path) -> None:
    text = page.read_text()
    languages = {language for language, _ in markdown.blocks(text)}
    assert languages <= LANGUAGES
    assert "sh" not in languages or page == README
    assert text.count("```") == 2 * len(markdown.blocks(text))


# Links and names


@pytest.mark.parametrize("page", LINKED)
def test_links_lead_to_pages_and_headings_that_exist(page: Path) -> None:
    for target in markdown.links(page.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        assert linked.exists(), target
        if anchor:
            assert anchor in markdown.anchors(linked.read_text()), target


@pytest.mark.parametrize("page", PAGES)
def test_paths_and_modules_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text()
    paths = re.findall(r"`((?:index|service|tests|benchmarks|docs|gcws_search)/[\w./]*)`", text)
    assert not [path for path in paths if not (REPOSITORY / path).exists()]
    names = set(re.findall(r"python -m ([a-z_.]+)", text)) - {"pytest"}
    assert not [name for name in names if importlib.util.find_spec(name) is None]


def test_transformers_and_docs_name_each_other() -> None:
    rows = [row for table in markdown.tables((DOCS / "comparison.md").read_text()) for row in table]
    named = re.findall(r"`(\w+)`", " ".join(row.get("Transformer", "") for row in rows))
    assert {*named} | {"GmmKNeighborsTransformer", "GmmNeighbors"} == {*transformers.__all__}


def test_settings_and_docs_name_each_other() -> None:
    named = set(re.findall(r"GCWS_[A-Z_]+\b", joined())) - OTHER_VARIABLES
    assert named == {f"GCWS_{field.upper()}" for field in Settings.model_fields}


EXAMPLES = {
    "near_duplicate_texts.py": "a1 a2 0.786",
    "search_a_file.py": "machine-23  0.914  hall 2",
    "talk_to_a_server.py": "most alike: 42, 0.96",
    "with_scikit_learn.py": "neighbours: 1.00 of the test profiles",
}


def test_each_example_is_run() -> None:
    assert {path.name for path in (REPOSITORY / "examples").glob("*.py")} == EXAMPLES.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(
    name: str,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, url])
    runpy.run_path(str(REPOSITORY / "examples" / name), run_name="__main__")
    assert EXAMPLES[name] in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("page", params([README, DOCS / "jobs.md", DOCS / "fields.md"]))
def test_the_commands_of_a_page_answer_as_it_says(
    page: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the README as processes, those of other pages in this one."""
    if page == DOCS / "fields.md":
        pytest.importorskip("rdkit")
    steps = [step for step in curl.steps(page.read_text()) if "curl " not in step.command]
    assert len(steps) > 2
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GCWS_URL", url)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("COLUMNS", "100")
    for step in steps:
        if page != README and step.command.startswith("gcws-search "):
            said = CliRunner().invoke(app, shlex.split(step.command)[1:]).output
        else:
            command = ["bash", "-c", f"{{ {step.command}\n}} 2>&1"]
            said = subprocess.check_output(command, text=True)
        shown = "\n".join(line.rstrip() for line in said.splitlines())
        assert step.matches(shown), f"{step.command}\nanswered\n{shown}"


@pytest.mark.parametrize(
    ("page", "modules"),
    [("operations.md", ["metrics.py"]), ("cluster.md", ["cluster/shards.py", "cluster/server.py"])],
)
def test_metrics_that_docs_name_exist(page: str, modules: list[str]) -> None:
    text = "".join((REPOSITORY / "service" / each).read_text() for each in modules)
    named = set(re.findall(r"`(gcws_[a-z_]+)`", (DOCS / page).read_text()))
    assert named == set(re.findall(r'"(gcws_[a-z_]+)"', text))


@pytest.mark.parametrize("package", ["index", "service", "gcws_search"])
def test_every_package_is_in_a_layout_table(package: str) -> None:
    [table] = [
        table
        for table in markdown.tables((DOCS / "design.md").read_text())
        if f"`{package}/`" in table[0]
    ]
    folder = REPOSITORY / package
    files = {path.name for path in folder.glob("*.py") if not path.name.startswith("__")}
    found = (path.parent for path in folder.glob("*/__init__.py"))
    folders = {f"{path.name}/" for path in found if not path.is_symlink()}
    assert {row[f"`{package}/`"].strip("`") for row in table} == files | folders


def test_every_promise_names_tests_that_exist() -> None:
    rows = [
        row
        for table in markdown.tables((DOCS / "durability.md").read_text())
        for row in table
        if "shown by" in row
    ]
    assert len(rows) >= 10
    for row in rows:
        files = re.findall(r"`(tests/[a-z_/]+\.py)`", row["shown by"])
        assert files, row
        for file in files:
            assert "def test_" in (REPOSITORY / file).read_text(), file


def test_every_source_is_among_the_references() -> None:
    texts = (path.read_text() for path, _ in sources(*PRODUCT))
    docstrings = [re.findall(r'"""(.*?)"""', text, re.DOTALL) for text in texts]
    named = set(re.findall(r"\[([A-Z]{3,})\]", str(docstrings)))
    prose, _, references = (DOCS / "algorithms.md").read_text().partition("## References")
    known = set(re.findall(r"\[([A-Z]+)\]", references))
    assert named
    assert named == known
    assert set(re.findall(r"\[([A-Z]{3,})\]", prose)) <= known


def test_every_generated_table_has_its_benchmark() -> None:
    marked = set(re.findall(r"<!-- table: (.+) -->", (DOCS / "benchmarks.md").read_text()))
    texts = (path.read_text() for path, _ in sources("benchmarks"))
    made = {name for text in texts for name in re.findall(r'Table\("([^"]+)"', text)}
    assert marked <= made


def test_the_summary_is_that_of_the_generated_table() -> None:
    """``python -m benchmarks.rivals.summary --write README.md`` makes it so."""
    assert f"<!-- table: summary -->\n{summary()}\n<!-- end: summary -->" in README.read_text()


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


def test_no_link_of_a_page_leaves_the_site_and_what_becomes_a_page_exists() -> None:
    for page in DOCS.rglob("*.md"):
        name = str(page.relative_to(DOCS))
        found = markdown.links(site.linked(page.read_text(), f"docs/{name}"))
        places = [posixpath.normpath(posixpath.join(posixpath.dirname(name), to)) for to in found]
        assert not [place for place in places if place.startswith("..")], name
    assert all((site.REPOSITORY / source).is_file() for source in site.OUTSIDE)


def test_each_view_of_the_page_has_small_pictures_that_are_shown() -> None:
    shown = re.findall(r'(?:src|srcset)="(pictures/[^"]+)"', (DOCS / "page.md").read_text())
    there = {f"pictures/{path.name}": path.stat().st_size for path in pictures.FOLDER.iterdir()}
    taken = {f"pictures/{view}-{scheme}.webp" for view in pictures.VIEWS for scheme in SCHEMES}
    assert sorted(shown) == sorted(there) == sorted(taken)
    assert sum(there.values()) < 800_000
