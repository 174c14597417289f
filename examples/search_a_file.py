"""Store signed vectors in a file, search it, and say why two items are similar.

Needs no server: one process owns the file.
"""

import numpy as np

import gcws_search

FEATURES = ["mean", "drift", "peak", "noise"]


def main() -> None:
    """Search the readings of forty machines, two of which are wearing out."""
    rng = np.random.default_rng(1)
    readings = rng.normal(size=(40, 4)).astype(np.float32)
    readings[[7, 23]] = [[0.2, 3.0, 2.5, -1.0], [0.1, 2.8, 2.6, -1.2]]
    names = [f"machine-{number:02}" for number in range(len(readings))]
    with gcws_search.Collection.open("machines.sqlite", dim=4) as machines:
        machines.set_names(FEATURES)
        machines.add(readings, ids=names, payloads={"hall": [number % 3 for number in range(40)]})
        for hit in machines.query(id="machine-07", limit=3):
            payload = hit.payload or {}
            print(f"{hit.id}  {hit.score:.3f}  hall {payload['hall']}")
        print(machines.explain("machine-07", "machine-23"))
        elsewhere = machines.query(id="machine-07", limit=1, where={"hall": 0})
        print(f"nearest in hall 0: {elsewhere.ids[0]}")


if __name__ == "__main__":
    main()
