"""Hits and keys in order.

- `heap`: the best hits so far
- `rank`: hits by exact score
- `radix_sort`: keys with their rows
- `merge`: sorted pairs merged
"""
