"""Items in memory.

Ids, rows and payloads behind immutable views, with one backend index a method.
"""
