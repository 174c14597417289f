"""Brute force over all permitted rows.

- `scan`: dense rows, by byte copies first; sparse rows by the inverted index; scores candidates,
  by GMM or another kernel
- `folded`: all rows with enough score for many queries, by sums of groups of coordinates
- `containment`: the share of a query that a row has, for all rows
- `inverted_index`: for each slot the rows that have it
"""
