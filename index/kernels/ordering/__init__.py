"""Hits and keys in order.

- `hits`: the best so far; by exact score
- `keys`: sorted with their rows, and merged
"""
