"""The REST service: HTTP in, HTTP out. It knows the index only by what ``index`` itself exports.

- `app`: creates the application from its parts
- `http`: from a request to its endpoint
- `errors`: errors that the service raises itself, before the index is called
- `problems`: errors as RFC 9457 answers, each with its status
- `models`: models of bodies; parses JSON, long bodies in pieces
- `responses`: content types, answers as bytes
- `contract`: queries as collections receive them
- `messages`: the format of messages between processes
- `keys`: who may read and write (401, 403)
- `limits`: limits of one request, and of all together (422, 503, 507)
- `metrics`: metrics in the format of Prometheus
- `pools`: bounded pools of threads; a full queue refuses (429); writes awaited on the event loop
- `searches`: batches of queries; searches of this process's collections
- `startup`: compiles kernels and opens collections in the background
- `server`: what all server processes share
- `settings`: ``GCWS_*`` variables and flags
- `cli`: the command ``serve``
"""
