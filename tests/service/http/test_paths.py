"""Names in paths: none of them reaches a file that is not its collection's."""

import itertools
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.service.client import Serve, fill
from tests.support.service.routes import GUARDED, SENT

pytestmark = pytest.mark.served(front="all")

HOSTILE = [
    "..", "../outside", "../../outside", "/etc/passwd", "a/../../outside", "..\\outside", ".",
    ".hidden", "lock", "x" * 300, "a\x00b", "outside.sqlite-wal", "~", "-rf", "%2e%2e", "con\n",
    "\ud7ff", "file:outside?mode=rwc",
]  # fmt: skip
PLACES = ("name", "item_id:any_text", "backend", "snapshot")


def files(folder: Path) -> dict[str, bytes]:
    """Return what lies below a folder, but for what is inside the data directory."""
    outer = [path for path in folder.rglob("*") if "data" not in path.relative_to(folder).parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in outer}


def test_no_name_in_a_path_reaches_another_file(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "outside.sqlite").write_text("secret")
    client = serve()
    fill(client)
    before = files(tmp_path)
    for name, (method, path) in itertools.product(HOSTILE, GUARDED):
        for place in PLACES:
            if f"{{{place}}}" not in path:
                continue
            url = path.replace(f"{{{place}}}", quote(name, safe=""))
            for other in PLACES:
                known = {"name": "plants", "backend": "gcws"}.get(other, "other")
                url = url.replace(f"{{{other}}}", known)
            body = SENT.get(path) if method in ("PUT", "POST") else None
            answer = client.request(method, url, json=body)
            assert b"secret" not in answer.content
            assert b"root:" not in answer.content
            assert answer.status_code < 500, (method, url, answer.text)
    assert files(tmp_path) == before
