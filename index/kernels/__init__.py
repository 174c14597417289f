"""Compiled functions over arrays, one algorithm a file; nothing here knows of items or requests."""
