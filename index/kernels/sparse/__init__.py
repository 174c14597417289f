"""Sparse rows by slot, compiled.

- `postings`: the inverted index built
- `query_terms`: the slots of a query in a segment
- `maxscore`: the exact scan, without terms that can make no hit
- `prefix_join`: the exact join by rare slots
"""
