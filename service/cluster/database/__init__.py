"""All that speaks SQL of a cluster: one database orders every write.

- `connections`: a bounded number of connections, and the database's errors as ours
- `primary`: which of several servers is the last primary
- `schema`: the tables, and what they say of their cluster
- `collections`: collections by number and name, and what each keeps besides items
- `rows`: items by id, by key, in order
- `names`: names of coordinates
- `replicas`: what replicas of shards read, and what they say of themselves
- `database`: all of these as one object
- `writes`: puts and deletes, and what several come to
- `transactions`: several writes as one transaction, and whether it was stored
- `committer`: group commit of one collection
"""
