"""A vector to search for, bad queries, and what GMM is."""

from tests.support.service.client import Json

URL = "/v1/collections/plants"
VECTOR = [0.1, -2, 0, 3]


def gmm(u: list[float], v: list[float]) -> float:
    """Σ min / Σ max over the positive and the negative parts."""
    parts = [(max(s * x, 0), max(s * y, 0)) for x, y in zip(u, v, strict=True) for s in (1, -1)]
    return sum(map(min, parts)) / sum(map(max, parts))


BAD_QUERIES: list[tuple[Json, str, list[str]]] = [
    ({}, "invalid_parameter", ["neither"]),
    ({"vector": VECTOR, "id": "a"}, "invalid_parameter", ["both"]),
    ({"vector": [1, 2, 3]}, "invalid_vector", ["vector", "4 values", "got 3"]),
    ({"vector": []}, "invalid_vector", ["vector"]),
    ({"vector": [0, 0, 0, 0]}, "invalid_vector", ["vector", "zero"]),
    ({"vector": [1, 2, 3, 1e39]}, "invalid_vector", ["vector[3]", "finite"]),
    ({"vector": [1, 2, 3, "4"]}, "invalid_vector", ["vector[3]", "'4'"]),
    ({"vector": [1, False, 3, 4]}, "invalid_vector", ["vector[1]", "false"]),
    ({"vector": [[1, 2, 3, 4]]}, "invalid_vector", ["vector[0]", "a list of 4"]),
    ({"vector": {"indices": [1, 1], "values": [1, 1]}}, "invalid_vector", ["vector", "twice"]),
    ({"vector": {"indices": [9], "values": [1]}}, "invalid_vector", ["vector.indices[0]", "9"]),
    ({"vector": {"indices": [-1], "values": [1]}}, "invalid_vector", ["vector.indices[0]", "-1"]),
    ({"vector": {"indices": [1], "values": [0]}}, "invalid_vector", ["vector", "zero"]),
    ({"vector": {"values": [1]}}, "invalid_vector", ["vector.indices"]),
    ({"vector": 3}, "invalid_vector", ["vector", "a list of numbers, or", "3"]),
    ({"id": 1.5}, "invalid_id", ["id", "1.5"]),
    ({"id": ""}, "invalid_id", ["id"]),
    ({"vector": VECTOR, "limit": 0}, "invalid_parameter", ["limit"]),
    ({"vector": VECTOR, "limit": 10**9}, "invalid_parameter", ["limit", "at most"]),
    ({"vector": VECTOR, "limit": 2.5}, "invalid_parameter", ["limit", "2.5"]),
    ({"vector": VECTOR, "limit": True}, "invalid_parameter", ["limit", "true"]),
    ({"vector": VECTOR, "offset": -1}, "invalid_parameter", ["offset", "at least 0"]),
    ({"vector": VECTOR, "offset": 1.5}, "invalid_parameter", ["offset", "1.5"]),
    ({"vector": VECTOR, "offset": 5, "limit": 0}, "invalid_parameter", ["limit", "at least 1"]),
    (
        {"vector": VECTOR, "offset": 99_991},
        "invalid_parameter",
        ["offset", "at most 100000 together with 'limit'", "100001"],
    ),
    ({"vector": VECTOR, "recall": 0}, "invalid_parameter", ["recall"]),
    ({"vector": VECTOR, "recall": 1.1}, "invalid_parameter", ["recall", "1.1"]),
    ({"vector": VECTOR, "recall": "high"}, "invalid_parameter", ["recall", "'high'"]),
    ({"vector": VECTOR, "min_score": -0.1}, "invalid_parameter", ["min_score"]),
    ({"vector": VECTOR, "guarantee": "sworn"}, "invalid_parameter", ["guarantee", "'proven'"]),
    ({"vector": VECTOR, "rerank": "l2"}, "invalid_parameter", ["rerank", "'gmm'"]),
    ({"vector": VECTOR, "explain": 1}, "invalid_parameter", ["explain", "true or false"]),
    ({"vector": VECTOR, "ef": 3}, "invalid_parameter", ["ef"]),
    ({"vector": VECTOR, "filter": {"must": 3}}, "invalid_filter", ["filter.must"]),
    ({"vector": VECTOR, "filter": [1]}, "invalid_filter", ["filter", "a list of 1"]),
    ([VECTOR], "invalid_parameter", ["an object"]),
]
