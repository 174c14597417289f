"""Items found by a text, against those of a dict."""

import json

import numpy as np
import pytest

from tests.support.service.client import Client, Json

pytestmark = pytest.mark.served(cluster="one")

URL = "/v1/collections/words"
WORDS = ["Ab", "ab", "ba", "ABBA", "é", "É", "straße", 'say "ab"', "a\nb", "\\u00e9", "1.5", "x"]
TEXTS = [
    *WORDS,
    *["a", "b", "B", "STRASSE", '"k":', '"ab"', "\n", "\\", "}", "zz", "a" * 300, "%", ","],
]


def contains(payload: Json, text: str) -> bool:
    """Return whether a payload's text has a text, as it is or within a JSON string."""
    if payload is None:
        return False
    shown = json.dumps(payload, ensure_ascii=False, separators=(",", ":")).casefold()
    quoted = json.dumps(text, ensure_ascii=False)[1:-1]
    return text.casefold() in shown or quoted.casefold() in shown


def expected_ids(items: dict[str, Json], text: str) -> list[str]:
    """Return the ids that a text finds, of items in the order in which they were put."""
    prefixed = [name for name in items if name.startswith(text)]
    others = [
        name
        for name, payload in items.items()
        if text.casefold() in name.casefold() or contains(payload, text)
    ]
    return [*dict.fromkeys([*prefixed, *others])]


def test_a_text_finds_what_a_dict_finds(client: Client, rng: np.random.Generator) -> None:
    assert client.put(URL, json={"dim": 2}).status_code == 201
    items: dict[str, Json] = {}
    for number in range(120):  # one by one: the shards give keys in this order
        name = f"{rng.choice(WORDS)}{rng.integers(40) or ''}"
        payload = {"k": str(rng.choice(WORDS)), "n": [number % 7]} if number % 3 else None
        items.pop(name, None)  # an update puts it at the end
        items[name] = payload
        item = {"id": name, "vector": [1, number], "payload": payload}
        assert client.put(f"{URL}/items", json={"items": [item]}).status_code == 200
    for name in [*items][::5]:
        del items[name]
        assert client.post(f"{URL}/items/delete", json={"ids": [name]}).status_code == 200
    for text in TEXTS:
        expected = expected_ids(items, text)
        for limit in (1, 3, 100):
            answer = client.get(f"{URL}/items", params={"q": text, "limit": limit})
            assert answer.status_code == 200, answer.text
            page = answer.json()
            assert [each["id"] for each in page["items"]] == expected[:limit], text
            assert [each["payload"] for each in page["items"]] == [
                items[name] for name in expected[:limit]
            ]
            assert page["complete"] is True
            assert page["next_cursor"] is None
            assert not any("vector" in each for each in page["items"])
    shown = client.get(f"{URL}/items", params={"q": "a", "limit": 100, "with_vector": True})
    assert [each["id"] for each in shown.json()["items"]] == expected_ids(items, "a")
    for each in shown.json()["items"]:
        pages = client.get(f"{URL}/items", params={"ids": [each["id"], "x,"], "with_vector": True})
        assert pages.json()["items"] == [each]
