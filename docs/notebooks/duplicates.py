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
