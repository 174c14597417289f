"""All that speaks SQL of a cluster: one database orders every write.

- `connections`: a bounded number of connections with the last primary, and its errors as ours
- `schema`: the tables, and what they say of their cluster
- `database`: collections, items, names of coordinates, and the list of replicas
- `committer`: group commit of one collection, and whether it was stored
"""
