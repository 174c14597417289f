"""The other commands: searching, listing, exporting, the demo; help, and what a terminal sees."""

import hashlib
import io
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from hypothesis.extra import numpy as hn
from typer.testing import CliRunner

import gcws_search
from gcws_search.commands import demo
from gcws_search.commands.app import COMMANDS, app
from gcws_search.commands.options import failures
from tests.commands.conftest import Call, lines
from tests.support.paths import REPOSITORY
from tests.support.processes import run_python
from tests.support.service.client import Json
from tests.support.service.ports import free_port

READERS = {
    "csv": pyarrow.csv.read_csv,
    "ndjson": pyarrow.json.read_json,
    "parquet": pyarrow.parquet.read_table,
}
COFFEES = {"kenya": [2, -1, 1, -0.5], "brazil": [-1, 1.5, 1, 0], "robusta": [-2, 0, 0, 3]}


@pytest.fixture
def coffees(server: gcws_search.Server, call: Call) -> Iterator[gcws_search.Collection]:
    """Yield a collection of three coffees; remove the snapshots of it, which outlive it."""
    items = server.collection("coffees", dim=4)
    items.add([*COFFEES.values()], ids=[*COFFEES], payloads={"roast": ["light", "medium", "dark"]})
    yield items
    for each in lines(call("snapshot", "list", "coffees", "--json")):
        call("snapshot", "delete", "coffees", each["name"])


def test_groups_are_listed_written_and_thinned_out(
    server: gcws_search.Server, call: Call, tmp_path: Path
) -> None:
    items = server.collection("plants", dim=2)
    rows = [[1, 2], [1, 2], [-3, 1], [-3, 1.1], [9, 0], [1, 2]]
    items.add(rows, ids=list("abcdef"), payloads={"mass": [1, 5, 1, 2, 3, 2]})
    words = ("groups", "plants", "--min-score", "0.8", "--keep", "mass")
    shown = lines(call(*words, "--json"))
    assert [each["representative"] for each in shown] == ["b", "d"]
    assert "'mass'" in call("groups", "plants", "--min-score", "0.8", "--keep", "mas").stderr
    would = lines(call(*words, "--json", "--delete-others", "--dry-run"))
    assert would == [*shown, {"others": 3, "deleted": 0}]
    assert "2 groups of 5 items" in call(*words).stdout
    expected = [(each, 0, "b", 1.0) for each in "baf"] + [("d", 1, "d", 1.0)]
    for kind, read in READERS.items():
        path = tmp_path / f"groups.{kind}"
        done = call(*words, "-o", str(path))
        assert done.exit_code == 0, done.output
        table = read(path)
        assert table.column_names == ["id", "group", "representative", "score"]
        rows = [tuple(row.values()) for row in table.to_pylist()]
        assert rows[:4] == expected
        assert len(rows) == 5
    call(*words, "-o", "groups.txt", code=2)
    assert "3 would be deleted" in call(*words, "--delete-others", "--dry-run").stdout
    call(*words, "--delete-others", code=1, input=b"n\n")
    assert len(items) == 6
    assert "3 deleted" in call(*words, "--delete-others", input=b"y\n").stdout
    assert sorted(item.id for item in items) == ["b", "d", "e"]
    assert "0 groups of 0 items" in call(*words, "--delete-others", "--yes").stdout


def test_who_reads_no_further_hears_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BrokenPipeError), failures():
        raise BrokenPipeError(32, "Broken pipe")
    assert capsys.readouterr().err == ""


def test_items_are_found_by_a_text(coffees: gcws_search.Collection, call: Call) -> None:
    assert coffees.find("r")[0].id == "robusta"
    found = lines(call("find", "coffees", "R", "--json"))
    assert [each["id"] for each in found] == ["kenya", "brazil", "robusta"]
    shown = call("find", "coffees", "LIGHT").stdout
    assert shown.split() == ["id", "payload", "kenya", "roast=light"]
    assert call("find", "coffees", "r", "--limit", "1").stdout.split()[2] == "robusta"
    call("find", "coffees", "", code=1)
    call("find", "coffees", code=2)


def test_search_methods_metadata_and_recall_are_shown_and_changed(
    coffees: gcws_search.Collection, call: Call
) -> None:
    made = ("--attach", "nrff", "--as", "other", "--params", '{"features": 64}')
    shown = lines(call("backends", "coffees", *made, "--json"))
    assert [each["params"]["features"] for each in shown if each["name"] == "other"] == [64]
    assert "other" not in call("backends", "coffees", "--detach", "other").stdout
    call("backends", "coffees", "--detach", "other", code=1)
    call("backends", "coffees", "--as", "other", code=2)
    call("backends", "coffees", "--attach", "nrff", "--params", "[1]", code=2)
    shown = json.loads(call("recall", "coffees", "--json").stdout)
    assert {*shown} == {"audited", "allowance", "waiting"}
    assert call("recall", "coffees").stdout.splitlines() == [
        "No query of coffees has been audited yet.",
        "0 queries wait",
    ]
    call("collections", "coffees", "--metadata", '{"source": "a survey"}')
    assert coffees.describe()["metadata"] == {"source": "a survey"}
    call("collections", "coffees", "--metadata", "null")
    assert not coffees.describe()["metadata"]
    call("collections", "--metadata", "{}", code=2)
    call("collections", "coffees", "--metadata", "[]", code=2)


def test_a_page_of_a_ranking_is_printed(coffees: gcws_search.Collection, call: Call) -> None:
    asked = ("query", "coffees", "--row", "1,1,1,1", "--recall", "1", "--json")
    whole = lines(call(*asked))
    page = lines(call(*asked, "--offset", "1", "--limit", "1"))
    assert page == whole[1:2]


def test_the_best_hits_of_each_group_are_printed(
    coffees: gcws_search.Collection, call: Call
) -> None:
    coffees.add([[2, -1, 1, 0]], ids=["peru"], payloads={"roast": ["light"]})
    asked = ("query", "coffees", "--id", "kenya", "--recall", "1", "--json", "--group-by", "roast")
    found = lines(call(*asked))
    assert sorted(hit["payload"]["roast"] for hit in found) == ["dark", "light", "medium"]
    assert found[0]["id"] == "peru"


def test_hints_on_a_filter_are_printed(
    coffees: gcws_search.Collection, call: Call, tmp_path: Path
) -> None:
    assert len(coffees) == 3
    vectors = tmp_path / "a.npy"
    np.save(vectors, np.array([coffees.get("kenya").vector]))
    for words, printed in (
        (("query", "coffees", "--id", "kenya"), ""),
        (("delete", "coffees"), '{"deleted": 0}\n'),
        (("delete", "coffees", "--dry-run"), '{"items": 0, "deleted": 0}\n'),
        (("payload", "coffees", "--set", "{}"), '{"updated": 0}\n'),
        (("join", str(vectors), "--with", "coffees", "--limit", "1"), ""),
    ):
        done = call(*words, "--where", '{"roast": "drak"}', "--json")
        assert done.stdout == printed
        assert "no item has 'drak' under 'roast'; did you mean 'dark'?" in done.stderr


def test_a_search_whose_time_was_over_says_so(coffees: gcws_search.Collection, call: Call) -> None:
    described = json.dumps(coffees.describe()).encode()
    page = b'{"items": [{"id": "a", "payload": null}], "next_cursor": null, "complete": false}'
    with answering("/v1/collections/coffees", (200, described), (200, page)) as url:
        found = call("find", "coffees", "a", "--url", url)
    assert found.stdout.split() == ["id", "payload", "a"]
    assert "time was over" in found.stderr


def test_pairs_are_listed_and_written(
    server: gcws_search.Server, call: Call, tmp_path: Path
) -> None:
    items = server.collection("plants", dim=2)
    items.add([[1, 2], [1, 2], [-3, 1], [-3, 1.1], [9, 0], [1, 2]], ids=list("abcdef"))
    words = ("pairs", "plants", "--min-score", "0.8", "--recall", "1")
    pairs = items.pairs(min_score=0.8, recall=1)
    expected = [{"a": each.a, "b": each.b, "score": each.score} for each in pairs]
    assert len(expected) == 4
    assert lines(call(*words, "--json")) == expected
    assert call(*words).stdout.splitlines()[-1] == "4 pairs"
    limited = lines(call(*words, "--json", "--limit", "2"))
    assert limited == expected[:2]
    for kind, read in READERS.items():
        path = tmp_path / f"pairs.{kind}"
        call(*words, "-o", str(path))
        assert read(path).to_pylist() == expected
    none = tmp_path / "none.parquet"
    items.delete(list("abcf"))
    call("pairs", "plants", "--min-score", "0.999", "-o", str(none))
    table = pyarrow.parquet.read_table(none)
    assert (table.column_names, len(table)) == (["a", "b", "score"], 0)
    call(*words, "-o", "pairs.txt", code=2)
    assert "min_score" in call("pairs", "plants", "--min-score", "2", code=1).stderr


@pytest.mark.parametrize("score", ["bray_curtis", "containment"])
def test_files_have_scores_of_the_kind_that_is_asked_for(
    server: gcws_search.Server, call: Call, tmp_path: Path, score: str
) -> None:
    items, vectors = server.collection("plants", dim=2), [[1, 2], [1, 2.5], [3, 1], [1, 2]]
    items.add(vectors, ids=list("abcd"))
    np.save(tmp_path / "new.npy", np.array(vectors, np.float32))
    asked: dict[str, Any] = {"min_score": 0.5, "recall": 1, "score": score}
    pairs, groups = items.pairs(**asked), items.groups(**asked)
    hits = items.join(vectors, **asked)
    expected = {
        "pairs": [each.score for each in pairs],
        "groups": [value for group in groups for _, value in group.members],
        "join": hits.scores.tolist(),
    }
    words = {each: [each, "plants"] for each in expected}
    words["join"] = ["join", str(tmp_path / "new.npy"), "--with", "plants"]
    for name, scores in expected.items():
        path = tmp_path / f"{name}.parquet"
        options = ("--min-score", "0.5", "--recall", "1", "--score", score, "-o", str(path))
        call(*words[name], *options)
        assert READERS["parquet"](path)["score"].to_pylist() == scores, name
        assert min(scores) < 1


def test_a_file_is_joined_with_a_collection(
    server: gcws_search.Server, call: Call, tmp_path: Path
) -> None:
    items = server.collection("plants", dim=2)
    items.add([[1, 2], [1, 2], [-3, 1], [9, 0]], ids=list("abcd"))
    file = tmp_path / "new.csv"
    file.write_text("id,x,y\nq,1,2\nr,-3,1.1\ns,0,-7\n")
    words = ("join", str(file), "--with", "plants", "--min-score", "0.8", "--recall", "1")
    found = items.join([[1, 2], [-3, 1.1], [0, -7]], ids=list("qrs"), min_score=0.8, recall=1)
    expected = [*map(dict, found.to_pandas().to_dict("records"))]
    assert [each["to"] for each in expected] == ["a", "b", "c"]
    assert lines(call(*words, "--json")) == expected
    assert call(*words).stdout.splitlines()[-1] == "3 hits of 3 rows"
    best = call("join", str(file), "--with", "plants", "--limit", "1", "--json")
    assert [each["id"] for each in lines(best)] == ["q", "r", "s"]
    path = tmp_path / "hits.parquet"
    call(*words, "-o", str(path))
    assert pyarrow.parquet.read_table(path).to_pylist() == expected
    file.write_text("x,y\n1,2\n,3\n-3,1.1\n")
    hits = lines(call(*words, "--missing", "drop", "--json"))
    assert [(each["row"], each["to"]) for each in hits] == [(0, "a"), (0, "b"), (2, "c")]
    file.write_text("x,y\n1,2\n,3\n0,0\n")
    told = call(*words, "--missing", "drop", code=1).stderr
    assert f"{file}: row 2: vector: expected a vector with a non-zero value" in told
    file.write_text("x,y\n1,2\n0,0\n")
    asked = ("query", "plants", "--file", str(file))
    assert f"{file}: row 1: " in call(*asked, code=1).stderr
    file.write_text("x,y\n1,2\n")
    assert "no item has the key 'n'" in call(*asked, "--where", '{"n": 1}').stderr


def test_a_collection_is_created_once(server: gcws_search.Server, call: Call) -> None:
    words = ("create", "plants", "--dim", "3", "--normalize", "l2", "--power", "0.5")
    assert call(*words).stdout == "plants: dim 3, 0 items\n"
    config = server.collection("plants").config
    assert (config.dim, config.transform.normalize, config.transform.power) == (3, "l2", 0.5)
    server.collection("plants").add([[1, 2, 3]])
    assert json.loads(call(*words, "--json").stdout)["items"] == 1
    assert "normalize" in call("create", "plants", "--dim", "3", code=1).stderr
    assert "open space" in call("create", "words", "--dim", "open").stdout
    assert server.collection("words").config.dim is None
    shown = [line.rpartition("  gcws")[0] for line in call("collections").stdout.splitlines()[1:]]
    assert len({len(line.rstrip()) for line in shown}) == 1  # "open" ends where a number does
    call("create", "mapped", "--dim", "2", "--storage", "mapped")
    assert server.collection("mapped").config.storage == "mapped"
    for wrong in ([], ["--dim", "0"], ["--dim", "many"], ["--dim", "2", "--storage", "disk"]):
        call("create", "other", *wrong, code=2)


def test_items_are_shown_and_counted(coffees: gcws_search.Collection, call: Call) -> None:
    shown = lines(call("get", "coffees", "kenya", "brazil", "--json"))
    assert shown == [
        {"id": "kenya", "payload": {"roast": "light"}, "version": 1},
        {"id": "brazil", "payload": {"roast": "medium"}, "version": 1},
    ]
    [item] = lines(call("get", "coffees", "kenya", "--with-vector", "--json"))
    assert item["vector"] == COFFEES["kenya"]
    for told in ("kenya", "roast=light", "2, -1, 1, -0.5"):
        assert told in call("get", "coffees", "kenya", "--with-vector").stdout
    absent = call("get", "coffees", "kenya", "mocha", code=1)
    assert absent.stdout == ""
    assert "'mocha'" in absent.stderr
    assert call("count", "coffees").stdout == "3\n"
    for where in ({"roast": "light"}, {"roast": ["light", "dark"]}, {"roast": "none"}):
        counted = json.loads(
            call("count", "coffees", "--where", json.dumps(where), "--json").stdout
        )
        assert counted == {"count": coffees.count(where=where)}
    call("count", "coffees", "--where", "roast", code=2)


def test_a_sparse_vector_is_shown_as_pairs(server: gcws_search.Server, call: Call) -> None:
    server.collection("open", dim=None).add([{3: 0.5, 70000: -2}], ids=["a"])
    assert "3:0.5, 70000:-2" in call("get", "open", "a", "--with-vector").stdout


def test_items_are_deleted_by_ids_or_by_a_filter(
    coffees: gcws_search.Collection, call: Call
) -> None:
    light = ("delete", "coffees", "--where", '{"roast": "light"}')
    ids = ("delete", "coffees", "kenya", "kenya", "mocha")
    for words in (light, ids):
        assert call(*words, "--dry-run").stdout == "1 would be deleted\n"
        assert "Delete 1 item from 'coffees'?" in call(*words, code=1, input=b"n\n").stderr
        call(*words, code=1)  # nobody answers
        assert coffees.count() == 3
    assert "1 deleted" in call(*light, input=b"y\n").stdout
    gone = call(*ids, "--yes", "--json")
    assert json.loads(gone.stdout) == {"deleted": 0}
    assert "no item has 2 of these ids" in gone.stderr
    assert call("delete", "coffees", "brazil", "--yes").stdout == "1 deleted\n"
    assert [item.id for item in coffees] == ["robusta"]
    for wrong in ([], ["robusta", "--where", '{"roast": "dark"}']):
        call("delete", "coffees", *wrong, "--yes", code=2)
    for condition in ("{}", '{"must": []}'):
        for option in ("--yes", "--dry-run"):
            refused = call("delete", "coffees", "--where", condition, option, code=1)
            assert "expected at least one condition" in refused.stderr
    assert coffees.count() == 1


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("querry coffees", "'query'"),
        ("snapshot creat coffees", "'create'"),
        ("query coffees --limt 3", "--limit"),
        ("serve --prt 3", "--port"),
        ("cluster statu", "'status'"),
        ("vacum", "'vacuum'"),
    ],
)
def test_what_is_misspelt_gets_a_suggestion(call: Call, line: str, meant: str) -> None:
    done = call(*line.split(), code=2)
    assert meant in done.output
    assert [line[:12] for line in done.output.splitlines()] == ["gcws-search:"]


@pytest.mark.parametrize(
    ("line", "got"),
    [
        ("query", "NAME"),
        ("query coffees --limit x", "--limit: expected a whole number, got 'x'"),
        ("query coffees --limit 1.0", "--limit: expected a whole number, got '1.0'"),
        ("query coffees --limit=1_0", "--limit: expected a whole number, got '1_0'"),
        ("find coffees k --limit 1e1", "--limit: expected a whole number, got '1e1'"),
        ("snapshot create coffees --keep 1.0", "--keep: expected a whole number, got '1.0'"),
        ("snapshot create coffees --keep 0", "--keep: expected a whole number, at least 1, got 0"),
        ("load a.csv --into b --ksize 3_1", "--ksize: expected a whole number, got '3_1'"),
        ("load a.csv --into b --id-start -1", "--id-start: expected a whole number, at least 0"),
        ("load a.csv", "expected --into, got none"),
        ("export coffees", "expected -o, got none; "),
        ("load a.csv --into b --missing some", "'mean', got 'some'"),
        ("query coffees", "--id"),
        ("load - - --into b", "standard input"),
        ("load a.svm --into b --zero-based --one-based", "--one-based"),
        ("serve --port x", "--port: expected an integer, got 'x'"),
        ("serve --port 99999", "less than or equal to 65535, got '99999'"),
        ("shard --shard -1", "--shard: expected a number greater than or equal to 0, got '-1'"),
        ("query coffees b c", "expected no more arguments, got b c"),
        ("snapshot upload coffees a none", "FILE: expected a file, got nothing called 'none'"),
        ("join a.csv --with coffees", "expected --min-score, --limit or both, got neither"),
        ("export coffees -o a.csv", "--output: expected a file called .ndjson, .jsonl or .parq"),
    ],
)
def test_wrong_usage_is_one_sentence_as_other_errors_are(call: Call, line: str, got: str) -> None:
    done = call(*line.split(), code=2)
    assert done.output.startswith("gcws-search: ")
    assert done.output.count("\n") == 1
    assert got in done.output
    assert f"{line.split(maxsplit=1)[0]}" in done.output.split("; ")[-1]
    assert "--help says more" in done.output


def test_a_key_is_not_shown_where_settings_are_wrong(call: Call) -> None:
    done = call("serve", "--port", "x", "--api-key", "sesame", code=2)
    assert "sesame" not in done.output


def test_payloads_are_merged_replaced_and_removed(
    coffees: gcws_search.Collection, call: Call
) -> None:
    words = ("payload", "coffees")
    done = call(*words, "--id", "kenya", "--id", "mars", "--set", '{"price": 9}')
    assert done.stdout == "1 item updated\n"
    assert "no item has 1 of these ids" in done.stderr
    assert coffees.get("kenya").payload == {"roast": "light", "price": 9}
    chosen = ("--where", '{"roast": ["medium", "dark"]}')
    done = call(*words, *chosen, "--set", '{"x": null}', "--replace", "--json")
    assert json.loads(done.stdout) == {"updated": 2}
    assert coffees.get("brazil").payload == {"x": None}
    call(*words, "--id", "brazil", "--set", "null", "--replace")
    assert coffees.get("brazil").payload is None
    for wrong, code in ((["--set", "[1]"], 2), (["--set", "null"], 1), (["--set", "{}"], 2)):
        item = ["--id", "kenya"] if wrong[1] != "{}" else []
        call(*words, *item, *wrong, code=code)
    assert coffees.get("kenya").payload == {"roast": "light", "price": 9}


def test_items_are_changed_and_deleted_on_a_version(
    coffees: gcws_search.Collection, call: Call
) -> None:
    change = ("payload", "coffees", "--id", "kenya", "--set", "{}", "--if-version")
    call(*change, "1")
    assert "got version 2" in call(*change, "1", code=1).output
    delete = ("delete", "coffees", "kenya", "--yes", "--if-version")
    assert "got version 2" in call(*delete, "1", code=1).output
    call(*delete, "2")
    assert "kenya" not in coffees


def test_items_expire_as_create_and_load_say(
    server: gcws_search.Server, call: Call, tmp_path: Path
) -> None:
    call("create", "notes", "--dim", "2", "--ttl", "3600")
    assert server.collection("notes").config.ttl == 3600
    file, copy = tmp_path / "rows.ndjson", tmp_path / "copy.ndjson"
    file.write_text('{"id": "a", "vector": [1, 2]}\n{"id": "b", "vector": [1, 3]}\n')
    until = "2127-01-01T00:00:00.000Z"
    call("load", str(file), "--into", "notes", "--expires", until, "--yes")
    assert {item.expires for item in server.collection("notes")} == {until}
    assert json.loads(call("get", "notes", "a", "--json").stdout)["expires"] == until
    call("export", "notes", "-o", str(copy))
    call("load", str(copy), "--into", "others", "--yes")
    assert server.collection("others").config.ttl == 3600
    assert [*server.collection("others")] == [*server.collection("notes")]
    call("export", "notes", "-o", str(copy.with_suffix(".parquet")))
    call("load", str(copy.with_suffix(".parquet")), "--into", "tables", "--yes")
    assert server.collection("tables").config.ttl == 3600
    assert [*server.collection("tables")] == [*server.collection("notes")]
    call("load", str(file), "--into", "notes", "--expires", "2001-01-01T00:00:00Z", "--yes")
    assert call("count", "notes").stdout.strip() == "0"
    call("load", str(file), "--into", "notes", "--expires", "soon", "--yes", code=1)


@contextmanager
def answering(path: str, *answers: tuple[int, bytes]) -> Iterator[str]:
    """Yield the address of a server that answers so below a path, the last one again and again."""
    left = [*answers]

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the library's name
            status, body = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status if self.path.startswith(path) else 500)
            self.send_header("Retry-After", "1")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *words: Json) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_command_that_waits_says_for_what(call: Call) -> None:
    answers = (503, b'{"detail":"the service loads"}'), (200, b'{"collections":[]}')
    with answering("/v1/collections", *answers) as url:
        done = call("collections", "--url", url.removeprefix("http://"))
    assert "gcws-search: the service loads; asking again for about" in done.stderr


@pytest.mark.usefixtures("coffees")
def test_queries_by_id_and_by_row(call: Call) -> None:
    shown = call("query", "coffees", "--row", "1.5,-1,0,-0.5", "--limit", "1").stdout
    assert shown.split() == ["id", "score", "payload", "kenya", "0.6667", "roast=light"]
    asked = ["--id", "brazil", "--where", '{"roast": "light"}', "--json", "--explain"]
    hit, cost = lines(call("query", "coffees", *asked))
    assert hit["id"] == "kenya"
    assert cost["explain"]["method"] == "scan"
    row = '{"indices": [3], "values": [3]}'
    assert lines(call("query", "coffees", "--row", row, "--json"))[0]["id"] == "robusta"
    for words in (
        [], ["--id", "kenya", "--row", "1,2,3,4"], ["--row", "1,b"], ["--names", "acid:much"],
        ["--id", "kenya", "--where", "roast"],
    ):  # fmt: skip
        call("query", "coffees", *words, code=2)


def test_a_query_by_smiles_has_the_fingerprint_of_the_load(
    server: gcws_search.Server, call: Call, tmp_path: Path
) -> None:
    pytest.importorskip("rdkit")  # which has no wheels for some machines
    path = tmp_path / "a.smi"
    path.write_text("CCO ethanol\nCCN ethylamine\nc1ccccc1 benzene\n")
    for kind in ("morgan:2", "atompair"):
        call("load", str(path), "--into", kind[:5], "--fingerprint", kind)
        words = ["--smiles", "OCC", "--limit", "1", "--json"]
        found = call("query", kind[:5], *words, "--fingerprint", kind)
        [hit] = lines(found)
        assert (hit["id"], hit["score"]) == ("ethanol", 1)
    assert len(server.collection("morga")) == 3
    done = call("query", "morga", "--smiles", "C1C", code=1)
    assert "expected a SMILES that RDKit reads, got 'C1C'" in done.stderr
    for asked in (
        ["query", "morga", "--smiles", "CCO", "--fingerprint", "atompair"],
        ["query", "morga", "--file", str(path), "--fingerprint", "atompair"],
        ["load", str(path), "--into", "morga", "--fingerprint", "atompair"],
        ["load", str(path), "--into", "atomp"],
    ):
        refused = call(*asked, code=1).stderr
        assert "'morgan:2'" in refused
        assert "'atompair'" in refused
    for asked in (["--smiles", "OCC"], ["--file", str(path)]):
        assert "1.0" in call("query", "atomp", *asked, "--limit", "1", "--json").stdout
    call("query", "morga", "--row", "1", "--fingerprint", "atompair", code=2)
    call("query", "morga", "--smiles", "C", "--row", "1", code=2)


DROP = "collections", "--drop", "coffees"


@pytest.mark.usefixtures("coffees")
def test_explain_compare_and_lists(call: Call) -> None:
    why = json.loads(call("explain", "coffees", "kenya", "brazil", "--json").stdout)
    assert why["score"] == pytest.approx(1 / 7)
    assert why["shared"] / why["total"] == pytest.approx(why["score"])
    assert "score 0.142857: 1 shared, of 7" in call("explain", "coffees", "kenya", "brazil").stdout
    cut = call("explain", "coffees", "kenya", "brazil", "--limit", "1").stdout
    assert cut.endswith("3 others: min 0, max 6\n")
    compared = json.loads(call("compare", "coffees", "--sample", "2", "--json").stdout)
    assert compared["backends"][0]["recall"] == 1
    assert "gcws" in call("compare", "coffees", "--sample", "2").stdout
    assert lines(call("collections", "--json"))[0]["items"] == 3
    assert "coffees" in call("collections").stdout
    assert "gcws" in call("collections", "coffees").stdout
    assert json.loads(call("collections", "coffees", "--json").stdout)["dim"] == 4
    assert "Drop 'coffees' with 3 items?" in call(*DROP, code=1, input=b"n\n").stderr
    assert "--yes" in call(*DROP, code=1).stderr  # nobody answers
    call(*DROP, "--yes")
    gone = call("query", "coffees", "--id", "kenya", code=1)
    assert gone.stderr == "gcws-search: no collection is named 'coffees'\n"


def test_names_are_shown_set_and_asked_for(
    server: gcws_search.Server, call: Call, tmp_path: Path
) -> None:
    server.collection("coffees", dim=3).add([[2, 0, 1], [0, 3, 0]])
    text = "acid\r\nbo\x0bdy\r\nsweet\r\n"
    (tmp_path / "names.txt").write_bytes(text.encode("utf-16"))
    assert call("names", "coffees", "--set", str(tmp_path / "names.txt")).stdout == (
        "coffees: 3 names\n"
    )
    shown = lines(call("names", "coffees", "--prefix", "b", "--json"))
    assert shown == [{"index": 1, "name": "bo\x0bdy"}]
    assert call("names", "coffees", "--limit", "1").stdout.split() == ["index", "name", "0", "acid"]
    found = call("query", "coffees", "--names", "acid:2 sweet", "--limit", "1", "--json")
    assert lines(found) == [{"id": "0", "score": 1.0, "payload": None}]


def test_health_is_that_of_readiness(call: Call, url: str) -> None:
    shown = json.loads(call("health", "--json").stdout)
    assert (shown["url"], shown["phase"]) == (url, "ready")
    assert call("health").stdout == f"{url}: ready\n"
    port = url.rpartition(":")[2]
    found = CliRunner(env={"GCWS_PORT": port}).invoke(app, ["health"])
    assert (found.exit_code, found.stdout) == (0, f"{url}: ready\n")


NO_ADDRESSES = ("localhost:8000", "ftp://localhost", "http://localhost:port")


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (503, b'{"phase": "loading", "loaded": 1, "total": 3}', "loading, 1 of 3"),
        (200, b"<html>", "got no answer of one"),
        (404, b"{}", "got status 404"),
        (200, b"3", "got no answer of one"),
    ],
)
def test_health_fails_where_no_server_is_ready(status: int, body: bytes, words: str) -> None:
    with answering("/below/readyz", (status, body)) as url:
        found = CliRunner().invoke(app, ["health", "--url", f"{url}/below/"])
    assert found.exit_code == 1
    assert words in found.output
    for url, told in (
        (f"http://127.0.0.1:{free_port()}", "expected a server at http://127.0.0.1:"),
        *((wrong, "expected the address of a server") for wrong in NO_ADDRESSES),
    ):
        found = CliRunner().invoke(app, ["health", "--url", url])
        assert found.exit_code == 1
        assert told in found.output


def test_the_version_is_printed(call: Call) -> None:
    version = metadata.version("gcws-search")
    assert call("version").stdout.strip() == call("--version").stdout.strip() == version
    assert json.loads(call("version", "--json").stdout) == {"version": version}


FLOATS = st.floats(-1e6, 1e6, width=32).filter(lambda x: x == 0 or abs(x) > 1e-6)
DENSE = hn.arrays(np.float32, st.tuples(st.integers(1, 6), st.just(3)), elements=FLOATS)
TEXT = st.characters(codec="utf-8")


def maps(keys: st.SearchStrategy[Json]) -> st.SearchStrategy[list[Json]]:
    """Sparse vectors by such keys; three words of JSON's form are no names."""
    one = st.dictionaries(keys, FLOATS.filter(bool), min_size=1, max_size=5)
    is_named = one.filter(lambda vector: not set(vector) <= {"names", "indices", "values"})
    return st.lists(is_named, min_size=1, max_size=6)


NAMED, SPARSE = maps(st.text(TEXT, min_size=1, max_size=6)), maps(st.integers(0, 2**31 - 2))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS.filter(lambda x: not isinstance(x, float) or abs(x) < 1e300),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
PAYLOADS = st.none() | st.dictionaries(st.text(TEXT, max_size=5), VALUES, max_size=3)


def named(collection: gcws_search.Collection, item: gcws_search.Item) -> tuple[str, str, Json]:
    """Return an item's id, its vector to the bit, with names where it has them, and payload."""
    vector = item.vector
    if isinstance(vector, dict):
        names = collection.names(indices=vector["indices"])
        keys = [names.get(index, index) for index in vector["indices"]]
        pairs = sorted(zip(map(repr, keys), map(repr, vector["values"]), strict=True))
        return item.id, repr(pairs), item.payload
    return item.id, repr(vector), item.payload


@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    vectors=DENSE | SPARSE | NAMED, data=st.data(), suffix=st.sampled_from(["ndjson", "parquet"])
)
def test_an_export_is_loaded_again_as_it_was(
    url: str, call: Call, tmp_path: Path, vectors: Json, data: st.DataObject, suffix: str
) -> None:
    is_dense = isinstance(vectors, np.ndarray)
    if is_dense:
        vectors[:, 0] += vectors.any(axis=1) == 0
    size: dict[str, Any] = {"min_size": len(vectors), "max_size": len(vectors)}
    payloads = data.draw(st.lists(PAYLOADS, **size))
    ids = data.draw(st.lists(st.text(TEXT, min_size=1, max_size=9), unique=True, **size))
    path = str(tmp_path / f"a.{suffix}")
    with gcws_search.connect(url) as server:
        for each in server.collections():
            server.drop(each["name"])
        first = server.collection("first", dim=3 if is_dense else None)
        first.add(vectors, ids=ids, payloads=payloads)
        call("export", "first", "-o", path)
        call("load", path, "--into", "second")
        second = server.collection("second")
        assert second.config == first.config
        before, after = ([*map(partial(named, each), each)] for each in (first, second))
        assert after == before


CONFIGS: dict[str, Json] = {
    "names": {"dim": 3},
    "transform": {"dim": 3, "transform": {"center": [1, 2, 3], "power": 0.5, "normalize": "l1"}},
    "backend": {"dim": 3, "backend": {"kind": "gcws", "params": {"bands": 8, "seed": 7}}},
    "wide": {"dim": 9000},
    "storage": {"dim": 3, "storage": "mapped"},
}


@pytest.mark.parametrize(
    ("case", "suffix"),
    [*((case, "parquet") for case in CONFIGS), ("names", "ndjson"), ("transform", "ndjson")],
)
def test_an_export_tells_what_its_collection_is(
    server: gcws_search.Server, call: Call, tmp_path: Path, case: str, suffix: str
) -> None:
    first = server.collection("first", **CONFIGS[case])
    first.add([{0: 1, 2: 5}, {1: 2.5}] if case == "wide" else [[1, 0, 5], [0, 2.5, 0]])
    if case in ("names", "wide"):
        first.set_names(["acid", "ester"])
    path = str(tmp_path / f"a.{suffix}")
    call("export", "first", "-o", path)
    for skip in ([], ["--on-error", "skip"]):
        call("load", path, "--into", "second", *skip)
        second = server.collection("second")
        assert second.config == first.config
        assert second.names() == first.names()
        assert [*second] == [*first]
    server.drop("second")
    call("load", path, "--into", "second", "--power", "2", "--normalize", "none")
    transform = replace(first.config.transform, power=2.0, normalize="none")
    assert server.collection("second").config.transform == transform


def test_help_loads_little_and_names_every_command(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from gcws_search.commands.app import main\n"
        "sys.argv = ['gcws-search', '--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('LOADED', *{name.partition('.')[0] for name in sys.modules})"
    )
    shown, _, loaded = run_python("-c", program, folder=tmp_path).stdout.partition("LOADED")
    assert not set(loaded.split()) & {"numpy", "numba", "fastapi", "pydantic", "httpx", "pyarrow"}
    for name in COMMANDS:
        assert f" {name} " in shown


INTERRUPTED = """
import os, signal, sys
from gcws_search.__main__ import main

class Callback:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

class Finder:
    def find_spec(self, name, *_):
        if name == {name!r}:
            Callback()

sys.meta_path.insert(0, Finder())
sys.argv = ["gcws-search", "dedupe", "a.ndjson", "--text", "body", "--min-score", "1", "-o", "o"]
main()
"""


@pytest.mark.parametrize("name", ["typer", "numpy"])
def test_a_callback_within_an_import_does_not_lose_ctrl_c(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text('{"body": "one two"}\n{"body": "one two three"}\n')
    done = run_python("-c", INTERRUPTED.format(name=name), folder=tmp_path, status=1)
    assert (done.stdout, done.stderr) == ("", "gcws-search: interrupted\n")


GROUPED = ["snapshot", "create"], ["cluster", "up"], ["bulk", "load"], ["bulk", "drop"]


def test_every_command_has_its_own_help_which_shows_no_value_for_what_takes_none(
    call: Call,
) -> None:
    for words in ([], *([name] for name in COMMANDS), *GROUPED):
        shown = call(*words, "--help").output
        assert "Usage:" in shown
        assert not re.search(r"<\w", shown)  # no types of Python
        assert "╭─ Options ─" in shown


@pytest.mark.parametrize("line", ["load", "dedupe", "bulk load", "shard"])
def test_help_of_80_columns_cuts_no_word(line: str) -> None:
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*line.split(), "--help"]).output
    assert max(map(len, shown.splitlines())) <= 80
    assert not re.search(r"\S…", shown)


USED = {
    "bulk load": (
        {"--database-url", "--jobs", "--on-error", "--scale", "--one-based"},
        {"--url", "--replicas"},
    ),
    "shard": ({"--shard", "--database-url", "--port"}, {"--workers", "--durability"}),
    "cluster manifest": ({"--shards", "--replicas"}, {"--port", "--data-dir", "--database-url"}),
    "cluster adopt": ({"--database-url"}, {"--shards", "--host"}),
    "cluster up": ({"--replicas", "--seconds"}, {"--port", "--api-key"}),
}


@pytest.mark.parametrize("line", USED)
def test_commands_of_a_cluster_have_the_options_that_they_use(call: Call, line: str) -> None:
    wanted, others = USED[line]
    shown = {*re.findall(r"--[a-z-]+", call(*line.split(), "--help").output)}
    assert wanted <= shown
    assert not others & shown
    for other in others:
        assert other in call(*line.split(), other, "1", code=2).output


@pytest.mark.parametrize(
    "line",
    [
        "load /none.csv --into x", "export coffees -o /none/a.ndjson", "collections --url {nobody}",
        "groups coffees --min-score 0.5 -o /none/a.csv", "check /none", "check pyproject.toml",
        "collections --url ./data",
        "serve --api-key-file /none --port 0", "cluster status --database-url-file /none",
        "health --url {nobody}", "snapshot download coffees a -o /none/a --url {nobody}",
    ],
)  # fmt: skip
@pytest.mark.usefixtures("coffees", "root_log")
def test_what_fails_is_one_sentence_without_numbers_of_the_system(call: Call, line: str) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    done = call(*line.format(nobody=nobody).split(), code=1)
    assert done.stderr.splitlines()[-1].startswith("gcws-search: ")
    assert "Errno" not in done.output


ONE = 0
JSON = {
    "load {folder}/a.npy --into others": ONE,
    "load {folder}/a.npy --into others --dry-run": ONE,
    "export coffees -o {folder}/a.ndjson": ONE,
    "create teas --dim 4": ONE,
    "get coffees kenya brazil": 2,
    "count coffees": ONE,
    "delete coffees mocha --yes": ONE,
    "delete coffees kenya --dry-run": ONE,
    "collections": 4,
    "collections coffees": ONE,
    "collections --drop teas --yes": ONE,
    "payload coffees --id kenya --set {{}}": ONE,
    "names functions": 3,
    "names coffees --set {folder}/names.txt": ONE,
    "query coffees --id kenya": 2,
    "query coffees --id kenya --explain --why": 3,
    "query coffees --file {folder}/rows.ndjson": 2,
    "find coffees a": 3,
    "explain coffees kenya brazil": ONE,
    "groups coffees --min-score 0.1": 1,
    "groups coffees --min-score 0.1 --delete-others --dry-run": 2,
    "pairs coffees --min-score 0.1 --recall 1": 2,
    "join {folder}/rows.ndjson --with coffees --min-score 0.1": 4,
    "compare coffees --sample 2": ONE,
    "dedupe {folder}/a.npy -o {folder}/found --min-score 0.9": ONE,
    "backends coffees": 1,
    "recall coffees": ONE,
    "health": ONE,
    "snapshot create coffees": ONE,
    "snapshot list coffees": 3,
    "snapshot download coffees again -o {folder}/again.sqlite": ONE,
    "snapshot upload coffees other {folder}/coffees.sqlite": ONE,
    "snapshot restore coffees again --replace": ONE,
    "snapshot delete coffees again": ONE,
    "version": ONE,
    "check {folder}/data": 2,
    "vacuum {folder}/data": 2,
    "fit coffees --scale max": ONE,
}
"""Commands in their order, and how many objects each prints; `ONE` for what is no list."""
RUNNING = {"serve", "shard", "cluster", "bulk", "demo"}
"""They go on until told to stop; and those of a cluster, which has none here."""


@pytest.mark.usefixtures("coffees")
def test_json_is_one_object_or_a_list_of_one_a_line(
    server: gcws_search.Server, call: Call, tmp_path: Path
) -> None:
    server.collection("functions", dim=None).add([{"copy": 1, "file": 2}, {"copy": 2, "path": 1}])
    np.save(tmp_path / "a.npy", np.eye(3))
    (tmp_path / "names.txt").write_text("acid\nbody\n")
    (tmp_path / "rows.ndjson").write_text('{"vector": [2, -1, 1, 0]}\n{"vector": [0, 1, 1, 0]}\n')
    for name in ("a", "b"):
        with gcws_search.Collection.open(tmp_path / "data" / f"{name}.sqlite", dim=2) as items:
            items.add([[1, 2]])
    made = server.snapshots("coffees").create()["name"]
    server.snapshots("coffees").download(made, tmp_path / "coffees.sqlite")
    server.snapshots("coffees").upload("again", tmp_path / "coffees.sqlite")
    for line, count in JSON.items():
        found = lines(call(*line.format(folder=tmp_path).split(), "--json"))
        assert all(isinstance(each, dict) for each in found), line
        assert len(found) == (count or 1), line


def test_json_is_tested_for_every_command() -> None:
    assert {line.split()[0] for line in JSON} | RUNNING == {*COMMANDS}


NAMING = (
    "load {folder}/a.npy --into {name}", "query {name} --row 1,2", "collections {name}",
    "collections --drop {name} --yes", "export {name} -o {folder}/a.ndjson",
    "snapshot create {name}",
    "create {name} --dim 2", "get {name} 1", "count {name}", "delete {name} 1",
    "pairs {name} --min-score 1",
    "snapshot list {name}", "snapshot restore coffees {name}",
)  # fmt: skip


@pytest.mark.parametrize("name", ["A/2", "/", "../x", "a/b/c"])
def test_a_name_that_none_can_have_is_refused_by_the_rule(
    call: Call, tmp_path: Path, name: str
) -> None:
    np.save(tmp_path / "a.npy", np.ones((2, 2)))
    for line in NAMING:
        done = call(*line.format(folder=tmp_path, name=name).split(), code=1)
        assert "expected 1 to 128 of letters, digits, '_', '.', '-'" in done.stderr


def in_a_terminal(words: list[str], answer: str = "", columns: int = 80) -> tuple[int, str]:
    """Run the program in a pseudo-terminal; return its exit code, and what is seen."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, columns))
    command = ["env", "-u", "COLUMNS", sys.executable, "-m", "gcws_search", *words]
    with subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, cwd=REPOSITORY, close_fds=True
    ) as running:
        os.close(slave)
        os.write(master, answer.encode())
        seen = b""
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:  # its other end is closed
                break
            if not piece:
                break
            seen += piece
        os.close(master)
        return running.wait(60), seen.decode()


def in_width(monkeypatch: pytest.MonkeyPatch, words: list[str], columns: int) -> str:
    """Return what a command of this process prints on a terminal of a width."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    out = TerminalText()
    monkeypatch.setattr(sys, "stdout", out)
    app(words, standalone_mode=False)
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())


class TerminalText(io.StringIO):
    """A text that is written to as a terminal is."""

    def isatty(self) -> bool:
        return True


def test_a_narrow_terminal_cuts_the_payload_alone(
    server: gcws_search.Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = server.collection("plants", dim=2)
    story = "a long story of a plant that grows in sand"
    payload = {"name": ["sea holly"], "story": [story], "height": [1200]}
    items.add([[1, 2]], ids=["eryngium-maritimum"], payloads=payload)
    words = ["query", "plants", "--row", "1,3", "--url", url]
    code, in_process = in_a_terminal(words, columns=40)
    assert code == 0
    for columns in (40, 80, 120):
        seen = in_width(monkeypatch, words, columns)
        [line] = [each.rstrip() for each in seen.splitlines() if "eryngium" in each]
        assert len(line) <= columns
        whole = f' eryngium-maritimum    0.75   name="sea holly"  story="{story}"  height=1200'
        assert line == (whole if columns == 120 else f"{whole[: len(line) - 1]}…")
        assert (line in in_process) == (columns == 40)


def test_ids_and_scores_are_whole_however_narrow_the_terminal(
    server: gcws_search.Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (f"{each}-{'x' * 100}" for each in "ab")
    items = server.collection("plants", dim=2)
    items.add([[1, 2], [1, 3]], ids=[first, second], payloads={"name": ["word " * 30] * 2})
    items.set_names(["acid", "y" * 90])
    for word, columns, words, expected in (
        ("query", 40, ["--row", "1,2"], {first, second, "0.75"}),
        ("query", 120, ["--row", "1,2"], {first, second, "0.75"}),
        ("pairs", 40, ["--min-score", "0.1"], {first, second, "0.75"}),
        ("find", 80, ["x"], {first, second}),
        ("explain", 40, [first, second], {"y" * 90, "acid"}),
    ):
        seen = in_width(monkeypatch, [word, "plants", *words, "--url", url], columns)
        assert expected <= {*seen.split()}, word
        assert ("…" in seen) == (word in ("query", "find")), word


def test_data_moves_no_cursor_and_colors_nothing(server: gcws_search.Server, call: Call) -> None:
    items = server.collection("plants", dim=None)
    says = ["d\x9b\n\u2066"]
    items.add([{"a\x1b[31m": 1, "b\r": 2}], ids=["c\u202e\x1b[2J"], payloads={"name": says})
    for words in (("query", "--names", "a\x1b[31m", "--why"), ("find", "c"), ("names",)):
        shown = call(words[0], "plants", *words[1:]).stdout
        assert shown
        assert all(each.isprintable() for each in shown.split("\n"))


def test_points_of_numbers_stand_below_one_another(server: gcws_search.Server, call: Call) -> None:
    items = server.collection("plants", dim=2)
    items.add([[1, 2], [1, 3], [7, 30]], ids=["a", "b", "c"])
    _, *shown = call("query", "plants", "--row", "1,2").stdout.splitlines()
    assert [line.split()[1] for line in shown] == ["1", "0.75", "0.08108"]
    assert {line.index(".") for line in shown[1:]} == {shown[0].index("1") + 1}


@pytest.mark.parametrize("score", ["gmm", "bray_curtis", "containment"])
def test_the_fraction_of_a_score_is_drawn_as_two_bars(
    server: gcws_search.Server, call: Call, score: str
) -> None:
    query = [1, -1, 0, -0.5, 2, 0.25]
    items = server.collection("plants", dim=6)
    items.add([[1, 2, 0, 0, 1, 1], [0.5, -3, 1, 0, 0, 0], [0, 1, 1, 1, 0, 0]], ids=["a", "b", "c"])
    words = ("query", "plants", "--row", ",".join(map(str, query)), "--score", score, "--why")
    hits, shown = lines(call(*words, "--json")), call(*words).stdout
    found = items.query(query, score=score)  # type: ignore[arg-type]  # one of the kinds
    assert [(each["id"], each["score"]) for each in hits] == [(hit.id, hit.score) for hit in found]
    for hit in hits:
        expected = items.explain(query, hit["id"], limit=3)
        assert hit["why"] == expected.to_dict()
        part = shown.split(f"\n{hit['id']}: ")[1].split("\n\n")[0]
        first, *drawn = map(str.strip, part.splitlines())
        if hit["score"] == 0 and score == "containment":
            assert (first, drawn) == ("nothing shared", [])
            continue
        amounts = [[float(each) for each in re.findall(r"[\d.]+(?= of|$)", line)] for line in drawn]
        shared, total, *slices = drawn
        assert {*shared} | {*total} <= {*"█▓▒░"}
        assert len(shared) == pytest.approx(60 * hit["score"], abs=0.5)
        assert len(total) == 60
        assert len(slices) == 4
        sums = np.array(amounts[2:]).sum(axis=0)
        assert sums[0] / sums[1] == pytest.approx(hit["score"], rel=1e-3)


@pytest.mark.usefixtures("coffees")
def test_costs_and_collections_are_told_in_words(call: Call) -> None:
    cost = call("query", "coffees", "--id", "kenya", "--explain").stdout.splitlines()[-1]
    shown = call("collections", "coffees").stdout
    for text in (cost, shown):
        assert not re.search(r"[a-z]_[a-z]|None|null|[{}]", text)
    assert "3, dim 4" in shown


def test_a_terminal_is_asked_and_sees_a_bar(
    server: gcws_search.Server, url: str, tmp_path: Path
) -> None:
    np.save(tmp_path / "a.npy", np.ones((5000, 4), np.float32))
    words = ["load", str(tmp_path / "a.npy"), "--into", "plants", "--url", url]
    code, seen = in_a_terminal(words, "n\n")
    assert code == 1
    assert "Create it?" in seen
    assert not server.collections()
    code, seen = in_a_terminal(words, "y\n")
    assert code == 0, seen
    assert "5,000 rows" in seen
    assert len(server.collection("plants")) == 5000


@pytest.mark.usefixtures("coffees")
def test_an_answer_of_nothing_says_the_next_step(call: Call, tmp_path: Path) -> None:
    for words in (
        ("find", "coffees", "tea"),
        ("query", "coffees", "--id", "kenya", "--min-score", "0.9"),
        ("names", "coffees", "--prefix", "x"),
        ("check", str(tmp_path)),
    ):
        done = call(*words)
        assert done.stdout == ""
        assert done.stderr.startswith("gcws-search: ")
        assert call(*words, "--json").stdout == ""
    assert "no coordinate has a name; --set FILE names them" in call("names", "coffees").stderr
    none = call("snapshot", "list", "coffees")
    assert none.stdout == ""
    assert "`gcws-search snapshot create coffees` makes one" in none.stderr
    name = call("snapshot", "create", "coffees").stdout.split()[0]
    refused = call("snapshot", "restore", "coffees", name, code=1)
    assert refused.stderr.endswith("; --replace replaces it\n")
    assert call("snapshot", "restore", "coffees", name, "--replace").stdout == "coffees: 3 items\n"
    assert call("snapshot", "list", "coffees").stderr == ""


@pytest.mark.usefixtures("coffees")
def test_a_snapshot_is_moved(call: Call, tmp_path: Path) -> None:
    def run(*words: str, code: int = 0) -> str:
        return call("snapshot", *words, code=code).output

    made = lines(call("snapshot", "create", "coffees", "--json"))
    name, digest = made[0]["name"], made[0]["sha256"]
    assert lines(call("snapshot", "list", "coffees", "--json")) == made
    file = tmp_path / "coffees.sqlite"
    run("download", "coffees", name, "-o", str(file))
    assert hashlib.sha256(file.read_bytes()).hexdigest() == digest
    assert digest in run("upload", "coffees", "again", str(file))
    run("delete", "coffees", name)
    [left] = lines(call("snapshot", "list", "coffees", "--json"))
    assert left["name"] == "again"
    assert "no snapshot" in run("download", "coffees", name, "-o", str(tmp_path / "x"), code=1)
    assert not (tmp_path / "x").exists()
    run("delete", "coffees", "again")
    names = [run("create", "coffees").split()[0] for _ in range(2)]
    last = run("create", "coffees", "--keep", "2").split()[0]
    kept = lines(call("snapshot", "list", "coffees", "--json"))
    assert {each["name"] for each in kept} == {names[-1], last}
    run("create", "coffees", "--keep", "0", code=2)


# ``demo``: the three collections, and the commands that are printed


def test_the_collections_are_there_and_the_commands_answer(
    server: gcws_search.Server, url: str, call: Call
) -> None:
    counts = demo.fill(url)
    assert counts["coffees"] == len(demo.COFFEES)
    assert counts["digits"] == 1797
    assert counts["functions"] > 500
    shown = [server.collection(name).describe()["metadata"]["view"] for name in demo.VIEWS]
    assert shown == [*demo.VIEWS.values()]
    assert server.collection("coffees").names()[0] == demo.TASTES[0]
    around = server.collection("functions").query(id="shutil.copyfile", limit=5)
    assert "shutil.copy" in around.ids
    eight = server.collection("digits").query(id="8", limit=5)
    assert {hit.payload["label"] for hit in eight if hit.payload} == {8}
    for command in demo.TRY.format(url="").strip().splitlines():
        program, *words = shlex.split(command)
        assert program == "gcws-search"
        if words[0] != "export":
            call(*words)


def test_a_demo_fills_no_other_server(server: gcws_search.Server, url: str, call: Call) -> None:
    refused = call("demo", "--port", url.rpartition(":")[2], code=1)
    assert "cannot listen" in refused.stderr
    assert refused.stdout == ""
    assert "demo" not in {each.name for each in threading.enumerate()}  # which fills a server
    assert not server.collections()


def test_a_key_in_the_environment_is_given_too(tmp_path: Path) -> None:
    """The server reads keys there, so what fills it needs one of them."""
    words = [sys.executable, "-m", "gcws_search", "demo", "--port", str(free_port())]
    key = {"GCWS_API_KEY": "a-key-of-some-length,another-key"}
    with subprocess.Popen(
        words, env=os.environ | key, cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
    assert re.match("Open http://127.0.0.1:[0-9]+/ in a browser", lines[0])
    assert "coffees (4), digits (1,797)" in lines[2]
