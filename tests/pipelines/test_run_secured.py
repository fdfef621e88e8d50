"""A pipeline whose cluster asks who is there: the login of the run is for its own cluster, and no other."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer

from headwater.cli.brokers import brokers_of
from headwater.pipelines.run.cluster_options import cluster_options
from headwater.pipelines.run.progress import State
from headwater.pipelines.run.runner import Runner, RunOptions
from headwater.pipelines.run.status_topic import StatusTopic
from headwater.pipelines.spec.check import load
from headwater.pipelines.spec.sinks import TopicSink
from headwater.pipelines.spec.sources import TopicSource
from headwater.pipelines.spec.starts import EARLIEST
from tests.support.effort import only_long
from tests.support.secured import secured_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "alice", "sasl.password": "hush"}
PIPELINE = """
name = "copy"

[source.orders]
kind = "topic"
topic = "orders"

[sink.copies]
kind = "topic"
input = "orders"
topic = "copies"
format = "raw"
"""


@only_long
def test_a_pipeline_reads_writes_and_reports_with_its_login(spark: "SparkSession", tmp_path: Path) -> None:
    file = tmp_path / "copy.toml"
    file.write_text(PIPELINE)
    with secured_broker(tmp_path, authorization="off") as secured:
        producer = Producer({"bootstrap.servers": secured.inside})
        producer.produce("orders", b"one")
        assert producer.flush(60) == 0
        brokers = brokers_of(None, str(secured.client_file()))
        security = brokers.security_options()
        options = RunOptions(brokers.bootstrap, True, EARLIEST, security)
        assert secured.addresses["SASL_SSL"] in repr(options) and "sasl.password" not in repr(options)
        with StatusTopic(brokers.bootstrap, security) as topic:
            topic.create()
            status = Runner(load(file), spark, options, topic, print).run(lambda: False, lambda status: None)
            assert status.state is State.FINISHED
            assert topic.statuses()["copy"].queries[0].rows == 1
        reader = Consumer({"bootstrap.servers": secured.inside, "group.id": "g", "auto.offset.reset": "earliest"})
        reader.subscribe(["copies"])
        message: Any = reader.poll(60)
        assert message is not None and message.value() == b"one"
        reader.close()


def test_a_login_is_not_shown_to_another_cluster() -> None:
    own = cluster_options(TopicSource(topic="t"), "own:1", LOGIN)
    assert own == {"kafka.bootstrap.servers": "own:1", **{f"kafka.{name}": value for name, value in LOGIN.items()}}
    for elsewhere in (
        TopicSource(topic="t", bootstrap="other:1"),
        TopicSink(topic="t", bootstrap="other:1"),
        TopicSink(topic="t", options={"Kafka.Bootstrap.Servers": "other:1"}),
        TopicSource(topic="t", options={"kafka.security.protocol": "PLAINTEXT"}),
    ):
        assert "hush" not in str(cluster_options(elsewhere, "own:1", LOGIN))
