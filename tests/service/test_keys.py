"""Keys: who may read, who may write, and what stays open."""

import pytest

from tests.served import Client, Json, Serve, assert_problem

ADMIN, READER = "admin-kéy", "reader-key"
OPEN = [("GET", "/livez"), ("GET", "/readyz"), ("GET", "/healthz"), ("GET", "/openapi.json")]
VECTOR = {"vector": [1, 2, 3, 4]}
READS: list[tuple[str, str, Json]] = [
    ("GET", "/metrics", None),
    ("GET", "/v1/collections", None),
    ("GET", "/v1/collections/plants", None),
    ("GET", "/v1/collections/plants/items", None),
    ("GET", "/v1/collections/plants/items/a", None),
    ("POST", "/v1/collections/plants/query", VECTOR),
    ("POST", "/v1/collections/plants/query/batch", {"queries": [VECTOR]}),
    ("POST", "/v1/collections/plants/pairs", {"min_score": 0.5}),
    ("POST", "/v1/collections/plants/sketch", {"vectors": [[1, 2, 3, 4]]}),
    ("POST", "/v1/similarity", {"a": [1], "b": [1]}),
]
WRITES: list[tuple[str, str, Json]] = [
    ("PUT", "/v1/collections/plants", {"dim": 4}),
    ("PUT", "/v1/collections/plants/items", {"items": [{"id": "a", "vector": [1, 2, 3, 4]}]}),
    ("POST", "/v1/collections/plants/items/delete", {"ids": ["x"]}),
    ("POST", "/v1/collections/plants/load", None),
    ("DELETE", "/v1/collections/plants/items/a", None),
    ("DELETE", "/v1/collections/plants", None),
]


def ask(client: Client, route: tuple[str, str, Json], **headers: str) -> Json:
    method, path, body = route
    sent = {key.replace("_", "-"): value.encode() for key, value in headers.items()}
    return client.request(method, path, json=body, headers=sent)


@pytest.fixture
def guarded(serve: Serve) -> Client:
    client = serve(api_key=ADMIN, read_only_api_key=READER)
    for route in (WRITES[0], WRITES[1]):
        assert ask(client, route, X_API_Key=ADMIN).status_code in (200, 201)
    return client


@pytest.mark.parametrize("route", READS + WRITES, ids=str)
def test_without_a_key_there_is_no_entry(guarded: Client, route: tuple[str, str, Json]) -> None:
    answer = ask(guarded, route)
    assert_problem(answer, 401, "key_missing")
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("route", READS + WRITES, ids=str)
def test_a_wrong_key_is_refused(guarded: Client, route: tuple[str, str, Json]) -> None:
    assert_problem(ask(guarded, route, X_API_Key="wrong"), 403, "key_refused")
    assert_problem(ask(guarded, route, Authorization=f"Bearer {ADMIN}x"), 403, "key_refused")


@pytest.mark.parametrize("route", READS, ids=str)
def test_either_key_reads(guarded: Client, route: tuple[str, str, Json]) -> None:
    for key in (ADMIN, READER):
        assert ask(guarded, route, X_API_Key=key).status_code == 200
        assert ask(guarded, route, Authorization=f"Bearer {key}").status_code == 200
        assert ask(guarded, route, Authorization=f"bearer {key}").status_code == 200


@pytest.mark.parametrize("route", WRITES, ids=str)
def test_only_the_admin_key_writes(guarded: Client, route: tuple[str, str, Json]) -> None:
    assert_problem(ask(guarded, route, X_API_Key=READER), 403, "key_refused", "read-only")
    assert ask(guarded, route, X_API_Key=ADMIN).status_code in (200, 201, 204)


@pytest.mark.parametrize(("method", "path"), OPEN)
def test_health_and_the_page_stay_open(guarded: Client, method: str, path: str) -> None:
    assert guarded.request(method, path).status_code == 200


def test_a_key_is_checked_before_the_body(guarded: Client) -> None:
    answer = guarded.put("/v1/collections/plants/items", content=b"{")
    assert_problem(answer, 401, "key_missing")


def test_with_the_read_only_key_alone_nobody_writes(serve: Serve) -> None:
    client = serve(read_only_api_key=READER)
    assert ask(client, READS[1], X_API_Key=READER).status_code == 200
    assert_problem(ask(client, WRITES[0], X_API_Key=READER), 403, "key_refused")
    assert_problem(ask(client, WRITES[0]), 401, "key_missing")


def test_with_the_admin_key_alone_it_is_needed_for_reading(serve: Serve) -> None:
    client = serve(api_key=ADMIN)
    assert_problem(ask(client, READS[1]), 401, "key_missing")
    assert ask(client, READS[1], X_API_Key=ADMIN).status_code == 200


@pytest.mark.parametrize("value", ["", "Bearer", "Bearer ", "Basic abc"])
def test_other_authorization_is_no_key(guarded: Client, value: str) -> None:
    assert_problem(ask(guarded, READS[1], Authorization=value), 401, "key_missing")
