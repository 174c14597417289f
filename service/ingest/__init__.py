"""Streams of items, read in bounded memory: bytes arrive, batches leave."""
