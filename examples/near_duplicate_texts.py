"""Find near-duplicate texts by their words: counts become a sparse vector, pairs are exact."""

from collections import Counter
from itertools import pairwise

import gcws_search

TEXTS = {
    "a1": "the pump in hall two lost pressure at night and was switched off",
    "a2": "the pump in hall two lost pressure at night and it was switched off",
    "b1": "new bearings were fitted to the conveyor before the morning shift",
    "b2": "new bearings were fitted to the old conveyor before the morning shift",
    "c1": "nothing to report",
}


def words(text: str) -> dict[str, float]:
    """Return how often each pair of neighbouring words is in a text."""
    tokens = text.split()
    pairs = Counter(map(" ".join, pairwise(tokens)))
    return {pair: float(count) for pair, count in pairs.items()}


def main() -> None:
    """Print the pairs of texts that share at least half of their word pairs."""
    with gcws_search.Collection.open(":memory:", dim=None) as texts:
        vectors = [words(text) for text in TEXTS.values()]
        texts.add(vectors, ids=list(TEXTS), payloads={"text": list(TEXTS.values())})
        for pair in texts.pairs(min_score=0.5, recall=1):
            print(f"{pair.a} {pair.b} {pair.score:.3f}")
        hit = texts.query(words("the pump in hall two lost pressure"), limit=1)[0]
        payload = hit.payload or {}
        print(f"{hit.score:.3f}  {payload['text']}")


if __name__ == "__main__":
    main()
