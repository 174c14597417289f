"""One SQLite file per collection. Knows bytes, but no vectors.

- `store`: reads and writes rows, one transaction per write
- `connection`: opening of files, transactions, the fsync of a commit, storage errors
- `opened_files`: whether open files are still the ones that were opened
- `lost_log`: commits in a log that SQLite cannot read
- `schema`: tables of a file, its format version, SQL statements; rows as columns of bytes with
  their checksums
- `graph_parts`: links of the graph in the file
- `data_directory`: the folder of all files, its single owner, and reserved names
- `snapshots`: copies of files
- `salvage`: reads the intact parts of a damaged file
"""
