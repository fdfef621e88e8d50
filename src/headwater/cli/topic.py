"""`headwater topic`: create, list, describe, alter, trim and delete topics."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.brokers import REQUEST_TIMEOUT_S, Bootstrap, ClientFile, brokers_of
from headwater.cli.client import (
    Clients,
    Json,
    admin,
    clients,
    explain,
    parse_assignments,
    say_deleted,
    topic_metadata,
)
from headwater.cli.output import CommandFailed, confirm, note, print_json, print_table, say, size
from headwater.cli.position import known_offset_range, parse_position, resolve
from headwater.model.position import Anchor

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, ClusterMetadata, TopicMetadata

INTERNAL_PREFIX = "__"

app = typer.Typer(help="Create, look at and change topics.", no_args_is_help=True, add_completion=False)

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
Config = Annotated[
    list[str],
    typer.Option("--config", "-c", metavar="NAME=VALUE", help="A topic setting, for example retention.ms=3600000."),
]


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    partition: int
    leader: int
    replicas: list[int]
    in_sync: list[int]
    start_offset: int | None
    """This and `end_offset` are None while the partition has no leader."""
    end_offset: int | None
    size_bytes: int | None


@app.command()
def create(
    topic: Name,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="How many; -1 takes the broker's default.")
    ] = -1,
    replication_factor: Annotated[int, typer.Option(help="Copies of each record; -1 takes the broker's default.")] = -1,
    config: Config = [],  # noqa: B006 (typer copies it)
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="An existing topic is not a failure.")] = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Create a topic."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

    brokers = brokers_of(bootstrap, client_file)
    settings = parse_assignments(config, "--config")
    with admin(brokers) as client:
        new_topic = NewTopic(topic, num_partitions=partitions, replication_factor=replication_factor, config=settings)
        try:
            _result(client.create_topics([new_topic], request_timeout=REQUEST_TIMEOUT_S))
        except KafkaException as error:
            if not (if_not_exists and error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS):
                raise explain(error.args[0], brokers, topic=topic) from error
            note(f"Topic {topic} exists already.")
            return
    say(f"Created topic {topic}.")


@app.command("list")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Also the topics of the broker itself.")] = False,
    json: Json = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """List the topics with what they hold."""
    brokers = brokers_of(bootstrap, client_file)
    with clients(brokers) as both:
        metadata = both.admin.list_topics(timeout=REQUEST_TIMEOUT_S)
        topics = [topic for name, topic in sorted(metadata.topics.items()) if internal or not is_internal(name)]
        summaries = _summaries(both, metadata, topics)
    totals = [
        (name, len(partitions), _total_offsets(partitions), _total_bytes(partitions))
        for name, partitions in summaries.items()
    ]
    if json:
        print_json([dict(zip(("topic", "partitions", "records", "size_bytes"), row, strict=True)) for row in totals])
        return
    print_table(
        ("topic", "partitions", "records", "size"),
        [(name, partitions, records, size(size_bytes)) for name, partitions, records, size_bytes in totals],
        empty="No topics yet. `headwater topic create NAME` makes one, and so does producing to it.",
    )


@app.command()
def describe(
    topic: Name,
    all_config: Annotated[bool, typer.Option("--all", help="Also the settings that have their default.")] = False,
    json: Json = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Show a topic's partitions, offsets, sizes and settings.

    In a compacted topic the offsets have gaps: there are fewer records than offsets."""
    brokers = brokers_of(bootstrap, client_file)
    with clients(brokers) as both:
        described = topic_metadata(both.admin, topic, brokers)
        metadata = both.admin.list_topics(timeout=REQUEST_TIMEOUT_S)
        partitions = _summaries(both, metadata, [described])[topic]
        config = topic_config(both.admin, topic, everything=all_config)
    if json:
        print_json({"topic": topic, "partitions": [asdict(partition) for partition in partitions], "config": config})
        return
    say(f"Topic {topic}: {len(partitions)} partition{'s' * (len(partitions) != 1)}")
    print_table(
        ("partition", "leader", "replicas", "in sync", "start", "end", "size"),
        [
            (p.partition, p.leader, _ids(p.replicas), _ids(p.in_sync), p.start_offset, p.end_offset, size(p.size_bytes))
            for p in partitions
        ],
    )
    if config:
        say("")
        print_table(("setting", "value"), sorted(config.items()))


@app.command()
def alter(
    topic: Name,
    config: Config = [],  # noqa: B006 (typer copies it)
    reset: Annotated[list[str], typer.Option("--reset", metavar="NAME", help="Give a setting its default back.")] = [],  # noqa: B006
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", help="The new, larger number.")] = None,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Change a topic's settings, or give it more partitions."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import (
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        NewPartitions,
        ResourceType,
    )

    brokers = brokers_of(bootstrap, client_file)
    settings = parse_assignments(config, "--config")
    if not settings and not reset and partitions is None:
        raise CommandFailed("Nothing to change.", "Give --config, --reset or --partitions.", exit_code=2)
    with admin(brokers) as client:
        try:
            if settings or reset:
                changes = [
                    ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                    for name, value in settings.items()
                ]
                changes += [ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE) for name in reset]
                resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
                _result(client.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_S))
            if partitions is not None:
                _result(client.create_partitions([NewPartitions(topic, partitions)], request_timeout=REQUEST_TIMEOUT_S))
        except KafkaException as error:
            raise explain(error.args[0], brokers, topic=topic) from error
    say(f"Changed topic {topic}.")


@app.command()
def trim(
    topic: Name,
    before: Annotated[
        str, typer.Option("--before", help="Delete records before this position: an offset, a time, an age, or end.")
    ],
    partition: Annotated[list[int], typer.Option("--partition", help="Only in this partition. May be repeated.")] = [],  # noqa: B006
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Delete a topic's oldest records. They cannot be brought back."""
    brokers = brokers_of(bootstrap, client_file)
    import time

    from confluent_kafka import TopicPartition

    position = parse_position(before, time.time_ns() // 1_000_000)
    if position.anchor is Anchor.BEGINNING:
        raise CommandFailed("There are no records before the beginning.", "Choose a later --before.", exit_code=2)
    with admin(brokers) as client:
        metadata = topic_metadata(client, topic, brokers)
        partitions = [TopicPartition(topic, index) for index in chosen_partitions(metadata, partition)]
        limits = resolve(client, partitions, position)
        confirm(f"Delete records of topic {topic} in {len(limits)} partition(s)?", yes)
        targets = [TopicPartition(name, index, offset) for (name, index), offset in limits.items()]
        futures = client.delete_records(targets, request_timeout=REQUEST_TIMEOUT_S)
        rows = sorted((each.partition, future.result().low_watermark) for each, future in futures.items())
    print_table(("partition", "start"), rows)


@app.command()
def delete(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="The topics' names.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Delete topics and all of their records."""
    brokers = brokers_of(bootstrap, client_file)
    with admin(brokers) as client:
        confirm(f"Delete {', '.join(topics)} and all of its records?", yes)
        say_deleted("topic", client.delete_topics(topics, request_timeout=REQUEST_TIMEOUT_S), brokers)


def is_internal(name: str) -> bool:
    return name.startswith(INTERNAL_PREFIX)


def chosen_partitions(topic: "TopicMetadata", chosen: list[int]) -> list[int]:
    """The chosen partitions, or all of them if none was chosen. Raises CommandFailed if one does not exist."""
    for index in chosen:
        if index not in topic.partitions:
            raise CommandFailed(
                f"Topic {topic.topic} has no partition {index}.",
                f"Its partitions are 0 to {len(topic.partitions) - 1}.",
            )
    return chosen or sorted(topic.partitions)


def _summaries(
    clients: Clients, metadata: "ClusterMetadata", topics: "Iterable[TopicMetadata]"
) -> dict[str, list[PartitionSummary]]:
    from confluent_kafka import TopicPartition

    from headwater.cli.log_dirs import partition_sizes
    from headwater.client.address import BrokerAddress

    topics = list(topics)
    partitions = [TopicPartition(topic.topic, index) for topic in topics for index in topic.partitions]
    offsets: Mapping[tuple[str, int], tuple[int | None, int | None]] = known_offset_range(clients.admin, partitions)
    brokers = [BrokerAddress(broker.host, broker.port) for broker in metadata.brokers.values()]
    sizes = partition_sizes(clients.cluster, brokers)
    return {
        topic.topic: [
            PartitionSummary(
                index,
                partition.leader,
                list(partition.replicas),
                list(partition.isrs),
                *offsets.get((topic.topic, index), (None, None)),
                sizes.get((topic.topic, index)),
            )
            for index, partition in sorted(topic.partitions.items())
        ]
        for topic in topics
    }


def topic_config(client: "AdminClient", topic: str, *, everything: bool) -> dict[str, str]:
    from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = _result(client.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S))
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {name: entry.value for name, entry in sorted(entries.items()) if everything or entry.source == own}


def _result(futures: dict[Any, Any]) -> Any:
    """The result of an admin call for one resource."""
    (future,) = futures.values()
    return future.result()


def _total_offsets(partitions: list[PartitionSummary]) -> int | None:
    """None if no partition has a leader."""
    known = [
        p.end_offset - p.start_offset for p in partitions if p.start_offset is not None and p.end_offset is not None
    ]
    return sum(known) if known else None


def _total_bytes(partitions: list[PartitionSummary]) -> int | None:
    known = [partition.size_bytes for partition in partitions if partition.size_bytes is not None]
    return sum(known) if known else None


def _ids(nodes: list[int]) -> str:
    return ",".join(map(str, nodes))
