"""HTTP itself.

- `models`: what bodies are made of: ids, vectors, items
- `bodies`: bodies read (413, 415), and checked by a compiled validator
- `long_json`: long JSON counted, and cut into pieces
- `media_types`: content types
- `dispatch`: from a request to its route
- `json_route`: a route without the framework's second validation
- `envelope`: request id, measurement, answer of last resort
- `timeouts`: clocks on slow clients
- `joined_writes`: the head of an answer sent with its body
- `responses`: answers as bytes
- `errors`: what can go wrong before the index is asked
- `problems`: errors as RFC 9457 answers, each with its status
"""
