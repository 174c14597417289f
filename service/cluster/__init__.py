"""Many machines, the same API: a database orders every write, shards follow it, routers ask shards.

What both ends share:

- `contract`: rows, positions, changes and replicas, as they say them to each other
- `messages`: filters, changes and errors, as messages say them
- `search`: the question, a shard's answer, and the hits of all as one ranking
- `operations`: all else that routers ask, each shard's answer, and the answers of all as one
- `errors`: what goes wrong between them
- `epochs`: which primary of the database is the last, as each process remembers it

A router has the collections as routes call them:

- `catalog`: all collections, their snapshots, and a router made of its settings
- `collection`: one collection: writes to the database, reads from shards
- `pairs`: near-duplicate pairs within shards and across them
- `shards`: which replica of a shard is asked, and what if it is late
- `replicas`: replicas behind HTTP, as the database lists them

A shard has a part of each collection's items, in memory and in a file that is a cache:

- `follower`: applies what has changed in the database to one collection
- `host`: all collections of one shard, and answers about them
- `server`: a replica behind its port

And those who run them:

- `command`: ``gcws-search shard`` and ``gcws-search cluster``
- `rollout`: replicas of all shards, one elsewhere, another number of them; a line a replica
- `placing`: replicas as actors of Ray
- `manifests`: `kubernetes.yml` and `kuberay.yml` with other numbers

`database` is all that speaks SQL.
"""
