"""Streams of items, read in bounded memory.

- `source`: bytes from the event loop to the thread that loads
- `formats`: what a body is
- `ndjson`, `npy`, `arrow`, `arrow_columns`: the readers
- `rows`: a chunk of items, and rows that are rejected
- `names`: names of coordinates looked up, or given coordinates
- `job`: one load: chunks checked, committed, counted
- `load_keys`: idempotency keys: what is committed is passed over
"""
