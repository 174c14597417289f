"""Heaps, radix sort, ranks and merges."""
