"""Collections for programs: on a server, in a file, or in memory, behind one interface.

- `connection`: a server: how requests are sent, and what is asked besides one collection
- `collection`: what a program calls, to wait for or to await
- `operations`: what every collection can do, as generators of effects
- `remote`: the operations on a server; `embedded` has those of this process
- `retries`: requests sent again
- `results`: answers, printed in one line each
- `export`: a whole collection as a file
- `errors`: errors of a server, and of the way to it
"""
