"""Keys: who may read, who may write, and what stays open; on every route there is."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from pydantic import SecretStr

from gcws_search.service.app import create_app
from gcws_search.service.errors import ServiceError
from gcws_search.service.keys import cluster_key, database_url, is_loopback, require_guard
from gcws_search.service.settings import Settings
from tests.support.service.client import Client, Serve, assert_problem, fill
from tests.support.service.routes import GUARDED, OPEN, SENT

pytestmark = pytest.mark.served(front="all")

ADMIN, READER = "admin-kéy", "reader-key"
READING_POSTS: Final = {
    "query", "query/batch", "count", "explain", "map", "pairs", "groups", "join", "profile",
    "sketch", "compare",
    "similarity", "preview",
}  # fmt: skip
"""Every other method than GET writes."""
PREVIEW: Final = "/v1/preview"
CSV: Final = {"content-type": b"text/csv"}


def reads(method: str, path: str) -> bool:
    last = path.removeprefix("/v1/").removeprefix("collections/{name}/")
    return method == "GET" or last in READING_POSTS


def ask(client: Client, method: str, path: str, **headers: str) -> httpx.Response:
    names = {
        "name": "plants", "item_id:any_text": "b", "item_id": "b", "backend": "rff",
        "snapshot": "kept",
    }  # fmt: skip
    url = path
    for name, value in names.items():
        url = url.replace(f"{{{name}}}", value)
    sent = {key.replace("_", "-"): value.encode() for key, value in headers.items()}
    if path == PREVIEW:
        return client.request(method, url, content=b"a,b\n1,2\n", headers=sent | CSV)
    body = SENT.get(path) if method in ("PUT", "POST") else None
    return client.request(method, url, json=body, headers=sent)


@pytest.fixture
def guarded(serve: Serve) -> Client:
    """Return a client of a service with keys, and with items that were there before them."""
    client = serve()
    fill(client)
    client.app.state.service.collections.snapshot("plants", "kept")
    return serve(api_key=ADMIN, read_only_api_key=READER)


def test_every_route_asks_for_a_key_and_writing_for_the_admin_key(guarded: Client) -> None:
    assert len(GUARDED) >= 19
    for method, path in GUARDED:
        without = ask(guarded, method, path)
        assert_problem(without, 401, "key_missing")
        assert without.headers["www-authenticate"] == "Bearer"
        assert_problem(ask(guarded, method, path, X_API_Key="wrong"), 403, "key_refused")
        wrong = ask(guarded, method, path, Authorization=f"Bearer {ADMIN}x")
        assert_problem(wrong, 403, "key_refused")
        reader = ask(guarded, method, path, Authorization=f"Bearer {READER}")
        if reads(method, path):
            assert reader.status_code == 200, (method, path, reader.text)
        else:
            assert_problem(reader, 403, "key_refused", "read-only")
    for method, path in GUARDED:  # only now, so that nothing was changed before
        admin = ask(guarded, method, path, Authorization=f"bearer {ADMIN}")
        assert admin.status_code not in (401, 403), (method, path, admin.text)


def test_health_and_the_page_stay_open_and_a_key_is_checked_before_the_body(
    guarded: Client,
) -> None:
    for path in (*OPEN, "/openapi.json", "/docs"):
        assert guarded.get(path).status_code == 200, path
    answer = guarded.put("/v1/collections/plants/items", content=b"{")
    assert_problem(answer, 401, "key_missing")
    for value in ("", "Bearer", "Bearer ", "Basic abc"):
        answer = ask(guarded, "GET", "/v1/collections", Authorization=value)
        assert_problem(answer, 401, "key_missing")


PERMITTED: Final[list[tuple[dict[str, Any], dict[str, str]]]] = [
    ({}, {"": "write", "any": "write"}),
    ({"read_only_api_key": READER}, {"": "", READER: "read"}),
    ({"api_key": ADMIN}, {"": "", ADMIN: "write", READER: ""}),
    (
        {"api_key": " old , new", "read_only_api_key": "a,b"},
        {"old": "write", "new": "write", "a": "read", "b": "read", "old , new": ""},
    ),
]


def test_the_service_says_what_a_key_permits(serve: Serve) -> None:
    for settings, keys in PERMITTED:
        client = serve(**settings)
        for key, permits in keys.items():
            answer = ask(client, "GET", "/v1", X_API_Key=key)
            assert answer.status_code == (200 if permits else 403 if key else 401)
            if permits:
                told = answer.json()
                assert (told["permits"], told["keys"]) == (permits, bool(settings))
    create = ask(client, "PUT", "/v1/collections/{name}", X_API_Key="a")
    assert_problem(create, 403, "key_refused")


def statuses(client: Client, *keys: str) -> list[int]:
    return [ask(client, "GET", "/v1/collections", X_API_Key=key).status_code for key in keys]


def replace_file(file: Path, text: str) -> None:
    """Put another file in the place of one, as an operator's tools do."""
    file.with_suffix(".new").write_text(text)
    os.replace(file.with_suffix(".new"), file)


def test_a_file_of_keys_is_read_anew_when_it_changes_and_is_there_at_the_start(
    serve: Serve, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text("# of May\nold\n\n")
    client = serve(api_key_file=file, read_only_api_key="reader")
    assert statuses(client, "old", "new", "reader", "# of May") == [200, 403, 200, 403]
    replace_file(file, "old\nnew\n")
    assert statuses(client, "old", "new") == [200, 200]
    replace_file(file, "new\n")
    assert statuses(client, "old", "new") == [403, 200]
    file.unlink()  # what was read last goes on to hold
    assert statuses(client, "old", "new") == [403, 200]
    replace_file(file, "")
    assert statuses(client, "old", "new", "") == [403, 403, 401]
    with pytest.raises(FileNotFoundError):
        create_app(Settings(api_key_file=tmp_path / "none"))


def test_without_a_key_only_loopback_is_listened_on(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("k\n")
    with pytest.raises(ServiceError, match=r"0\.0\.0\.0"):
        require_guard(Settings(host="0.0.0.0"))
    with pytest.raises(ServiceError, match=r"10\.0\.0\.7"):
        require_guard(Settings(host="127.0.0.1", published_host="10.0.0.7"))
    for permitted in (
        Settings(),
        Settings(host="0.0.0.0", api_key=SecretStr("k")),
        Settings(host="0.0.0.0", read_only_api_key_file=tmp_path / "keys"),
        Settings(host="0.0.0.0", allow_no_key=True),
        Settings(host="0.0.0.0", published_host="127.0.0.1"),
    ):
        require_guard(permitted)
    for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        assert is_loopback(host), host
    for host in ("0.0.0.0", "::", "10.0.0.7", "example.org", "", "127.1", "localhost.example.org"):
        assert not is_loopback(host), host


@pytest.mark.parametrize(
    ("code", "headers"),
    [
        *(("origin_refused", {"Origin": origin})
          for origin in ("http://evil.example", "null", "http://test:8001", "http://[")),
        ("host_refused", {"Host": "evil.example:8000"}),
    ],
)  # fmt: skip
def test_pages_of_other_sites_and_public_names_are_refused_where_no_key_is_set(
    serve: Serve, code: str, headers: dict[str, str]
) -> None:
    client = serve()
    for method, path in GUARDED:
        assert_problem(ask(client, method, path, **headers), 403, code)
    assert ask(client, "GET", "/v1/collections", Origin="http://test").status_code == 200


LOCAL: Final = (
    "localhost:8000", "localhost", "gcws.localhost:8000", "gcws:8000", "127.0.0.1:8000", "10.0.0.7",
    "[::1]:8000", "[::1]", "[::ffff:127.0.0.1]:8000", "test",
)  # fmt: skip
PUBLIC: Final = (
    "evil.example:8000", "evil.example", "evil.example.", "127.0.0.1.evil.example:8000",
    "localhost.evil.example",
)  # fmt: skip


def test_only_local_names_are_asked_for_where_no_key_is_set(serve: Serve) -> None:
    client = serve()
    for host in LOCAL:
        assert ask(client, "GET", "/v1/collections", Host=host).status_code == 200, host
    for host in PUBLIC:
        answer = ask(client, "GET", "/v1/collections", Host=host)
        assert_problem(answer, 403, "host_refused", host)
        assert client.get("/livez", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("settings", [{"api_key": SecretStr("k")}, {"allow_no_key": True}])
def test_a_key_or_a_setting_permits_public_names(serve: Serve, settings: dict[str, Any]) -> None:
    sent = {"Host": "public.example", "Authorization": "Bearer k"}
    assert ask(serve(**settings), "GET", "/v1/collections", **sent).status_code == 200


def test_a_browser_says_whose_page_asks_where_a_proxy_changes_the_host(serve: Serve) -> None:
    client = serve()
    for site, status in (("same-origin", 200), ("same-site", 403), ("cross-site", 403), ("", 403)):
        headers = {"Origin": "https://public.example", "Sec-Fetch-Site": site}
        assert ask(client, "GET", "/v1/collections", **headers).status_code == status, site


@pytest.mark.parametrize(
    ("name", "read"), [("cluster_key", cluster_key), ("database_url", database_url)]
)
def test_what_a_cluster_shares_may_be_in_a_file(
    name: str, read: Callable[[Settings], str | None], tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text("from a file\n")
    assert read(Settings()) is None
    assert read(Settings.model_validate({f"{name}_file": file})) == "from a file"
    both = {name: "given", f"{name}_file": file}
    assert read(Settings.model_validate(both)) == "given"
    file.write_text("\n")
    assert read(Settings.model_validate({f"{name}_file": file})) is None
    file.unlink()
    with pytest.raises(OSError, match=name):
        read(Settings.model_validate({f"{name}_file": file}))
