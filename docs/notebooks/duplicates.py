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
# `pairs` finds all pairs of items above a score in one join, not by a query for each item. Tests run the example. The page is also a notebook, [`docs/notebooks/duplicates.py`](notebooks/duplicates.py), which [jupytext](https://jupytext.readthedocs.io) opens.
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
# `recall=1` finds every pair; 0.9, the default, is quicker on many items.
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
# By `components` whatever a chain of pairs joins is one group: `b` is here for its likeness to `a`, and is 0.53 like `d`. By `leaders` every member is at least `min_score` like the one that is kept. `keep="longest"` takes the longest text of each, and `keep="stars"` the one whose payload has the greatest `stars`.

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
# `gcws-search dedupe` needs no server, and memory holds no vectors. It reads whatever [`load`](../command-line.md#load) reads, from [object storage](../object-storage.md#duplicates) too:
#
# ```console
# $ gcws-search dedupe corpus/ --text body --ngrams 3 --min-score 0.8 -o unique
# ```
#
# `unique/` then has
#
# | file | a row for | columns |
# | --- | --- | --- |
# | `groups.parquet` | each row of a group of two or more | id, file, row, group, representative, score to it |
# | `kept.parquet`, `removed.parquet` | each row that is kept, or not | id, file, row |
# | `report.json` | the search | counts of rows kept, removed and left out; recall |
# | `rejected.ndjson`, with `--on-error skip` | each row that cannot be stored | file, row, detail |
#
# A row is the number of a row in its file, or in a folder that is read as one table: one whose folders' names are columns, or with `--missing mean`. Groups are by components; `--keep longest` keeps the longest row of each. Rows without ids are numbered through all files. A file that is given twice is refused.
#
# 1. Rows are written to files of `unique/`, checked and transformed as in a collection.
# 2. Rows with equal keys are candidates: a key is of some samples of a row, and there are some keys a row. How many is derived from `--min-score` and `--recall` by [the collision law](../algorithms.md), and from how alike rows of a sample are by chance.
# 3. Candidates that are not connected yet are scored exactly. No pair joins two rows that scores less than `--min-score`.
# 4. All partners of 256 rows are looked for by scans; the report says which share of these pairs is in one group, with the interval of 95 %.
#
# A key that more than 256 rows of several groups have, such as that of a common header, would make too many pairs: each row is compared with 256 of them at most, and the report names the longest.
#
# Interrupted, or once a full disk has more room, the same command goes on where it was: what has been read, hashed and compared is on the disk. A file that changes while all are read is an error, and nothing is kept. `--memory 2G` is for tables of keys; about 40 bytes a row come on top. The folder needs room for the rows, 8 bytes for each coordinate that is not zero, and for 8 bytes a key.
#
# As many processes as there are processors read files of 32 MiB and more. With `--ray HOST:PORT`, or `--ray auto` on a machine of the cluster, the tasks of a [Ray](https://docs.ray.io) cluster read, hash, compare and score, one for each of its processors. Its nodes see the files and `unique/` under the same paths, on a shared disk or in object storage for the files, and have the same version, with `pip install 'gcws-search[cluster]'`. Ray runs the tasks of a lost node again. The result is the same, wherever and with how much at once the work is done.
#
# In Python, `gcws_search.dedupe("corpus/", "unique", min_score=0.8, choices=Choices(text="body"), text={"ngrams": [3, 3]})`, with `Choices` of `gcws_search.formats.sources`.
#
# ## Before an item is stored
#
# With the mode `unless_similar` an item that is like one that is stored, or like one before it, is not stored. The question and the write are one step: of copies that several clients send at once one is stored.

# %%
known = gcws_search.Collection.open(":memory:", text={"ngrams": [3, 3]})
added = known.add(texts=texts.values(), ids=[*texts], mode="unless_similar", min_score=0.8)
added

# %%
added.similar[0].id, added.similar[0].to, round(added.similar[0].score, 2)

# %%
known.close()

# %% [markdown]
# `join` finds what is like new items without storing them: `known.join(vectors, min_score=0.8)`, or `gcws-search join new.jsonl --with articles --min-score 0.8 -o hits.parquet`.
#
# `gcws-search load new.jsonl --into articles --mode unless_similar --min-score 0.8` does it with files.
