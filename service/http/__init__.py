"""HTTP itself.

- `bodies`: bodies read (413, 415)
- `dispatch`: from a request to its route
- `json_route`: a route without the framework's second validation
- `envelope`: request id, measurement, answer of last resort
- `timeouts`: clocks on slow clients
- `joined_writes`: the head of an answer sent with its body
"""
