"""One SQLite file a collection. Knows bytes and no vectors.

- `store`: rows written and read, one transaction a write
- `connection`: files opened, transactions, the fsync of a commit, errors of the storage
- `opened_files`: whether open files are still those that were opened
- `schema`: tables of a file, its format version, the statements; rows as columns of bytes, and
  their checksums
- `graph_parts`: links of the graph in the file
- `data_directory`: the folder of all files, its one owner, and the names that operations hold
- `snapshots`: copies of files
- `salvage`: what can be read of a damaged file
"""
