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
# A text is the set of its word triples. The GMM of two sets is their Jaccard similarity.

# %%
import gcws_search, zlib
texts = {
    "a": "the quick brown fox jumps over the lazy dog near the river bank",
    "b": "the quick brown fox jumps over the lazy cat near the river bank",
    "c": "stocks fell on monday as investors waited for news of the bank",
    "d": "the quick brown fox jumps over the lazy dog near the river bank today",
}
def triples(text):
    words = text.split()
    return {zlib.crc32(" ".join(words[i : i + 3]).encode()) >> 1: 1 for i in range(len(words) - 2)}
articles = gcws_search.Collection.open(":memory:", dim=None)
articles.add([triples(text) for text in texts.values()], ids=[*texts])

# %%
for pair in articles.pairs(min_score=0.5):
    print(pair.a, pair.b, round(pair.score, 2))

# %% [markdown]
# `recall=1` finds every pair; 0.9, the default, is quicker on many items.
#
# ## One of each group
#
# Pairs are the edges of a graph. Its connected parts are the groups of duplicates; the first of each stays:

# %%
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
ids = [item.id for item in articles]
place = {item_id: row for row, item_id in enumerate(ids)}
found = articles.pairs(min_score=0.8, recall=1)
edges = [place[pair.a] for pair in found], [place[pair.b] for pair in found]
graph = coo_matrix(([1] * len(found), edges), (len(ids), len(ids)))
_, group = connected_components(graph, directed=False)
seen = set()
surplus = [i for i, g in zip(ids, group) if g in seen or seen.add(g)]
surplus, articles.delete(surplus)

# %%
articles.close()

# %% [markdown]
# ## Before an item is stored

# %%
with gcws_search.Collection.open(":memory:", dim=None) as known:
    for name, text in texts.items():
        vector = triples(text)
        if not len(known) or not known.query(vector, limit=1, min_score=0.8):
            known.add([vector], ids=[name])
    [item.id for item in known]
