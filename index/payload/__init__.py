"""Payloads of items.

- `encoding`: JSON objects as compact text
- `columns`: the values of each payload key by row
- `filters`: from a filter to a mask over rows
"""
