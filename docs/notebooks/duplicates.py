# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Duplicates
#
# `pairs` finds all pairs of items above a score in one join, instead of one query per item. Tests run the example. The page is also a notebook, [`docs/notebooks/duplicates.py`](notebooks/duplicates.py), for [jupytext](https://jupytext.readthedocs.io).
#
# ## Near-copies of texts
#
# A [text](../texts.md) is the set of its word triples. The GMM of two sets is their Jaccard similarity.

# %%
import gcws_search
texts = {
    "a": "the quick brown fox jumps over the lazy dog near the river bank",
    "b": "the quick brown fox jumps over the lazy cat near the river bank",
    "c": "stocks fell on monday as investors waited for news of the bank",
    "d": "the quick brown fox jumps over the lazy dog near the river bank today",
}
articles = gcws_search.Collection.open(":memory:", text={"ngrams": [3, 3]})
articles.add(texts=texts.values(), ids=[*texts])

# %%
for pair in articles.pairs(min_score=0.5):
    print(pair.a, pair.b, round(pair.score, 2))

# %% [markdown]
# `recall=1` finds every pair; the default, 0.9, is faster on many items.
#
# ## One of each group
#
# `groups` joins items by their pairs. A group names the item to keep, and all members with exact scores to it:

# %%
for group in articles.groups(min_score=0.55, recall=1):
    print(
        group.representative,
        [(id, round(score, 2)) for id, score in group.members],
        round(group.weakest, 2),
    )

# %% [markdown]
# With `components` a group is everything connected by a chain of pairs: `b` is here because it is similar to `a`, but it scores only 0.53 with `d`. With `leaders` every member scores at least `min_score` with the item that is kept. `keep="longest"` keeps the longest text of each group, and `keep="stars"` the item whose payload has the greatest `stars`.

# %%
[group] = articles.groups(min_score=0.8, recall=1, mode="leaders", keep="longest")
group.representative, articles.delete([id for id, _ in group.members[1:]])

# %%
articles.close()

# %% [markdown]
# From the command line, with a server:
#
# ```console
# $ gcws-search groups articles --min-score 0.8 -o groups.parquet
# $ gcws-search groups articles --min-score 0.8 --keep longest --delete-others --dry-run
# ```
#
# ## A corpus in files
#
# `gcws-search dedupe` needs no server, and holds no vectors in memory. It reads everything that [`load`](../command-line.md#load) reads, also from [object storage](../object-storage.md#duplicates):
#
# ```console
# $ gcws-search dedupe corpus/ --text body --ngrams 3 --min-score 0.8 -o unique
# ```
#
# `unique/` then has:
#
# | file | a row for | columns |
# | --- | --- | --- |
# | `groups.parquet` | each row of a group of two or more | id, file, row, group, representative, score to it |
# | `kept.parquet`, `removed.parquet` | each row that is kept, or removed | id, file, row |
# | `report.json` | the search | counts of rows kept, removed and skipped; recall |
# | `rejected.ndjson`, with `--on-error skip` | each row that cannot be stored | file, row, detail |
#
# A row is the number of a row in its file, or in a folder that is read as one table (because its subfolders' names are columns, or with `--missing mean`). Groups are by components; `--keep longest` keeps the longest row of each. Rows without ids are numbered through all files. Naming a file twice is an error.
#
# 1. Rows are written to files of `unique/`, checked and transformed as in a collection.
# 2. Each row gets several keys, each made of some samples; rows with an equal key are candidates. [The collision law](../algorithms.md#hash) gives the number of keys and samples, from `--min-score`, `--recall`, and the similarity of random rows in a sample.
# 3. Candidates that are not connected yet are scored exactly. No pair below `--min-score` connects two rows.
# 4. For 256 rows, scans find all partners; the report gives the share of these pairs that is in one group, with its 95 % interval.
#
# A key shared by more than 256 rows of several groups, such as that of a common header, would make too many pairs. Each row is compared with at most 256 of them, and the report names the longest.
#
# After an interruption, or after a full disk has room again, run the same command to resume: everything read, hashed and compared is on disk. If a file changes while all are read, the command fails and keeps nothing. `--memory 2G` limits the tables of keys; about 40 bytes a row come on top. The folder needs room for the rows, 8 bytes for each non-zero coordinate and 8 bytes a key.
#
# One process per processor reads files of 32 MiB and more. With `--ray HOST:PORT`, or `--ray auto` on a machine of the cluster, tasks of a [Ray](https://docs.ray.io) cluster read, hash, compare and score, one for each of its processors. Its nodes must have the same version, with `pip install 'gcws-search[cluster]'`, and see `unique/` under the same path on a shared disk, and the files there or in object storage. Ray runs the tasks of a lost node again. The result does not depend on the number of processes or nodes.
#
# In Python: `gcws_search.dedupe("corpus/", "unique", min_score=0.8, choices=Choices(text="body"), text={"ngrams": [3, 3]})`, with `Choices` from `gcws_search.formats.sources`.
#
# ## Before an item is stored
#
# The mode `unless_similar` skips an item that is similar to a stored one, or to an earlier one of the same call. Check and write are one step: if several clients send copies at once, one is stored.

# %%
known = gcws_search.Collection.open(":memory:", text={"ngrams": [3, 3]})
added = known.add(texts=texts.values(), ids=[*texts], mode="unless_similar", min_score=0.8)
added

# %%
added.similar[0].id, added.similar[0].to, round(added.similar[0].score, 2)

# %%
known.close()

# %% [markdown]
# `join` finds the stored items similar to new ones without storing them: `known.join(vectors, min_score=0.8)`, or `gcws-search join new.jsonl --with articles --min-score 0.8 -o hits.parquet`.
#
# For files, use `gcws-search load new.jsonl --into articles --mode unless_similar --min-score 0.8`.
