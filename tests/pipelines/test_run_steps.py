"""What steps do to rows, on tables: Spark runs the same plans over streams."""

import json
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from headwater.pipelines.run.frames import MAX_CROWDED_TRIES, Frames, build_frames
from headwater.pipelines.run.parsing import dead_letters
from headwater.pipelines.run.problems import PipelineFailed, explain
from headwater.pipelines.run.sources import ReadOptions, read_source
from headwater.pipelines.run.steps import paced
from headwater.pipelines.spec.graph import connect
from headwater.pipelines.spec.mistakes import BadPipeline
from headwater.pipelines.spec.steps import ParseStep
from headwater.pipelines.spec.toml_file import read_toml

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark on a busy machine takes its time

Build = Callable[..., Frames]


@pytest.fixture
def build(spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """Frames of a file with steps over tables, each given as rows of JSON."""
    monkeypatch.setattr(sys, "path", [*sys.path])

    def build_steps(steps: str, **tables: tuple[str, list[dict[str, Any]]]) -> Frames:
        text = steps
        for name, (schema, rows) in tables.items():
            (tmp_path / f"{name}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
            text += f'\n[source.{name}]\nkind = "files"\nformat = "json"\nstream = false\npath = "{name}.json"\n'
            text += f'schema = "{schema}"\n'
        (tmp_path / "steps.toml").write_text(text)
        graph, _ = connect(read_toml(tmp_path / "steps.toml"))
        frames = build_frames(graph, spark.newSession(), ReadOptions("127.0.0.1:1", 0))
        if frames.refused:
            raise BadPipeline(frames.refused)
        return frames

    return build_steps


def rows(frame: "DataFrame") -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def at(minute: int, second: int = 0) -> str:
    return f"2026-01-01T00:{minute:02d}:{second:02d}Z"


EVENTS = ("id string, at timestamp, n int", [
    {"id": "a", "at": at(0, 10), "n": 1},
    {"id": "a", "at": at(0, 50), "n": 2},
    {"id": "b", "at": at(1, 10), "n": 4},
    {"id": "a", "at": at(9), "n": 8},
])  # fmt: skip


def test_windows_sum_up_what_lies_in_them(build: Build) -> None:
    frames = build(
        '[step.w]\nkind = "window"\ninput = "e"\ntime = "at"\nsize = "1m"\nby = ["id"]\n'
        'aggregates = { total = "sum(n)", events = "count(*)" }\n'
        '[step.s]\nkind = "window"\ninput = "e"\ntime = "at"\ngap = "2 minutes"\naggregates = { total = "sum(n)" }\n'
        '[step.slow]\nkind = "window"\ninput = "e"\ntime = "at"\nsize = "10m"\nslide = "5m"\n'
        'aggregates = { total = "sum(n)" }\n',
        e=EVENTS,
    )
    assert frames.by_name["w"].columns == ["window_start", "window_end", "id", "total", "events"]
    assert [(row[0].minute, *row[2:]) for row in rows(frames.by_name["w"])] == [
        (0, "a", 3, 2),
        (1, "b", 4, 1),
        (9, "a", 8, 1),
    ]
    assert [row[2] for row in rows(frames.by_name["s"])] == [7, 8]
    assert [row[2] for row in rows(frames.by_name["slow"])] == [7, 15, 8]


def test_joins_have_each_column_once(build: Build) -> None:
    frames = build(
        '[step.using]\nkind = "join"\nleft = "e"\nright = "p"\nusing = ["id"]\nhow = "left"\n'
        '[step.on]\nkind = "join"\nleft = "e"\nright = "p"\non = "left.id = right.id and left.n > 1"\n'
        '[step.near]\nkind = "join"\nleft = "e"\nright = "p"\nusing = ["id"]\n'
        'left_time = "at"\nright_time = "since"\nwithin = "30s"\nwatermark = "1m"\n'
        '[step.anti]\nkind = "join"\nleft = "e"\nright = "p"\nusing = ["id"]\nhow = "left_anti"\n'
        '[step.full]\nkind = "join"\nleft = "p"\nright = "e"\nusing = ["id"]\nhow = "full"\n',
        e=EVENTS,
        p=("id string, name string, since timestamp", [
            {"id": "a", "name": "Ann", "since": at(0)},
            {"id": "c", "name": "Cid", "since": at(0)},
        ]),
    )  # fmt: skip
    assert frames.by_name["using"].columns == ["id", "at", "n", "name", "since"]
    assert [(row[0], row[2], row[3]) for row in rows(frames.by_name["using"])] == [
        ("a", 1, "Ann"),
        ("a", 2, "Ann"),
        ("a", 8, "Ann"),
        ("b", 4, None),
    ]
    assert [row[2] for row in rows(frames.by_name["on"])] == [2, 8]
    assert [row[2] for row in rows(frames.by_name["near"])] == [1]
    assert [row[0] for row in rows(frames.by_name["anti"])] == ["b"]
    assert sorted(row["id"] for row in frames.by_name["full"].collect()) == ["a", "a", "a", "b", "c"]


def test_duplicates_go_and_sql_reads_other_steps(build: Build) -> None:
    frames = build(
        '[step.counted]\nkind = "sql"\nsql = "select count(*) c from Once"\n'
        '[step.once]\nkind = "deduplicate"\ninput = "e"\nby = ["id"]\n',
        e=EVENTS,
    )
    assert rows(frames.by_name["counted"]) == [(2,)]


def test_python_steps_are_found_beside_the_file(build: Build, tmp_path: Path) -> None:
    (tmp_path / "shop_beside_steps.py").write_text(
        "def double(frame):\n    return frame.selectExpr('id', '2 * n as n')\ndef nothing(frame):\n    return 3\n"
    )
    double = '[step.d]\nkind = "python"\nfunction = "shop_beside_steps:double"\ninputs = ["e"]\n'
    frames = build(double, e=EVENTS)
    assert rows(frames.by_name["d"]) == [("a", 2), ("a", 4), ("a", 16), ("b", 8)]
    with pytest.raises(
        BadPipeline, match="step d: TypeError: shop_beside_steps:nothing returned a int, not a DataFrame"
    ):
        build(double.replace("double", "nothing"), e=EVENTS)


def test_what_spark_refuses_is_told_with_its_line(build: Build) -> None:
    with pytest.raises(BadPipeline) as refused:
        build('[step.x]\nkind = "sql"\nsql = """\nselect\n  idd\nfrom e\n"""\n', e=EVENTS)
    (mistake,) = refused.value.mistakes
    assert mistake.location.line == 5
    assert mistake.what.startswith(
        "step x: A column, variable, or function parameter with name `idd` cannot be resolved."
    )
    assert "SQLSTATE" not in mistake.what and "Project" not in mistake.what
    with pytest.raises(BadPipeline) as refused:
        build('[step.x]\nkind = "sql"\nsql = "select (id from e"\n', e=EVENTS)
    assert refused.value.mistakes[0].location.line == 3
    assert refused.value.mistakes[0].what.startswith("step x: Syntax error at or near")


def test_every_part_that_spark_refuses_is_told_and_nothing_of_what_rests_on_one(build: Build) -> None:
    steps = [("x", "select idd from e"), ("y", "select * from x"), ("z", "select explode(n) from e")]
    text = "".join(f'[step.{name}]\nkind = "sql"\nsql = "{query}"\n' for name, query in steps)
    with pytest.raises(BadPipeline) as refused:
        build(text, e=EVENTS)
    assert [mistake.location.line for mistake in refused.value.mistakes] == [3, 9]


RECORDS = [
    b'{"id": "a", "at": "2026-01-01T00:00:00Z", "n": 1}',
    b'{"id": "a", "n": 1',
    b"[1]",
    b'{"n": 1}',
    b'{"id": "a", "n": "many"}',
    b'{"id": "a", "at": "noon"}',
    b"\xff",
    None,
    b'{"id": "a", "n": null, "more": 1}',
]


@pytest.fixture
def records(spark: "SparkSession") -> "DataFrame":
    schema = "key binary, value binary, topic string, partition int, offset long"
    schema += ", headers array<struct<key string, value binary>>"
    had = [("h", b"1")]
    values = [(b"k", value, "orders", 0, offset, had if offset else None) for offset, value in enumerate(RECORDS)]
    return spark.createDataFrame(values, schema)


def take(frame: "DataFrame", parse: ParseStep, spark: "SparkSession") -> "DataFrame":
    from headwater.pipelines.run.parsing import fitting

    return fitting(frame, parse, "step p")


JSON = ParseStep(
    input="x", format="json", schema="id string not null, at timestamp, n int", dead_letters="bad", keep=("offset",)
)


def test_records_that_fit_become_columns(spark: "SparkSession", records: "DataFrame") -> None:
    frame = take(records, JSON, spark)
    assert frame.columns == ["offset", "id", "at", "n"]
    assert rows(frame) == [(0, "a", datetime(2026, 1, 1), 1), (8, "a", None, None)]


def test_the_others_become_dead_letters_with_the_reason(records: "DataFrame") -> None:
    letters = dead_letters(records, JSON, "shop", "valid").collect()
    about = [{header.key: bytes(header.value).decode() for header in letter.headers} for letter in letters]
    assert [facts["headwater.dlq.offset"] for facts in about] == ["1", "2", "3", "4", "5", "6", "7"]
    assert [bytes(letter.value) if letter.value is not None else None for letter in letters] == RECORDS[1:8]
    assert {(facts["headwater.dlq.topic"], facts["headwater.dlq.step"], facts["h"]) for facts in about} == {
        ("orders", "valid", "1")
    }
    reasons = [facts["headwater.dlq.reason"] for facts in about]
    assert reasons[0].startswith("It is no JSON: ")
    assert reasons[1:] == [
        "It is JSON, but no object: [1]",
        "id is missing.",
        'n is "many", which is no int.',
        'at is "noon", which is no timestamp.',
        "It is no UTF-8 (byte 0).",
        "There is no value, and id must be there.",
    ]


def test_without_dead_letters_a_bad_record_fails_the_query_or_is_dropped(
    spark: "SparkSession", records: "DataFrame"
) -> None:
    dropping = ParseStep(input="x", format="json", schema="id string not null", bad_records="drop")
    assert len(rows(take(records, dropping, spark))) == 4
    failing = ParseStep(input="x", format="json", schema="id string not null")
    with pytest.raises(Exception) as failed:
        take(records, failing, spark).collect()
    assert str(explain(failed.value)).startswith("step p: a record is no json of this schema: ")


def test_a_record_without_a_value_fits_if_nothing_must_be_there(spark: "SparkSession", records: "DataFrame") -> None:
    lenient = ParseStep(input="x", format="json", schema="id string", keep=("offset",), dead_letters="bad")
    assert (7, None) in rows(take(records, lenient, spark))


def test_text_and_csv_are_parsed_too(spark: "SparkSession") -> None:
    frame = spark.createDataFrame([(b"a,1",), (b"b,many",), (b"\xff",), (b"c",)], "value binary")
    text = ParseStep(input="x", format="text", dead_letters="bad")
    assert rows(take(frame, text, spark)) == [("a,1",), ("b,many",), ("c",)]
    table = ParseStep(input="x", format="csv", schema="name string, n int", dead_letters="bad")
    assert rows(take(frame, table, spark)) == [("a", 1)]
    reasons = [bytes(letter.headers[-1].value).decode() for letter in dead_letters(frame, table, "p", "s").collect()]
    assert sorted(reasons) == [
        "It has 1 columns, not 2.",
        "It is no UTF-8 (byte 0).",
        "Its columns do not fit name string, n int.",
    ]


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.now_s

    def sleep(self, time_s: float) -> None:
        self.slept.append(time_s)
        self.now_s += time_s


def test_a_rate_limit_lets_rows_go_when_they_are_due() -> None:
    import pyarrow as pa

    clock = Clock()

    def batches() -> Iterator[pa.RecordBatch]:
        for size in (250, 0, 30):
            yield pa.RecordBatch.from_pydict({"n": list(range(size))})

    limited = paced(1_000, clock.now, clock.sleep)(batches())
    seen = [(round(clock.now_s, 3), batch.num_rows) for batch in limited]
    assert seen == [(0.0, 100), (0.1, 100), (0.2, 50), (0.25, 30)]
    assert clock.now_s == pytest.approx(0.28)


def test_limited_rows_all_arrive(build: Build) -> None:
    frames = build('[step.l]\nkind = "rate_limit"\ninput = "e"\nrows_per_second = 1000\n', e=EVENTS)
    assert frames.by_name["l"].rdd.getNumPartitions() == 1
    assert [row[2] for row in rows(frames.by_name["l"])] == [1, 2, 8, 4]


def test_a_failure_is_not_explained_twice() -> None:
    failure = PipelineFailed("Once.")
    assert explain(failure, "sink x") is failure


def test_a_machine_with_too_much_to_do_is_no_mistake_in_the_file(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    missed = Exception("Python worker failed to connect back")
    misses = [missed, missed]

    def crowded(*args: Any) -> Any:
        if misses:
            raise misses.pop()
        return read_source(*args)

    monkeypatch.setattr("headwater.pipelines.run.frames.read_source", crowded)
    assert rows(build("", numbers=("n int", [{"n": 1}])).by_name["numbers"]) == [(1,)]
    misses += [missed] * MAX_CROWDED_TRIES
    with pytest.raises(PipelineFailed, match=r"source numbers: .* this machine has too much to do") as failed:
        build("", numbers=("n int", [{"n": 1}]))
    assert failed.value.is_crowded
