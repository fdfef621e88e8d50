"""Pipelines over topics of a real broker: progress, lag and stops through the status topic, dead letters, restarts."""

import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.eventually import eventually

pytest.importorskip("pyspark")

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from headwater.client.topic_partition import TopicPartition
from headwater.pipelines.run.lags import Lags
from headwater.pipelines.run.problems import PipelineFailed
from headwater.pipelines.run.progress import RunStatus, State
from headwater.pipelines.run.runner import Runner, RunOptions
from headwater.pipelines.run.sources import ReadOptions
from headwater.pipelines.run.status_topic import StatusTopic
from headwater.pipelines.spec.check import load
from headwater.pipelines.spec.starts import EARLIEST
from headwater.testing import Broker
from tests.pipelines.running import RunningPipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark on a busy machine takes its time

WAIT_S = 90.0

PIPELINE = """
name = "{name}"
trigger = "100ms"
[source.orders]
kind = "topic"
topic = "{name}"
[step.valid]
kind = "parse"
input = "orders"
format = "json"
schema = "id int not null, amount double"
keep = ["offset"]
{bad}
[sink.lake]
kind = "parquet"
input = "valid"
path = "lake"
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def name() -> str:
    return f"orders-{uuid.uuid4().hex[:8]}"


def produce(broker: Broker, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, key="k", value=value.encode(), headers=[("trace", b"t1")])
    assert producer.flush(60) == 0


def written(spark: "SparkSession", path: Path) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, spark.read.parquet(str(path)).select("id", "amount", "offset").collect()))


def test_a_pipeline_tells_how_it_is_stops_when_asked_and_goes_on_where_it_was(
    spark: "SparkSession", broker: Broker, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(PIPELINE.format(name=name, bad='bad_records = "drop"'))
    produce(broker, name, '{"id": 1, "amount": 2.5}', "nonsense", '{"id": 2}')

    def run(topic: StatusTopic, start: Any = None) -> RunStatus:
        options = RunOptions(broker.bootstrap, start=start)
        return Runner(load(file), spark, options, topic, print).run(lambda: False, lambda status: None)

    with StatusTopic(broker.bootstrap) as own, StatusTopic(broker.bootstrap) as others:
        own.create()
        ended: list[RunStatus] = []
        thread = threading.Thread(target=lambda: ended.append(run(own, EARLIEST)))
        thread.start()
        eventually(
            lambda: name in others.statuses() and others.statuses()[name].queries != (),
            "the run tells of itself",
            patience_s=WAIT_S,
        )
        eventually(lambda: others.statuses()[name].queries[0].rows == 3, "three records were read", patience_s=WAIT_S)
        produce(broker, name, '{"id": 3, "amount": 1}')
        eventually(
            lambda: others.statuses()[name].queries[0].rows == 4, "so was the one that came later", patience_s=WAIT_S
        )
        running = others.statuses()[name]
        assert (running.state, running.queries[0].lag) == (State.RUNNING, 0)
        others.ask_to_stop(running)
        thread.join(WAIT_S)
        assert not thread.is_alive() and ended[0].state is State.STOPPED
    with StatusTopic(broker.bootstrap) as topic:
        assert topic.statuses()[name].state is State.STOPPED
    assert written(spark, tmp_path / "lake") == [(1, 2.5, 0), (2, None, 2), (3, 1.0, 3)]

    produce(broker, name, '{"id": 4, "amount": 4}')
    options = RunOptions(broker.bootstrap, is_once=True)
    again = Runner(load(file), spark, options, None, print).run(lambda: False, lambda status: None)
    assert (again.state, again.queries[0].rows) == (State.FINISHED, 1)
    assert [row[0] for row in written(spark, tmp_path / "lake")] == [1, 2, 3, 4]


def test_the_lag_is_that_of_now_though_the_next_batch_is_far_away(
    spark: "SparkSession", broker: Broker, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "shop.toml"
    text = PIPELINE.format(name=name, bad='bad_records = "drop"').replace('"100ms"', '"1h"')
    file.write_text(text.replace('kind = "topic"\n', 'kind = "topic"\nfrom = "earliest"\n'))
    produce(broker, name, '{"id": 1}', '{"id": 2}')
    with RunningPipeline(spark, file, broker.bootstrap) as pipeline:
        pipeline.until(lambda: (pipeline.query("lake").rows, pipeline.query("lake").lag) == (2, 0), "all is read")
        produce(broker, name, '{"id": 3}', '{"id": 4}', '{"id": 5}')
        pipeline.until(lambda: pipeline.query("lake").lag == 3, "three records wait")
        assert pipeline.query("lake").batch == 0


def test_the_queries_of_a_pipeline_start_one_after_another(
    spark: "SparkSession", broker: Broker, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "shop.toml"
    text = PIPELINE.format(name=name, bad=f'dead_letters = "{name}.bad"')
    text += '[sink.show]\nkind = "console"\ninput = "valid"\n'
    file.write_text(text.replace('kind = "topic"\n', 'kind = "topic"\nfrom = "earliest"\n'))
    produce(broker, name, '{"id": 1}')
    most: list[str] = []
    with RunningPipeline(spark, file, broker.bootstrap) as pipeline:

        def have_all_begun() -> bool:
            nonlocal most
            most = max(most, pipeline.starting_queries(), key=len)
            return len(pipeline.status.queries) == 3 and all(
                query.batch is not None for query in pipeline.status.queries
            )

        pipeline.until(have_all_begun, "each has a batch")
    assert len(most) == 1, (most, pipeline.notes)


def test_nobody_knows_the_lag_while_no_broker_answers(tmp_path: Path, name: str) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(PIPELINE.format(name=name, bad=""))
    with Broker() as own:
        lags = Lags(load(file).pipeline, ReadOptions(own.bootstrap, 0))
        produce(own, name, '{"id": 1}', '{"id": 2}', '{"id": 3}')
        read = {TopicPartition(name, 0): 1}
        assert sum((lags.lags(read) or {}).values()) == 2
        assert lags.lags({TopicPartition("another-topic", 0): 1}) is None
    assert lags.lags(read) is None


def test_only_the_columns_that_are_used_are_read(
    spark: "SparkSession", broker: Broker, name: str, tmp_path: Path
) -> None:
    from headwater.pipelines.run.frames import build_frames

    file = tmp_path / "shop.toml"
    file.write_text(PIPELINE.format(name=name, bad='dead_letters = "bad"'))
    frames = build_frames(load(file), spark.newSession(), ReadOptions(broker.bootstrap, 0))
    assert frames.by_name["orders"].columns == ["value", "offset"]
    assert frames.letters["valid"].columns == ["key", "value", "headers"]


def test_a_topic_that_is_not_there_is_told_in_a_sentence(
    spark: "SparkSession", broker: Broker, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(PIPELINE.format(name=name, bad=""))
    options = RunOptions(broker.bootstrap, is_once=True, start=EARLIEST)
    with pytest.raises(PipelineFailed) as failed:
        Runner(load(file), spark, options, None, print).run(lambda: False, lambda status: None)
    assert str(failed.value).startswith(f"sink lake: There is no topic {name} at {broker.bootstrap}.")
    assert "\n" not in str(failed.value)


def test_what_does_not_fit_goes_to_the_topic_of_dead_letters_and_the_rest_to_its_own(
    spark: "SparkSession", broker: Broker, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "shop.toml"
    out = (
        '[sink.out]\nkind = "topic"\ninput = "valid"\ntopic = "{name}.out"\nkey = "id"\nheaders = {{ a = "amount" }}\n'
    )
    file.write_text((PIPELINE + out).format(name=name, bad=f'dead_letters = "{name}.bad"'))
    produce(broker, name, '{"id": 1, "amount": 2.5}', "nonsense")
    options = RunOptions(broker.bootstrap, is_once=True, start=EARLIEST)
    notes: list[str] = []
    runner = Runner(load(file), spark, options, None, print, notes.append)
    status = runner.run(lambda: False, lambda status: None)
    told = [note for note in notes if "too much to do" not in note]  # of a machine that is busy
    assert told == [f"Created topic {name}.out.", f"Created topic {name}.bad."]
    assert {query.query for query in status.queries} == {"lake", "out", "valid_dead_letters"}
    (record,) = consume(broker, f"{name}.out", 1)
    assert (record.key(), record.value()) == (b"1", b'{"offset":0,"id":1,"amount":2.5}')
    assert record.headers() == [("a", b"2.5")]
    (letter,) = consume(broker, f"{name}.bad", 1)
    about = dict(letter.headers())
    assert (letter.key(), letter.value(), about["trace"]) == (b"k", b"nonsense", b"t1")
    assert (about["headwater.dlq.topic"], about["headwater.dlq.offset"]) == (name.encode(), b"1")
    assert about["headwater.dlq.reason"].startswith(b"It is no JSON")


COUNTED = """
[step.both]
kind = "sql"
sql = "select id from valid where id < 5 union all select id from valid where id >= 5"
[step.total]
kind = "sql"
sql = "select count(*) as n from valid"
[sink.out]
kind = "topic"
input = "both"
topic = "{name}.out"
[sink.totals]
kind = "topic"
input = "total"
topic = "{name}.totals"
mode = "update"
[sink.show]
kind = "console"
input = "orders"
rows = 1
"""


def test_rows_are_counted_once_and_groups_have_the_name_of_the_pipeline_and_no_lag(
    spark: "SparkSession", broker: Broker, name: str, tmp_path: Path
) -> None:
    """One query reads the topic in two places, one for dead letters, and one shows a row of many: each has read every
    record once, and so has the pipeline."""
    file = tmp_path / "shop.toml"
    file.write_text((PIPELINE + COUNTED).format(name=name, bad=f'dead_letters = "{name}.bad"'))
    produce(broker, name, *(f'{{"id": {number}}}' for number in range(9)), "nonsense")
    shown: list[str] = []
    first = Runner(load(file), spark, RunOptions(broker.bootstrap, is_once=True, start=EARLIEST), None, shown.append)
    status = first.run(lambda: False, lambda status: None)
    assert {query.query: (query.batch, query.rows, query.lag) for query in status.queries} == dict.fromkeys(
        ("lake", "out", "totals", "show", "valid_dead_letters"), (0, 10, 0)
    )
    assert all((query.rows_per_s or 0) > 0 and (query.processed_per_s or 0) > 0 for query in status.queries)
    assert [(source.source, source.rows, source.lag) for source in status.read] == [(name, 10, 0)]
    assert shown[-1] == "… and 9 more in batch 0"

    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    groups = {group.group_id for group in client.list_consumer_groups().result(WAIT_S).valid}
    ours = {group for group in groups if name in group or group.startswith("headwater-spark-")}
    assert ours == {f"headwater-pipeline-{name}-{query}" for query in ("out", "totals", "valid_dead_letters")}
    for group in ours:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
        topic = f"{name}.bad" if group.endswith("letters") else f"{name}.{group.rpartition('-')[2]}"
        place = KafkaPartition(topic, 0)
        assert consumer.committed([place], WAIT_S)[0].offset == consumer.get_watermark_offsets(place, WAIT_S)[1], group
        consumer.close()

    # Another checkpoint counts its batches from 0 again, under the same names: nothing of it is taken for written.
    fewer = (PIPELINE + COUNTED.partition("[sink.show]")[0]).format(name=name, bad='bad_records = "drop"')
    file.write_text(f'checkpoint = "other"\n{fewer}')
    Runner(load(file), spark, RunOptions(broker.bootstrap, is_once=True, start=EARLIEST), None, shown.append).run(
        lambda: False, lambda status: None
    )
    assert len(consume(broker, f"{name}.out", 18)) == 18
    assert [record.value() for record in consume(broker, f"{name}.totals", 2)] == [b'{"n":9}', b'{"n":9}']


def consume(broker: Broker, topic: str, count: int) -> list[Any]:
    config = {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**config, "isolation.level": "read_committed"})
    consumer.subscribe([topic])
    try:
        found: list[Any] = []
        until_s = time.monotonic() + WAIT_S
        while len(found) < count and time.monotonic() < until_s:
            found += [message for message in consumer.consume(count, timeout=1) if message.error() is None]
        return found
    finally:
        consumer.close()
