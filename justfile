# The whole process: `just setup`, then `just test` while working and `just check` before a commit.
# https://just.systems; each recipe is a line or two that can be typed as well.

python := ".venv/bin/python"

# Install everything that tests, types, docs and benchmarks need.
setup:
    python3 -m venv .venv
    .venv/bin/pip install -q -e '.[test,docs,learn,page]'

# The quick tests: no browser, no cluster, nothing slow.
test *args:
    {{python}} -m pytest -m 'not slow and not cluster and not browser' {{args}}

# Style, types, and warnings about length and wording.
lint:
    .venv/bin/ruff check .
    .venv/bin/ruff format --check .
    .venv/bin/biome ci
    .venv/bin/deno check --config service/page/deno.json service/page/static/*.js
    .venv/bin/deno test --no-check tests/page/unit
    .venv/bin/mypy
    {{python}} -m tests.lint

# All that must be green.
check:
    .ci/run

# One benchmark by its module, such as `just bench benchmarks.rivals --data DIR`.
bench module *args:
    {{python}} -m {{module}} {{args}}
