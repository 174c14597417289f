"""Streams of items, read in bounded memory.

- `source`: bytes from the event loop to the thread that loads; a chunk of rows
- `formats`: what a body is
- `ndjson`, `npy`, `arrow`, `delimited`: the readers
- `job`: one load: chunks checked, committed, counted; idempotency keys
"""
