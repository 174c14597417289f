"""Memory and file kept as one.

Group commit, recovery, checkpoints, the optimizer thread, reclaimed space.
"""
