"""Kernels compiled before requests need them: what exercises them, and the processes that do so."""
