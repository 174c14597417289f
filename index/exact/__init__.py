"""Brute force over all permitted rows.

- `scan`: dense rows, by copies in bytes first; sparse rows by the inverted index; candidates
  become hits, by GMM or another kernel
- `inverted_index`: for each slot the rows that have it
"""
