"""``demo``: a server with three collections to try."""

from __future__ import annotations

import importlib
import inspect
import math
import os
import re
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer

from gcws_search.client.collection import Collection
from gcws_search.client.connection import RetryPolicy, Server, connect
from gcws_search.client.errors import NoServer
from gcws_search.commands.options import failures, family, report, whole_number
from gcws_search.index import GcwsError

cli = family()

COFFEES: Final = {
    "kenya": ([2, -1, 1, -0.5], "light"),
    "brazil": ([-1, 1.5, 1, 0], "medium"),
    "robusta": ([-2, 0, 0, 3], "dark"),
    "sidamo": ([0.5, 0, 2, -1], "light"),
}
"""How far each of `TASTES` is above or below the average."""
TASTES: Final = ("acidity", "body", "sweetness", "bitterness")
VIEWS: Final[dict[str, dict[str, Any]]] = {
    "coffees": {"color": "roast"},
    "digits": {"color": "label", "image": {"width": 8, "height": 8, "range": [0, 16]}},
    "functions": {"color": "module", "text": "says"},
}
"""How the page shows the items of each collection."""

MODULES: Final = (
    "array", "ast", "asyncio", "base64", "bisect", "builtins", "calendar", "cmath", "codecs",
    "collections", "configparser", "contextlib", "copy", "csv", "dataclasses", "datetime",
    "decimal", "difflib", "dis", "email.utils", "enum", "fileinput", "fnmatch", "fractions",
    "functools", "gc", "getpass", "gettext", "glob", "gzip", "hashlib", "heapq", "hmac", "html",
    "http.client", "importlib", "inspect", "io", "ipaddress", "itertools", "json", "keyword",
    "linecache", "locale", "logging", "math", "mimetypes", "multiprocessing", "operator", "os",
    "os.path", "pathlib", "pickle", "pkgutil", "platform", "pprint", "queue", "random", "re",
    "sched", "secrets", "select", "shelve", "shlex", "shutil", "signal", "socket", "sqlite3",
    "ssl", "stat", "statistics", "string", "struct", "subprocess", "sys", "tarfile", "tempfile",
    "textwrap", "threading", "time", "timeit", "token", "tokenize", "traceback", "types",
    "unicodedata", "unittest.mock", "urllib.parse", "urllib.request", "uuid", "warnings", "wave",
    "weakref", "xml.etree.ElementTree", "zipfile", "zlib",
)  # fmt: skip
_WORD: Final = re.compile(r"[a-z][a-z_]{2,}")
_READY: Final = RetryPolicy(attempts=600, max_seconds=1, report=report)

TRY: Final = """
gcws-search collections{url}
gcws-search query coffees --row '1.5,-1,0,-0.5' --limit 2{url}
gcws-search explain coffees kenya sidamo{url}
gcws-search query digits --id 0 --limit 5{url}
gcws-search query digits --id 0 --where '{{"label": 8}}' --limit 3 --explain{url}
gcws-search query functions --id shutil.copyfile --limit 5{url}
gcws-search query functions --names 'copy file:2 permission' --limit 5{url}
gcws-search explain functions shutil.copy shutil.copyfile --limit 5{url}
gcws-search compare digits --sample 20{url}
gcws-search export digits -o digits.parquet{url}
"""


@cli.command("demo", epilog="Example: gcws-search demo --port 8001")
def demo(
    *,
    port: Annotated[int, typer.Option(parser=whole_number(), help="Port to listen on.")] = 8000,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of the files; default a temporary one.")
    ] = None,
) -> None:
    """Serve three collections: coffees, hand-written digits, and functions of Python.

    Prints the address of its page, and commands to try. Ends with Ctrl-C.
    """
    from gcws_search.service.cli import serve  # noqa: PLC0415  # loads the web framework
    from gcws_search.service.server import require_address  # noqa: PLC0415
    from gcws_search.service.settings import settings_from  # noqa: PLC0415

    where = {"host": "127.0.0.1", "port": str(port)}
    with failures():
        require_address(settings_from(where))  # another server there must not be filled
    with tempfile.TemporaryDirectory(prefix="gcws-search-demo-") as temporary:
        url = f"http://127.0.0.1:{port}"
        threading.Thread(None, _fill_server, "demo", [url], daemon=True).start()
        serve(**where, data_dir=str(data_dir or temporary), log_level="warning")


def _fill_server(url: str) -> None:
    """Print the address of the page once it answers, fill the server, print examples."""
    # The server accepts these keys.
    key = os.environ.get("GCWS_API_KEY", "").partition(",")[0].strip() or None
    try:
        with connect(url, key) as server:
            _wait_until_it_listens(server)
        typer.echo(f"Open {url}/ in a browser; its API page is {url}/docs.")
        typer.echo("A first start compiles for about a minute; the page shows how far it is.")
        counts = fill(url, key)
    except GcwsError as error:
        report(str(error))
        return
    typer.echo("Served: " + ", ".join(f"{name} ({n:,})" for name, n in counts.items()))
    other = "" if url.endswith(":8000") else f" --url {url}"
    typer.echo(f"Or try:\n{TRY.format(url=other)}\nCtrl-C ends it.")


def fill(url: str, key: str | None = None) -> dict[str, int]:
    """Create the collections of the demo, and return how many items each has.

    Raises
    ------
    GcwsError
    """
    with connect(url, key, policy=_READY) as server:
        coffees = _create_with_view(server, "coffees", len(TASTES))
        coffees.add(
            [vector for vector, _ in COFFEES.values()],
            ids=[*COFFEES],
            payloads={"roast": [roast for _, roast in COFFEES.values()]},
        )
        coffees.set_names(TASTES)
        with np.load(Path(__file__).with_name("digits.npz")) as found:
            digits = _create_with_view(server, "digits", found["X"].shape[1])
            digits.add(found["X"], payloads={"label": found["y"]})
        names, vectors, payloads = function_docstrings()
        functions = _create_with_view(server, "functions", None)
        functions.add(vectors, ids=names, payloads=payloads)
        return {each.name: len(each) for each in (coffees, digits, functions)}


def _create_with_view(server: Server, name: str, dim: int | None) -> Collection:
    created = server.collection(name, dim=dim)
    created.set_metadata({"view": VIEWS[name]})
    return created


def _wait_until_it_listens(server: Server) -> None:
    for _ in range(600):
        with suppress(NoServer):
            server.health()
            return
        time.sleep(0.1)


def function_docstrings() -> tuple[list[str], list[dict[str, float]], list[dict[str, str]]]:
    """Return functions of the standard library by the words of their docstrings.

    Returns
    -------
    vectors : list of dict
        tf-idf by word.
    payloads : list of dict
        Module, and first line of the docstring.
    """
    texts: dict[str, tuple[str, str]] = {}
    for module in MODULES:
        try:
            found = importlib.import_module(module)
        except ImportError:  # this platform has none
            continue
        for name, value in vars(found).items():
            text = inspect.getdoc(value) if callable(value) and not name.startswith("_") else None
            if text and not inspect.isclass(value):
                texts[f"{module}.{name}"] = module, text
    counted = {name: Counter(_WORD.findall(text.lower())) for name, (_, text) in texts.items()}
    known = Counter(word for words in counted.values() for word in words)
    weight = {word: math.log(len(texts) / count) for word, count in known.items() if count > 1}
    names, vectors, payloads = [], [], []
    for name, words in counted.items():
        vector = {word: n * weight[word] for word, n in words.items() if weight.get(word)}
        if vector:
            module, text = texts[name]
            names.append(name)
            vectors.append(vector)
            payloads.append({"module": module, "says": text.splitlines()[0]})
    return names, vectors, payloads
