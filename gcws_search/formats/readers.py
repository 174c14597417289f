"""The reader of each file format."""

from __future__ import annotations

from gcws_search.formats.files import BadFile, Folder, InputFile
from gcws_search.formats.sources import Choices, Source, naming


def source_of(file: InputFile | Folder, choices: Choices) -> Source:
    """Return a file as items; its first rows have been read.

    A reader is imported when it is needed: those of tables load pyarrow.

    Raises
    ------
    BadFile, GcwsError
    """
    with naming(file):
        if not isinstance(file, InputFile):
            from gcws_search.formats.folders import read_folder  # noqa: PLC0415

            return read_folder(file, choices)
        if file.format == "feather 1":
            raise BadFile(f"{file.name}: expected Feather version 2 (Arrow), got version 1")
        if file.format == "ndjson":
            from gcws_search.formats.lines import read_lines  # noqa: PLC0415

            return read_lines(file, choices)
        if file.format in ("npy", "npz"):
            from gcws_search.formats.arrays import read_arrays  # noqa: PLC0415

            return read_arrays(file, choices)
        if file.format == "svmlight":
            from gcws_search.formats.arrays import read_svmlight  # noqa: PLC0415

            return read_svmlight(file, choices)
        if file.format in ("csv", "tsv"):
            from gcws_search.formats.delimited import read_csv  # noqa: PLC0415

            return read_csv(file, choices)
        from gcws_search.formats.arrow_files import read_arrow  # noqa: PLC0415

        return read_arrow(file, choices)
