"""HTTP itself.

- `bodies`: bodies read (413, 415)
- `dispatch`: from a request to its endpoint
- `envelope`: request id, measurement, answer of last resort
- `timeouts`: clocks on slow clients; the head of an answer sent with its body
"""
