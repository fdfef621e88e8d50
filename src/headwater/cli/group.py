"""`headwater group`: consumer groups, how far they have read, and resetting their offsets."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.brokers import REQUEST_TIMEOUT_S, Bootstrap, Brokers, ClientFile, brokers_of
from headwater.cli.client import (
    Clients,
    Json,
    admin,
    clients,
    cluster,
    explain,
    say_deleted,
    topic_metadata,
)
from headwater.cli.group_departures import read_departures
from headwater.cli.group_lag import lag_fields, shown_lag
from headwater.cli.group_requests import TOPIC, group_configs, list_groups, no_such_group
from headwater.cli.metrics_address import DEFAULT_METRICS, Metrics
from headwater.cli.metrics_token import MetricsToken, metrics_token
from headwater.cli.output import CommandFailed, confirm, note, print_json, print_table, say
from headwater.cli.position import HELP, known_offset_range, parse_position, resolve
from headwater.cli.topic import chosen_partitions
from headwater.client.librdkafka import committed_positions
from headwater.model.group_lag import PartitionLag, partition_lag, partitions_read, total

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from headwater.client.admin.groups import GroupListing

app = typer.Typer(help="Look at consumer groups, and move them.", no_args_is_help=True, add_completion=False)

Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """How far a group has read one partition. `lag` counts offsets; before the first commit, from the start of the log.
    It and `end_offset` are None while the partition has no leader."""

    topic: str
    partition: int
    committed: int | None
    end_offset: int | None
    lag: int | None
    member: str | None


@app.command("list")
def list_all(json: Json = False, bootstrap: Bootstrap = None, client_file: ClientFile = None) -> None:
    """List the groups. Groups of type share are queues: `headwater queue` shows more of them."""
    brokers = brokers_of(bootstrap, client_file)
    with cluster(brokers) as client:
        groups = sorted(list_groups(client).values(), key=lambda group: group.name)
    rows = [{"group": group.name, "state": group.state, "type": group.kind or "unknown"} for group in groups]
    if json:
        print_json(rows)
        return
    print_table(("group", "state", "type"), [tuple(row.values()) for row in rows], empty="No groups yet.")


@app.command()
def describe(group: Name, json: Json = False, bootstrap: Bootstrap = None, client_file: ClientFile = None) -> None:
    """Show a group's members, and how far it is in each partition."""
    brokers = brokers_of(bootstrap, client_file)
    with clients(brokers) as both:
        described = describe_group(both, group, brokers)
        progress = progress_of(both, described)
    members = [
        {
            "member": member.member_id,
            "client": member.client_id,
            "host": member.host,
            "instance": member.group_instance_id,
            "partitions": len(member.assignment.topic_partitions),
        }
        for member in described.members
    ]
    state = word(described.state)
    lag = total(PartitionLag(row.topic, row.partition, row.committed, row.end_offset, row.lag) for row in progress)
    if json:
        rows = [asdict(row) for row in progress]
        print_json({"group": group, "state": state, **lag_fields(lag), "members": members, "partitions": rows})
        return
    assignor = f", {described.partition_assignor}" if described.partition_assignor else ""
    say(
        f"Group {group}: {state}{assignor}, {len(members)} member{'s' * (len(members) != 1)}, "
        f"lag {shown_lag(lag_fields(lag))}"
    )
    print_table(
        ("topic", "partition", "committed", "end", "lag", "member"),
        [(row.topic, row.partition, row.committed, row.end_offset, row.lag, row.member) for row in progress],
        empty="It has committed nothing.",
    )
    if members:
        say("")
        print_table(tuple(members[0]), [tuple(member.values()) for member in members])


@app.command()
def health(
    group: Name,
    metrics: Metrics = DEFAULT_METRICS,
    metrics_token_file: MetricsToken = None,
    json: Json = False,
) -> None:
    """Show which members left a group, and why, since the broker started."""
    left = read_departures(group, metrics, metrics_token(metrics_token_file))
    if json:
        print_json(left)
        return
    rows = [
        (
            datetime.fromtimestamp(each["at_ms"] / 1000, UTC).isoformat(timespec="seconds"),
            each["member"],
            each["instance"],
            each["client"],
            each["host"],
            ": ".join(filter(None, (each["reason"], each["explanation"]))),
        )
        for each in left
    ]
    print_table(
        ("left at", "member", "instance", "client", "host", "reason"),
        rows,
        empty="No member has left since the broker started.",
    )


@app.command()
def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...", help="The groups' names.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Delete groups and the offsets they have committed."""
    brokers = brokers_of(bootstrap, client_file)
    with admin(brokers) as client:
        confirm(f"Delete {', '.join(groups)} and the committed offsets?", yes)
        say_deleted("group", client.delete_consumer_groups(groups, request_timeout=REQUEST_TIMEOUT_S), brokers)


@app.command("reset-offsets")
def reset_offsets(
    group: Name,
    to: Annotated[str, typer.Option("--to", help=f"Where to go: {HELP}.")],
    topic: Annotated[
        list[str], typer.Option("--topic", "-t", help="A topic. May be repeated; all it has read if absent.")
    ] = [],  # noqa: B006
    partition: Annotated[list[int], typer.Option("--partition", help="Only this partition of the topics.")] = [],  # noqa: B006
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would happen, and do nothing.")] = False,
    json: Json = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Move a group without running members to other offsets. A group that does not exist is created there."""
    from confluent_kafka import TopicPartition

    brokers = brokers_of(bootstrap, client_file)
    position = parse_position(to, time.time_ns() // 1_000_000)
    with clients(brokers) as (client, own_client):
        groups = list_groups(own_client)
        _check_no_queue(groups.get(group))
        committed = _committed(client, group)
        topics = topic or sorted({name for name, _ in committed})
        if not topics:
            if group not in groups:
                raise CommandFailed(
                    f"Group {group} does not exist.", "To set its offsets before it is used, name a --topic."
                )
            raise CommandFailed(f"Group {group} has read no topic yet.", "Name one with --topic.")
        partitions = [
            TopicPartition(name, index)
            for name in topics
            for index in chosen_partitions(topic_metadata(client, name, brokers), partition)
        ]
        targets = resolve(client, partitions, position)
        if not dry_run:
            commit_offsets(client, group, targets, brokers)
    rows = [
        {"topic": name, "partition": index, "from": committed.get((name, index)), "to": offset}
        for (name, index), offset in sorted(targets.items())
    ]
    if json:
        print_json(rows)
        return
    if dry_run:
        note("Dry run: nothing was changed.")
    print_table(("topic", "partition", "from", "to"), [tuple(row.values()) for row in rows])


def _committed(client: "AdminClient", group: str) -> dict[tuple[str, int], int]:
    """Offsets by topic and partition."""
    return {(each.topic, each.partition): each.offset for each in committed_positions(client, [group])[group]}


def _check_no_queue(listed: "GroupListing | None") -> None:
    if listed is not None and listed.is_share:
        raise CommandFailed(
            f"Group {listed.name} is a queue, and has no committed offsets.",
            "Kafka's tool `kafka-share-groups --reset-offsets` moves it.",
        )


def describe_group(clients: Clients, group: str, brokers: Brokers) -> Any:
    from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException

    (future,) = clients.admin.describe_consumer_groups([group], request_timeout=REQUEST_TIMEOUT_S).values()
    try:
        described = future.result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            raise no_such_group(clients.cluster, group) from error
        raise explain(error.args[0], brokers, group=group) from error
    # Older versions of the API describe an unknown group as dead.
    if described.state == ConsumerGroupState.DEAD:
        raise no_such_group(clients.cluster, group)
    return described


def progress_of(clients: Clients, described: Any) -> list[PartitionProgress]:
    from confluent_kafka import TopicPartition

    owners = {
        (each.topic, each.partition): member.client_id or member.member_id
        for member in described.members
        for each in member.assignment.topic_partitions
    }
    group = described.group_id
    committed = _committed(clients.admin, group)
    existing = clients.admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    read = partitions_read(
        committed,
        owners,
        {name: len(topic.partitions) for name, topic in existing.items()},
        is_simple=described.is_simple_consumer_group,
        subscribed=group_configs(clients.cluster, [group])[group].values.get(TOPIC, ""),
    )
    ranges = known_offset_range(clients.admin, [TopicPartition(*partition) for partition in read])
    lags = [
        partition_lag(partition, committed.get(partition), *ranges.get(partition, (None, None))) for partition in read
    ]
    return [
        PartitionProgress(each.topic, each.partition, each.position, each.end_offset, each.lag, owners.get(partition))
        for partition, each in zip(read, lags, strict=True)
    ]


def commit_offsets(client: "AdminClient", group: str, offsets: Mapping[tuple[str, int], int], brokers: Brokers) -> None:
    """Set the offsets of a group that has no running members. Raises CommandFailed."""
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

    if not offsets:
        return
    partitions = [TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]
    request = [ConsumerGroupTopicPartitions(group, partitions)]
    try:
        (future,) = client.alter_consumer_group_offsets(request, request_timeout=REQUEST_TIMEOUT_S).values()
        for partition in future.result().topic_partitions:
            if partition.error is not None:
                raise KafkaException(partition.error)
    except KafkaException as error:
        raise explain(error.args[0], brokers, group=group) from error


def word(value: Any) -> str:
    return str(value.name).lower().replace("_", " ") if value is not None else "unknown"
