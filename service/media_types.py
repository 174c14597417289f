"""Content types of bodies."""

JSON = "application/json"
NPY = "application/x-npy"
NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
SQLITE = "application/vnd.sqlite3"
BINARY = "application/octet-stream"
FORM = "application/x-www-form-urlencoded"
UNSAID = ("", BINARY, FORM)
"""Content types that say nothing of a body; curl sends the last one of any that has no other."""
