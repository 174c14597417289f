"""Sparse rows by slot, compiled.

- `postings`: the inverted index, and the slots of a query in a segment of it
- `maxscore`: the exact scan, which skips terms that cannot make a hit
- `prefix_join`: the exact join by rare slots
"""
