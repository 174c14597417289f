"""Kernels compiled before the first request.

- `exercises`: calls that make every kernel compile
- `compile`: the processes that run them
- `release`: kernels compiled for other machines, in an installation or a wheel
"""
