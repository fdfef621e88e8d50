"""`headwater pipeline` with a Spark of its own, as people call it: mistakes that only Spark or a broker finds are one
message, and a run gives the same rows whatever the zone of the machine. What is told before Spark starts is shown in
tests/cli/test_cli_pipeline.py."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headwater.testing import Broker
from tests.pipelines.running import QUICK_JVM
from tests.pipelines.topics import Topics
from tests.support.effort import only_long

pytestmark = pytest.mark.timeout(300)  # Spark on a busy machine takes its time

PIPELINE = """\
[source.orders]
kind = "topic"
topic = "{topic}"
from = "earliest"
{options}
[step.valid]
kind = "parse"
input = "orders"
format = "json"
schema = "id int, at timestamp"
[step.chosen]
kind = "sql"
sql = "{sql}"
[sink.table]
kind = "table"
input = "chosen"
url = "sqlite:orders.db"
table = "orders"
key = ["id"]
"""
WAIT_S = 200
Headwater = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with Broker(subprocess=True) as broker:
        yield Topics(broker.bootstrap)


@pytest.fixture
def headwater_pipeline(topics: Topics, tmp_path: Path) -> Headwater:
    def call(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "headwater.cli.main", "pipeline", *arguments]
        command += ["--bootstrap", topics.bootstrap, "--master", "local[1]"]
        command += ["--conf", f"spark.driver.extraJavaOptions={QUICK_JVM}"]
        cache = {"HEADWATER_CLASS_CACHE": "off", "HEADWATER_CACHE": str(tmp_path / "cache")}
        return subprocess.run(
            command,
            env={**os.environ, **cache, **environment},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

    return call


@pytest.fixture
def orders(topics: Topics) -> str:
    topic = topics.create()
    topics.produce(topic, [b'{"id": 1, "at": "2026-03-01T09:30:00Z"}', b'{"id": 2, "at": "2026-03-01T23:30:00+02:00"}'])
    return topic


def written(directory: Path, topic: str, sql: str = "select * from valid", options: str = "") -> Path:
    file = directory / "orders.toml"
    file.write_text(PIPELINE.format(topic=topic, sql=sql, options=options))
    return file


@only_long
def test_sql_that_spark_refuses_is_one_line_with_its_place(
    headwater_pipeline: Headwater, orders: str, tmp_path: Path
) -> None:
    file = written(tmp_path, orders, sql="select id, explode(id) as n from valid")
    done = headwater_pipeline("check", str(file), "--dry-run")
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 2, done.stderr
    said, mistake = done.stderr.splitlines()
    assert said == "Starting Spark …"
    assert mistake.startswith(f'{file}:13: step chosen: Cannot resolve "explode(id)" due to data type mismatch')


@only_long
def test_an_option_that_nobody_knows_is_one_message_with_the_nearest_one(
    headwater_pipeline: Headwater, orders: str, tmp_path: Path
) -> None:
    file = written(tmp_path, orders, options='options = { "minPartition" = "3" }')
    done = headwater_pipeline("run", str(file), "--once")
    assert (done.returncode, done.stdout) == (1, "")
    (mistake,) = done.stderr.splitlines()
    assert mistake.startswith(f"{file}:")
    assert mistake.endswith("Option minpartition is unknown. Did you mean minPartitions?")


def test_moments_in_tables_are_the_same_in_every_zone(
    headwater_pipeline: Headwater, orders: str, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "orders.db")) as database:
        database.execute("create table orders (id integer primary key, at text)")
        done = headwater_pipeline("run", str(written(tmp_path, orders)), "--once", TZ="Asia/Kolkata")
        assert done.returncode == 0, done.stderr
        assert database.execute("select * from orders order by id").fetchall() == [
            (1, "2026-03-01T09:30:00+00:00"),
            (2, "2026-03-01T21:30:00+00:00"),
        ]
