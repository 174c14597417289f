"""Sparse rows by slot, compiled.

- `postings`: the inverted index, and the slots of a query in a segment of it
- `maxscore`: the exact scan, without terms that can make no hit
- `prefix_join`: the exact join by rare slots
"""
