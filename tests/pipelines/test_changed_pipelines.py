"""A pipeline that was changed goes on from its checkpoint if it can. If it cannot, it says what to do, and leaves the
checkpoint as it was."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.pipelines.run.problems import PipelineFailed
from headwater.pipelines.run.progress import State
from headwater.pipelines.run.runner import Runner, RunOptions
from headwater.pipelines.spec.check import load
from headwater.testing import Broker
from tests.pipelines.reading_back import read_back, values_in
from tests.pipelines.topics import Topics
from tests.support.effort import amount

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark on a busy machine takes its time

SOURCE = """
[source.{name}]
kind = "topic"
topic = "{topic}"
from = "earliest"
"""
REST = """
[step.valid]
kind = "parse"
input = "orders"
format = "json"
schema = "id int, shop string, amount double"
[step.result]
kind = "sql"
sql = "{sql}"
[sink.out]
kind = "topic"
input = "result"
topic = "{out}"
mode = "{mode}"
"""
Run = Callable[[str], None]


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with Broker(subprocess=True) as broker:
        yield Topics(broker.bootstrap)


@pytest.fixture
def run(spark: "SparkSession", topics: Topics, tmp_path: Path) -> Run:
    """Runs a version of the pipeline over what is there, always from the same checkpoint."""

    def run_once(text: str) -> None:
        file = tmp_path / "shop.toml"
        file.write_text(text)
        runner = Runner(load(file), spark, RunOptions(topics.bootstrap, is_once=True), None, lambda line: None)
        assert runner.run(lambda: False, lambda status: None).state is State.FINISHED

    return run_once


def orders_of(*ids: int) -> list[bytes]:
    return [json.dumps({"id": id, "shop": f"shop {id % 2}", "amount": id / 2}).encode() for id in ids]


def test_another_filter_and_other_columns_go_on_where_the_old_ones_were(run: Run, topics: Topics) -> None:
    orders, out = topics.create(), topics.create()
    source = SOURCE.format(name="orders", topic=orders)
    topics.produce(orders, orders_of(1, 2))
    run(source + REST.format(sql="select id from valid", out=out, mode="append"))
    topics.produce(orders, orders_of(3, 4))
    run(source + REST.format(sql="select id, shop from valid where id > 3", out=out, mode="append"))
    rows = [json.loads(value) for value in values_in(topics.bootstrap, out)]
    assert rows == [{"id": 1}, {"id": 2}, {"id": 4, "shop": "shop 0"}]


def test_a_change_that_the_checkpoint_does_not_allow_is_refused_and_can_be_undone(
    run: Run, topics: Topics, tmp_path: Path
) -> None:
    orders, others, out = topics.create(), topics.create(), topics.create()
    source, other_source = (SOURCE.format(name="orders", topic=topic) for topic in (orders, others))

    def counting(sql: str, mode: str = "update") -> str:
        return REST.format(sql=sql, out=out, mode=mode)

    def counted() -> dict[str, int]:
        """The newest count of each shop."""
        rows: list[dict[str, Any]] = [
            json.loads(message.value() or b"") for message in read_back(topics.bootstrap, out)
        ]
        return {row["shop"]: row["n"] for row in rows}

    by_shop = counting("select shop, count(*) as n from valid group by shop")
    topics.produce(orders, orders_of(1, 2, 3))
    run(source + by_shop)
    assert counted() == {"shop 0": 1, "shop 1": 2}
    topics.produce(orders, orders_of(4, 5, 6))
    topics.produce(others, orders_of(7))
    with pytest.raises(
        PipelineFailed, match=f"Offsets from 3 on of topic {orders}, .*now it does not name it.* needs a "
    ):
        run(other_source + by_shop)
    with_another = (
        "select shop, count(*) as n from (select shop from valid union all select topic from more) group by shop"
    )
    refusals = {
        "another key": source + counting("select id, count(*) as n from valid group by id"),
        "another aggregate": source + counting("select shop, sum(amount) as n from valid group by shop"),
        "no state": source + counting("select shop, 1 as n from valid", "append"),
        "another source": source + SOURCE.format(name="more", topic=others) + counting(with_another),
    }
    for change, text in list(refusals.items())[: amount(len(refusals), 1)]:
        with pytest.raises(PipelineFailed) as failed:
            run(text)
        told = str(failed.value)
        assert told.startswith("sink out: The pipeline was changed in a way that its checkpoint does not allow: "), (
            change
        )
        assert told.endswith(f"by removing the directory {tmp_path}/shop.checkpoint/out."), change
        assert "\n" not in told and "SQLSTATE" not in told
    assert counted() == {"shop 0": 1, "shop 1": 2}, "what was refused wrote nothing"
    run(source + by_shop)
    assert counted() == {"shop 0": 3, "shop 1": 3}
