"""What people have becomes items: arrays, sparse matrices, frames, dicts and files.

- `items`: ids, vectors and payloads together
- `vectors`: arrays, sparse matrices, dicts
- `payloads`: dicts and columns as JSON; conditions on them
- `frames`: pandas, polars and Arrow
- `sources`: a file as items, a batch at a time
- `files`: compressed or not, on the disk or standard input
- `folders`: a folder of tables as one table
- `tables`: what all tables share: words for people, missing numbers
- `delimited`: CSV and its like
- `cells`: which columns of text are numbers
- `encodings`: text that is not UTF-8
- `objects`: lines of JSON objects
- `arrow_files`: Parquet and Arrow
- `columns`: columns of Arrow as ids and fields of payloads
- `svmlight`: svmlight files
- `bodies`: bodies of a load: Arrow or `.npy`
"""
