"""Kernels compiled before the first request.

- `exercises`: calls that make every kernel compile
- `compile`: the processes that run them
"""
