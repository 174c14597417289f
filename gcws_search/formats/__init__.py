"""Converts arrays, sparse matrices, frames, dicts and files to items.

Data of programs:

- `vectors`: arrays, sparse matrices, dicts
- `payloads`: dicts and columns as JSON; conditions on them
- `items`: ids, vectors and payloads together; bodies of a load
- `tables`: named columns of pandas, polars, Arrow and files: their roles and values

Files:

- `stores`: objects of a store by their address, through pyarrow
- `files`: compressed files, text in any encoding, standard input; the table of formats
- `sources`: a file as items in batches; missing numbers
- `arrays`: `.npy` and `.npz`
- `lines`: lines of JSON
- `delimited`: CSV and similar text
- `arrow_files`: Parquet and Arrow
- `workbooks`: sheets of `.xlsx` and similar files
- `records`: records of a file as items; lines with their numbers
- `svmlight`: lines of a label and coordinates
- `biom`: tables of samples and observations
- `abundances`: tables whose columns are items
- `smiles`: lines of a molecule or a reaction
- `fingerprints`: FPS and FPC of chemfp
- `signatures`: signatures of sourmash
- `peaks`: spectra of MGF and MSP
"""
