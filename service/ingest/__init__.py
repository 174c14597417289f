"""Streams of items, read in bounded memory.

- `source`: passes bytes from the event loop to the thread of a load; chunks of rows
- `formats`: detects the format of a body
- `ndjson`, `npy`, `arrow`, `delimited`: the readers
- `job`: one load: chunks checked, committed, counted; idempotency keys
"""
