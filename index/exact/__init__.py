"""Brute force over all permitted rows.

- `scan`: dense rows, by copies in bytes first; sparse rows by the inverted index; candidates
  become hits, by GMM or another kernel
- `folded`: all rows that score enough with many queries, by sums of groups of coordinates
- `containment`: the share of a query that a row has, of all rows
- `inverted_index`: for each slot the rows that have it
"""
