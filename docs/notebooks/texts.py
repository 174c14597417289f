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
# A collection of texts stores texts and compares them by words, or by sequences of words or characters. The score is the share of these that two texts have in common. Tests run the examples. The page is also a notebook, [`docs/notebooks/texts.py`](notebooks/texts.py), for [jupytext](https://jupytext.readthedocs.io).
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
# A word that only the query has (`there`) matches nothing, but counts in the total. `explain` names coordinates by their words, and takes a text as `{"text": "…"}`.
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
# | `ngrams` | `[1, 1]` | Minimum and maximum number of consecutive tokens per coordinate, at most 16. `[1, 3]`: words, pairs and triples |
# | `weights` | `"set"` | `"set"`: each n-gram weighs 1. `"counts"`: the number of times it occurs. `"idf"`: [tf-idf](#weights-of-words) |
# | `lowercase` | `true` | Lowercase texts first |
# | `stop_words` | `[]` | Words removed before n-grams are made; in lower case if `lowercase` is true |
#
# - `[3, 3]` finds near-copies ([duplicates](../duplicates.md)). `"characters"` with `[3, 5]` tolerates misspelt words, and suits scripts that do not separate words.
# - The text is kept in the payload under the key `text`, where filters, `find` and exports see it. Items and hits show it beside the payload.
# - A text without tokens is refused, and so is a vector.
#
# ## Coordinates of tokens
#
# An n-gram has the same coordinate as in scikit-learn's `HashingVectorizer(n_features=2**31 - 1, alternate_sign=False, norm=None)`: |h| mod 2^31 − 1, where h is the 32-bit MurmurHash3 of its UTF-8 bytes with seed 0 ([MURMUR3](../algorithms.md#references)). Words of an n-gram are joined by one space. Rows are identical with `token_pattern=r"(?u)\b\w+\b"`, and those of characters with `analyzer="char"`. This hash never changes, and there is no dictionary to grow.
#
# Two n-grams share a coordinate with probability 2^-31. Among n different n-grams n² / 2^32 such pairs are expected: one among 65,536 n-grams, and 233 among a million. The two then count as one n-gram. This changes a score only if the two compared texts have both n-grams, or one each.
#
# ## Weights of words
#
# tf-idf gives rare words more weight. With `"weights": "idf"` an n-gram weighs its count in the text times ln((1 + n) / (1 + df)) + 1, where df of n items have it. `fit` learns this from the present items each time it is called ([weights](../api.md#weights-of-coordinates)). `gcws-search load` calls it at the end of its first load.

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
# - Weights and scores equal those of scikit-learn's `TfidfTransformer(norm=None)`.
# - Rows need no normalization here: a long text has more total weight, so it scores lower against a short one. `transform={"normalize": "l2"}` makes length matter less ([how to choose](../transforms.md)).
# - For other weights, use a vectorizer of scikit-learn and [add its sparse matrix](../arrays.md#a-sparse-matrix).
# - For near-copies of texts, compare sets of word sequences instead ([duplicates](../duplicates.md)).
