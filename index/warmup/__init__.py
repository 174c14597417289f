"""Kernels compiled before the first request.

- `compile`: calls that compile every kernel, and the processes that run them
- `release`: kernels compiled for other machines, in an installation or a wheel
"""
