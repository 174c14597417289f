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
# A collection of texts takes texts as they are, and compares them by their words, or by sequences of words or characters: the score is what two texts share of these, over all that they have. Tests run the examples. The page is also a notebook, [`docs/notebooks/texts.py`](notebooks/texts.py), which [jupytext](https://jupytext.readthedocs.io) opens.
#
# ## A collection of texts

# %%
import gcws_search
texts = {
    "copy": "copy a file and its permissions to another place",
    "move": "move a file or folder to another place",
    "list": "list the names of all files in a folder",
}
notes = gcws_search.Collection.open(":memory:", text={"tokens": "words"})
notes.add(texts=texts.values(), ids=[*texts], payloads={"length": [*map(len, texts.values())]})

# %%
for hit in notes.query(text="Place another file THERE.", limit=2):
    print(hit)

# %%
[each.name for each in notes.explain("copy", "list").coordinates if each.min]

# %%
notes.close()

# %% [markdown]
# A word that only the query has (`there`) shares nothing, and counts in the total. `explain` names coordinates by their words, and takes a text as `{"text": "…"}`.
#
# From the command line, with a server:
#
# ```console
# $ gcws-search load packages.csv --into packages --id name --text description
# $ gcws-search query packages --text "a library for reading images"
# $ gcws-search groups packages --min-score 0.8 -o groups.parquet
# ```
#
# | `text={…}` | Default | Meaning |
# | --- | --- | --- |
# | `tokens` | `"words"` | `"words"`: runs of letters, digits and underscores, of any script. `"characters"`: code points; runs of white space become one space |
# | `ngrams` | `[1, 1]` | Least and greatest number of tokens in a row that make a coordinate, at most 16. `[1, 3]`: words, pairs and triples |
# | `weights` | `"set"` | `"set"`: each n-gram weighs 1. `"counts"`: as often as the text has it. `"idf"`: [tf-idf](#weights-of-words) |
# | `lowercase` | `true` | Whether texts are lowercased first |
# | `stop_words` | `[]` | Words that are left out before n-grams are made, in lower case where texts are |
#
# - `[3, 3]` finds near-copies ([duplicates](../duplicates.md)). `"characters"` with `[3, 5]` forgives misspelt words, and suits scripts that do not part words.
# - The text is kept in the payload under the key `text`, so that filters, `find` and exports see it. Items and hits show it beside the payload.
# - A text without a token is refused, as is a vector.
#
# ## Coordinates of tokens
#
# An n-gram has the coordinate that `HashingVectorizer(n_features=2**31 - 1, alternate_sign=False, norm=None)` of scikit-learn gives it: |h| mod 2^31 − 1, where h is the 32-bit MurmurHash3 of its UTF-8 bytes with seed 0 ([MURMUR3](../algorithms.md#references)). Words of an n-gram are joined by one space. Rows are equal to the last digit with `token_pattern=r"(?u)\b\w+\b"`, and those of characters with `analyzer="char"`. This hash does not change, and no dictionary grows.
#
# Two n-grams share a coordinate with probability 2^-31. Among n different n-grams n² / 2^32 pairs are expected to: one among 65,536, and 233 among a million. A pair that shares a coordinate counts as one n-gram. This changes a score only where two texts that are compared have both n-grams, or one each.
#
# ## Weights of words
#
# tf-idf lets rare words count more. With `"weights": "idf"` an n-gram weighs as often as the text has it, times ln((1 + n) / (1 + df)) + 1: of n items df have it. `fit` learns that from the items there are, and again when it is called again ([weights](../api.md#weights-of-coordinates)). `gcws-search load` does so at the end of its first load.

# %%
texts |= {"sort": "return a list with its elements in ascending order"}
notes = gcws_search.Collection.open(":memory:", text={"weights": "idf", "stop_words": ["a", "the"]})
notes.add(texts=texts.values(), ids=[*texts])

# %%
notes.fit()["coordinates"]

# %%
notes.query(text="place a copy of the file", limit=2)

# %%
why = notes.explain("copy", "move")
[(each.name, round(each.min, 2)) for each in why.coordinates[:3]]

# %%
notes.close()

# %% [markdown]
# - Weights and scores are those of scikit-learn's `TfidfTransformer(norm=None)`.
# - Rows need no normalization here: a long text has more total weight, so it scores lower against a short one. `transform={"normalize": "l2"}` makes length matter less ([how to choose](../transforms.md)).
# - Other weights of words come from a vectorizer of scikit-learn, whose sparse matrix is [added as it is](../arrays.md).
# - For near-copies of texts, compare sets of word sequences instead ([duplicates](../duplicates.md)).
