"""Topics that a pipeline writes exist before its queries start: writing does not create them."""

from collections import defaultdict
from collections.abc import Mapping

from headwater.pipelines.run.problems import PipelineFailed
from headwater.pipelines.spec.pipeline import Pipeline
from headwater.pipelines.spec.sinks import TopicSink
from headwater.pipelines.spec.steps import ParseStep

TIMEOUT_S = 15.0
BROKERS_DEFAULT = -1


def create_missing_topics(pipeline: Pipeline, bootstrap: str, security: Mapping[str, str]) -> list[str]:
    """The names of the topics that were created. A sink that has its own options to reach its cluster is left alone.

    Raises PipelineFailed."""
    partition_counts: dict[str, dict[str, int]] = defaultdict(dict)
    for sink in pipeline.sinks:
        if isinstance(sink.does, TopicSink) and not sink.does.options:
            partition_counts[sink.does.bootstrap or bootstrap][sink.does.topic] = (
                sink.does.partitions or BROKERS_DEFAULT
            )
    for step in pipeline.steps:
        if isinstance(step.does, ParseStep) and step.does.dead_letters is not None:
            partition_counts[bootstrap].setdefault(step.does.dead_letters, BROKERS_DEFAULT)
    return [
        name
        for address, topics in partition_counts.items()
        for name in _create_missing(address, security if address == bootstrap else {}, topics)
    ]


def _create_missing(bootstrap: str, security: Mapping[str, str], topics: dict[str, int]) -> list[str]:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    client = AdminClient({"bootstrap.servers": bootstrap, **security, "log_level": 0, "error_cb": lambda error: None})
    try:
        existing = client.list_topics(timeout=TIMEOUT_S).topics
    except KafkaException as error:
        raise PipelineFailed(f"No broker answers at {bootstrap}.", "Start one with `headwater serve`.") from error
    missing = [NewTopic(name, count, -1) for name, count in topics.items() if name not in existing]
    created = []
    for name, future in (client.create_topics(missing, request_timeout=TIMEOUT_S) if missing else {}).items():
        try:
            future.result()
            created.append(name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise PipelineFailed(
                    f"Topic {name} does not exist and cannot be made: {error.args[0].str()}."
                ) from error
    return created
