"""Made inputs in numbers: ``python -m tests.fuzz --requests 200 --inputs 5000 --values 20000``.

``--only-values`` leaves out all else. With ``TMPDIR`` in memory that takes a third of the time.
"""

import argparse
import json
import logging
import tempfile
import time
from functools import partial
from pathlib import Path

from gcws_search.service.app import create_app
from gcws_search.service.settings import Settings
from tests.support.documents import page_types
from tests.support.long_runs import clock, seeded, tell
from tests.support.paths import REPOSITORY


def write_page() -> None:
    """Write the page that the service shows to ``openapi.json``, and its answers as types."""
    page = create_app(Settings()).openapi()
    file = REPOSITORY / "openapi.json"
    file.write_text(json.dumps(page, indent=1, ensure_ascii=False) + "\n")
    page_types.FILE.write_text(page_types.page_types(page))


def run_values(folder: Path, options: argparse.Namespace) -> None:
    """Try files whose saved values or bytes are other ones."""
    from tests.fuzz import values  # noqa: PLC0415
    from tests.fuzz.trying import tried  # noqa: PLC0415

    sound = values.Sound.made(folder / "values")
    with values.Bench.opened(sound, folder / "bench") as bench:
        found = tried(values.TRIALS, bench.try_values, examples=options.values, number=options.seed)
    tell(f"{found} files with other values or bytes")


def run(folder: Path, options: argparse.Namespace) -> None:
    # Read only now: the file may just have been written.
    from tests.fuzz import inputs  # noqa: PLC0415
    from tests.fuzz.operations import MODES, operations, try_operation  # noqa: PLC0415
    from tests.fuzz.trying import tried  # noqa: PLC0415
    from tests.support.service.client import started  # noqa: PLC0415

    client = started(folder / "data")
    client.wait_until_ready()
    count = 0
    for method, path in operations():
        for mode in MODES:
            count += try_operation(
                client, method, path, mode, examples=options.requests, number=options.seed
            )
        tell(f"{count} requests, after {method} {path}")
    inputs.prepare(client)
    for what, (made, attempt) in inputs.TRIALS.items():
        found = tried(made, partial(attempt, client), examples=options.inputs, number=options.seed)
        tell(f"{found} {what}")
    client.stop()


def main() -> None:
    parser = seeded("Try made inputs on a service.")
    parser.add_argument("--requests", type=int, default=200, help="of each operation and kind")
    parser.add_argument("--inputs", type=int, default=5000)
    parser.add_argument("--values", type=int, default=5000, help="files with other values or bytes")
    parser.add_argument("--only-values", action="store_true")
    parser.add_argument("--write-page", action="store_true", help="write openapi.json, no more")
    options = parser.parse_args()
    if options.write_page:
        write_page()
        return
    tell(f"seed {options.seed}")
    logging.disable(logging.ERROR)  # what is thrown away is told of, file after file
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        if not options.only_values:
            run(Path(name), options)
        run_values(Path(name), options)
    tell(f"no 500, nothing wrong ({clock(began)})")


if __name__ == "__main__":
    main()
