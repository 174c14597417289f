"""HTTP itself.

- `bodies`: bodies and parameters, read and checked (413, 415)
- `dispatch`: from a request to its endpoint: its id, its measurement, the answer of last resort
- `timeouts`: clocks on slow clients; the head of an answer sent with its body
"""
