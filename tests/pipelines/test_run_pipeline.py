"""Whole pipelines over files: into every kind of sink that needs nothing installed, stopped, repeated, restarted."""

import json
import os
import shutil
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from headwater.pipelines.run.lock import only_run
from headwater.pipelines.run.problems import PipelineFailed
from headwater.pipelines.run.progress import RunStatus, State
from headwater.pipelines.run.runner import Runner, RunOptions
from headwater.pipelines.run.sinks.hadoop_files import HadoopFiles
from headwater.pipelines.run.sinks.joined_files import finish_joins, join_small_files
from headwater.pipelines.spec.check import load
from headwater.pipelines.spec.starts import EARLIEST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark on a busy machine takes its time

NOBODY = "127.0.0.1:1"
SOURCE = """
trigger = "100ms"
[source.changes]
kind = "files"
format = "json"
path = "in"
schema = "id int, day string, name string, version int, gone boolean"
"""
Run = Callable[..., RunStatus]


@pytest.fixture
def emitted() -> list[str]:
    return []


@pytest.fixture
def run(spark: "SparkSession", tmp_path: Path, emitted: list[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the pipeline of a text until it has seen all files."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "in").mkdir()

    def run_once(text: str, **options: Any) -> RunStatus:
        (tmp_path / "shop.toml").write_text(text)
        is_stopping = options.pop("is_stopping", lambda status: False)
        runner = Runner(
            load(tmp_path / "shop.toml"),
            spark,
            RunOptions(NOBODY, **{"is_once": True, **options}),
            None,
            emitted.append,
        )
        return runner.run(lambda: is_stopping(runner.status), lambda status: None)

    return run_once


def write_rows(tmp_path: Path, name: str, *rows: tuple[int, str, str, int, bool]) -> None:
    fields = ("id", "day", "name", "version", "gone")
    lines = [json.dumps(dict(zip(fields, row, strict=True))) + "\n" for row in rows]
    unfinished = tmp_path / f".{name}"
    unfinished.write_text("".join(lines))
    unfinished.rename(tmp_path / "in" / f"{name}.json")


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[Any]]]:
    """An address, and what was posted to it. Its first answer is that it is busy."""
    posted: list[Any] = []
    answers = iter([503])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            code = next(answers, 204)
            if code == 204:
                posted.append((self.headers["Idempotency-Key"], body))
            self.send_response(code)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/hook", posted
        server.shutdown()
        thread.join()


def test_rows_arrive_in_every_sink_and_a_repeated_batch_changes_nothing(
    spark: "SparkSession", run: Run, tmp_path: Path, emitted: list[str], webhook: tuple[str, list[Any]]
) -> None:
    url, posted = webhook
    (tmp_path / "shop_own_sink.py").write_text(
        "seen = []\ndef take(batch, number):\n    seen.append((number, batch.count()))\n"
    )
    text = (
        SOURCE
        + f'''
[step.named]
kind = "sql"
sql = "select *, upper(name) as loud from changes"
[sink.lake]
kind = "parquet"
input = "named"
path = "lake"
partition_by = ["day"]
[sink.current]
kind = "table"
input = "changes"
url = "sqlite:current.db"
table = "people"
key = ["id"]
order = "version"
delete_when = "gone"
[sink.show]
kind = "console"
input = "named"
[sink.hook]
kind = "webhook"
input = "changes"
url = "{url}"
rows_per_request = 2
[sink.own]
kind = "python"
input = "changes"
function = "shop_own_sink:take"
'''
    )
    with sqlite3.connect(tmp_path / "current.db") as people:
        people.execute(
            "create table people (id integer primary key, day text, name text, version integer, gone boolean)"
        )
    people.close()
    write_rows(tmp_path, "1", (1, "mo", "ann", 1, False), (1, "mo", "anna", 2, False), (2, "tu", "bob", 1, False))
    status = run(text)
    assert (status.state, {query.query: query.rows for query in status.queries}) == (
        State.FINISHED,
        {"lake": 3, "current": 3, "show": 3, "hook": 3, "own": 3},
    )
    assert sorted(json.loads(line)["loud"] for line in emitted) == ["ANN", "ANNA", "BOB"]
    assert sorted(row["name"] for _, rows in posted for row in rows) == ["ann", "anna", "bob"]
    assert len({key for key, _ in posted}) == len(posted) == 2
    assert sys.modules["shop_own_sink"].seen == [(0, 3)]

    # As if the process had been killed before Spark noted that the first batch is complete.
    for sink in ("lake", "current"):
        for name in ("0", ".0.crc"):
            (tmp_path / "shop.checkpoint" / sink / "commits" / name).unlink(missing_ok=True)
    query = json.loads((tmp_path / "shop.checkpoint" / "lake" / "metadata").read_text())["id"][:8]
    left_behind = tmp_path / "lake" / "_headwater" / f"{query}-joined-x.parquet"
    left_behind.mkdir(parents=True)
    write_rows(tmp_path, "2", (2, "tu", "bob", 2, True), (3, "tu", "cid", 1, False))
    status = run(text)
    assert {query.query: query.batch for query in status.queries}["lake"] == 1
    assert not left_behind.exists()
    names = spark.read.parquet(str(tmp_path / "lake")).select("day", "name").collect()
    assert sorted(map(tuple, names)) == [("mo", "ann"), ("mo", "anna"), ("tu", "bob"), ("tu", "bob"), ("tu", "cid")]
    with sqlite3.connect(tmp_path / "current.db") as people:
        assert people.execute("select id, name from people order by id").fetchall() == [(1, "anna"), (3, "cid")]
    people.close()
    assert sys.modules["shop_own_sink"].seen == [(0, 3), (1, 2)]


STATEFUL = """
[source.clicks]
kind = "files"
format = "json"
path = "in"
schema = "id string, at timestamp, n int"
max_files = 1
[step.totals]
kind = "stateful"
input = "clicks"
processor = "tests.pipelines.click_totals:Totals"
by = ["id"]
output = "id string, total int"
mode = "update"
[step.once]
kind = "deduplicate"
input = "clicks"
by = ["id", "n"]
time = "at"
watermark = "1h"
[step.minutes]
kind = "window"
input = "clicks"
time = "at"
size = "1m"
watermark = "30s"
aggregates = { n = "sum(n)" }
[step.pairs]
kind = "join"
left = "clicks"
right = "once"
on = "left.id = right.id and left.n < right.n"
left_time = "at"
right_time = "at"
within = "5m"
watermark = "1h"
[step.pairs_shown]
kind = "sql"
sql = "select 'pair' as kind, id from pairs"
[sink.show_totals]
kind = "console"
input = "totals"
mode = "update"
[sink.show_minutes]
kind = "console"
input = "minutes"
[sink.show_pairs]
kind = "console"
input = "pairs_shown"
"""


def test_steps_with_state_remember_over_batches(run: Run, tmp_path: Path, emitted: list[str]) -> None:
    clicks = [("a", "00:00:10", 1), ("a", "00:00:20", 2), ("a", "00:09:00", 4)]
    for number, (id, at, n) in enumerate(clicks):
        click = tmp_path / "in" / f"{number}.json"
        click.write_text(json.dumps({"id": id, "at": f"2026-01-01T{at}Z", "n": n}) + "\n")
        os.utime(click, (number + 1, number + 1))  # Spark takes the oldest first
    assert run(STATEFUL).state is State.FINISHED
    rows = [json.loads(line) for line in emitted]
    assert [row["total"] for row in rows if "total" in row] == [1, 3, 7]
    assert [(row["window_start"][11:16], row["n"]) for row in rows if "n" in row] == [("00:00", 3)]
    assert [row["id"] for row in rows if row.get("kind") == "pair"] == ["a"], "the third is too far from the others"


def test_a_running_pipeline_stops_when_it_is_asked(run: Run, tmp_path: Path) -> None:
    write_rows(tmp_path, "1", (1, "mo", "ann", 1, False))
    text = SOURCE + '[sink.show]\nkind = "console"\ninput = "changes"\n'
    status = run(text, is_once=False, is_stopping=lambda status: status.queries and status.queries[0].rows == 1)
    assert status.state is State.STOPPED
    (query,) = status.queries
    assert (query.batch, query.lag) == (0, None)
    with pytest.raises(
        PipelineFailed, match=r"goes on from its checkpoint .*, so --from has no meaning\. To begin anew"
    ):
        run(text, start=EARLIEST)


def test_failures_are_told_in_a_sentence(run: Run, tmp_path: Path) -> None:
    write_rows(tmp_path, "1", (1, "mo", "ann", 1, False))
    table = 'kind = "table"\ninput = "changes"\nurl = "sqlite:none.db"\ntable = "nowhere"\n'
    with pytest.raises(PipelineFailed) as failed:
        run(SOURCE + f"[sink.t]\n{table}")
    assert str(failed.value) == "sink t: The database refuses a row: no such table: nowhere"
    counted = '[step.c]\nkind = "sql"\nsql = "select count(*) from changes"\n[sink.s]\nkind = "console"\ninput = "c"\n'
    with pytest.raises(PipelineFailed, match=r"sink s: Invalid streaming output mode: append\. This output mode"):
        run(SOURCE + counted)
    (tmp_path / "shop_failing_sink.py").write_text("def take(batch, number):\n    raise ValueError('not today')\n")
    with pytest.raises(PipelineFailed, match=r"^sink p: ValueError: not today$"):
        run(SOURCE + '[sink.p]\nkind = "python"\ninput = "changes"\nfunction = "shop_failing_sink:take"\n')


@pytest.fixture
def small_files(spark: "SparkSession", tmp_path: Path) -> HadoopFiles:
    """Four files of one row each: three in one directory, one in another."""
    for number in range(4):
        place_file(spark, [number], tmp_path / "lake" / f"d={number // 3}" / f"q-{number}.parquet")
    return HadoopFiles(spark, str(tmp_path / "lake"))


def place_file(spark: "SparkSession", ids: list[int], file: Path) -> None:
    """Rows as one Parquet file of this name."""
    staged = file.with_name("staged")
    spark.createDataFrame([(id,) for id in ids], "id int").coalesce(1).write.parquet(str(staged))
    (part,) = staged.glob("*.parquet")
    part.rename(file)
    shutil.rmtree(staged)


def ids_in(spark: "SparkSession", tmp_path: Path) -> list[int]:
    return sorted(row.id for row in spark.read.parquet(str(tmp_path / "lake")).collect())


def test_small_files_are_joined_within_their_directory(
    spark: "SparkSession", small_files: HadoopFiles, tmp_path: Path
) -> None:
    def may_join(path: str) -> bool:
        return not path.endswith("q-0.parquet")

    assert join_small_files(spark, small_files, "_headwater", "q", may_join, 10**6, 10**9) == 2
    (joined,) = (path for path, _ in small_files.walk() if "joined" in path)
    assert sorted(path for path, _ in small_files.walk()) == ["d=0/q-0.parquet", joined, "d=1/q-3.parquet"]
    assert ids_in(spark, tmp_path) == [0, 1, 2, 3]
    assert join_small_files(spark, small_files, "_headwater", "q", may_join, 10, 10**9) == 0, "none is that small"


@pytest.mark.parametrize("is_in_place", [False, True], ids=["before it took its place", "after"])
def test_a_join_that_was_cut_short_is_finished(
    spark: "SparkSession", small_files: HadoopFiles, tmp_path: Path, is_in_place: bool
) -> None:
    staged, joined = "_headwater/q-joined-x.parquet", "d=0/q-joined-x.parquet"
    place_file(spark, [0, 1], tmp_path / "lake" / (joined if is_in_place else staged))
    note = {"staged": staged, "joined": joined, "replaces": ["d=0/q-0.parquet", "d=0/q-1.parquet"]}
    small_files.write_json("_headwater/joins/q-x.json", note)
    finish_joins(small_files, "_headwater", "somebody-else")
    assert small_files.exists("d=0/q-0.parquet"), "only its own"
    finish_joins(small_files, "_headwater", "q")
    assert sorted(path for path, _ in small_files.walk()) == ["d=0/q-2.parquet", joined, "d=1/q-3.parquet"]
    assert ids_in(spark, tmp_path) == [0, 1, 2, 3]
    assert small_files.names("_headwater/joins") == []


def test_two_processes_do_not_share_a_checkpoint(tmp_path: Path) -> None:
    import subprocess

    hold = (
        "import sys\nfrom headwater.pipelines.run.lock import only_run\n"
        f"with only_run('shop', {str(tmp_path / 'c')!r}):\n    print('held', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        with (
            pytest.raises(PipelineFailed, match=rf"shop is running already \(process {other.pid}\)\."),
            only_run("shop", str(tmp_path / "c")),
        ):
            pass
        other.communicate()
    with only_run("shop", str(tmp_path / "c")):
        pass
