"""Store, search and count items on a server: `gcws-search serve`, then this program.

The first argument is the server's address; http://127.0.0.1:8000 unless it is given.
"""

import sys

import numpy as np

import gcws_search


def main(url: str) -> None:
    """Ask a server for the spectra most like a new one, among those of one instrument."""
    rng = np.random.default_rng(2)
    peaks = rng.gamma(0.3, size=(500, 64)).astype(np.float32)
    instruments = [f"instrument {number % 2}" for number in range(len(peaks))]
    server = gcws_search.connect(url)
    spectra = server.collection("spectra", dim=64)
    added = spectra.add(peaks, ids=map(str, range(500)), payloads={"instrument": instruments})
    print(f"{added.inserted + added.updated} spectra stored")
    sample = peaks[42] + rng.normal(scale=0.02, size=64)
    hits = spectra.query(sample, limit=3, recall=0.95, where={"instrument": "instrument 0"})
    print(f"most alike: {hits[0].id}, {hits[0].score:.2f}")
    print(f"{len(spectra)} in all; recall asked and expected:", end=" ")
    explained = spectra.query(sample, recall=0.95, explain=True).explanation or {}
    print(f"0.95 and {explained['expected_recall']:.2f}")
    server.drop("spectra")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000")
