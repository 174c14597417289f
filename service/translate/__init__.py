"""Requests become calls of the index, and results become JSON."""
