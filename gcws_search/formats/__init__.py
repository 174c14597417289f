"""Arrays, sparse matrices, frames, dicts and files become items.

- `readers`: any of these, by the module that reads it

Of programs:

- `vectors`: arrays, sparse matrices, dicts
- `payloads`: dicts and columns as JSON; conditions on them
- `items`: ids, vectors and payloads together
- `frames`: pandas, polars and Arrow; what their columns mean and hold
- `bodies`: bodies of a load: Arrow or `.npy`

Of files:

- `encodings`: text that is not UTF-8
- `files`: compressed or not, on the disk or standard input
- `sources`: a file as items, a batch at a time
- `cells`: which columns of text are numbers
- `tables`: what all tables share: words for people, missing numbers
- `arrays`: `.npy`, `.npz` and svmlight
- `lines`: lines of JSON
- `delimited`: CSV and its like
- `arrow_files`: Parquet and Arrow
- `folders`: a folder of tables as one table
"""
