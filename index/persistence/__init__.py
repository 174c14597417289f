"""Memory and file kept as one.

Writes, recovery, checkpoints, the optimizer thread, reclaimed space.
"""
