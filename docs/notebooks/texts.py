# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Texts
#
# Texts are compared by their words: GMM of word weights is the shared weight over the total weight. Tests run the examples. The page is also a notebook, [`docs/notebooks/texts.py`](notebooks/texts.py), which [jupytext](https://jupytext.readthedocs.io) opens.
#
# ## Words as they are
#
# The coordinates of an open space (`dim=None`) have names, so a text is a dict of words:

# %%
import gcws_search
from collections import Counter
texts = {
    "copy": "copy a file and its permissions to another place",
    "move": "move a file or folder to another place",
    "list": "list the names of all files in a folder",
}
notes = gcws_search.Collection.open(":memory:", dim=None)
notes.add([Counter(text.split()) for text in texts.values()], ids=[*texts])

# %%
notes.query(Counter("place another file there".split()), limit=2)

# %%
[each.name for each in notes.explain("copy", "list").coordinates if each.min]

# %%
notes.close()

# %% [markdown]
# A word that only the query has (`there`) shares nothing, and its weight counts in the total.
#
# ## Weights of words
#
# tf-idf lets rare words count more. A vectorizer of scikit-learn makes a sparse matrix, which is added as it is:

# %%
from sklearn.feature_extraction.text import TfidfVectorizer
texts |= {"sort": "return a list with its elements in ascending order"}
words = TfidfVectorizer(stop_words="english")
weights = words.fit_transform(texts.values())
notes = gcws_search.Collection.open(":memory:", dim=weights.shape[1])
notes.add(weights, ids=[*texts], payloads={"text": [*texts.values()]})

# %%
[hit.id for hit in notes.query(words.transform(["place a copy of the file"]), limit=2)]

# %%
why = notes.explain("copy", "move")
sorted(words.get_feature_names_out()[each.coordinate] for each in why.coordinates[:2])

# %%
notes.close()

# %% [markdown]
# - The vectorizer's vocabulary is fixed when it is fitted. New words of a query are left out.
# - tf-idf rows need no normalization here: a long text has more total weight, so it scores lower against a short one. `transform={"normalize": "l2"}` makes length matter less ([how to choose](../transforms.md)).
# - For near-copies of texts, compare sets of word sequences instead ([duplicates](../duplicates.md)).
