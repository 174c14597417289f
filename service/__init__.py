"""The REST service: HTTP in, HTTP out. It knows the index only by what ``index`` itself exports.

- `app`: the application, built of its parts
- `errors`: what can go wrong before the index is asked
- `problems`: errors as RFC 9457 answers, each with its status
- `models`: what bodies are made of: ids, vectors, items
- `json_bodies`: JSON checked by a compiled validator, a long one in pieces
- `responses`: content types, answers as bytes
- `contract`: what routes call
- `messages`, `batcher`: what processes say of each other; queries answered by one call
- `server`: what every process that serves has
- `settings`: ``GCWS_*`` variables and flags
- `cli`: the command ``serve``
- `flags`: flags and variables of commands that start a server
- `startup_answers`: what answers while the application is imported
- `file_commands`: the commands ``check`` and ``vacuum``
"""
