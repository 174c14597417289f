"""Benchmarks of the library alone."""
