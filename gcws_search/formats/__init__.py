"""Arrays, sparse matrices, frames, dicts and files become items.

Of programs:

- `vectors`: arrays, sparse matrices, dicts
- `payloads`: dicts and columns as JSON; conditions on them
- `items`: ids, vectors and payloads together; bodies of a load
- `frames`: pandas, polars and Arrow; what their columns mean and hold

Of files:

- `files`: compressed or not, on the disk or standard input; the table of formats
- `encodings`: text that is not UTF-8
- `sources`: a file as items, a batch at a time; missing numbers
- `tables`: what all tables share: kinds of columns, words for people, rows that cannot be read
- `arrays`: `.npy`, `.npz` and svmlight
- `lines`: lines of JSON
- `delimited`: CSV and its like
- `arrow_files`: Parquet and Arrow
"""
