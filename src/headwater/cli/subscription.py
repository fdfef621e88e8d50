"""`headwater subscription`: durable readers of a topic, each with a position, a retention and a way of delivery.

Every group that is used is a subscription. A subscription that is created here has a position before its first reader
comes, keeps it however long nothing reads, and may have the topic keep records longer until it has consumed them.
"""

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.brokers import REQUEST_TIMEOUT_S, Bootstrap, Brokers, ClientFile, brokers_of
from headwater.cli.client import Clients, Json, clients, topic_metadata
from headwater.cli.duration import HELP as DURATION_HELP
from headwater.cli.duration import duration_option_ms
from headwater.cli.group import commit_offsets, describe_group
from headwater.cli.group_lag import lag_fields, shown_lag, table_rows
from headwater.cli.group_requests import (
    KIND,
    OFFSET_RESET,
    PAUSED,
    RETENTION,
    TOPIC,
    alter_group_config,
    share_members,
    start_share_group,
)
from headwater.cli.output import CommandFailed, confirm, print_json, print_table, say
from headwater.cli.position import HELP as POSITION_HELP
from headwater.cli.position import parse_position, resolve
from headwater.cli.subscription_deletion import delete_subscription
from headwater.cli.subscription_status import (
    QUEUE,
    STREAM,
    UNUSED,
    SubscriptionStatus,
    readers,
    subscription,
)
from headwater.cli.topic import topic_config
from headwater.model.durations import format_duration
from headwater.model.position import Position

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

AS_LONG_AS_ALLOWED = "max"
UNLIMITED = -1
GROUP_ENABLE = "errors.deadletterqueue.group.enable"
QUEUE_KEYS = {
    "filter": "headwater.filter",
    "dead-letter": "errors.deadletterqueue.topic.name",
    "order": "headwater.share.order",
}

app = typer.Typer(help="Durable readers of a topic: streams and queues.", no_args_is_help=True, add_completion=False)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The subscription's name: that of its group.")]


@dataclass(frozen=True, slots=True)
class NewSubscription:
    """The command line of `headwater subscription create`."""

    topic: str
    name: str
    is_queue: bool
    start: Position
    is_start_explicit: bool
    """Otherwise a group that has read the topic keeps its positions."""
    dead_letter_topic: str | None
    settings: dict[str, str]
    """Of its group."""


@app.command()
def create(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to subscribe to.")],
    name: Name,
    queue: Annotated[
        bool, typer.Option("--queue", help="Deliver each record to one of many workers (a share group).")
    ] = False,
    retention: Annotated[
        str | None,
        typer.Option(
            help=f"How long to keep what is not consumed, if the topic would not: {DURATION_HELP}; "
            f"{AS_LONG_AS_ALLOWED}: as long as the topic allows."
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            help=f"Where to begin: {POSITION_HELP}; also earliest and latest.",
            show_default="latest; a group that has read the topic goes on where it is",
        ),
    ] = None,
    filter: Annotated[
        str | None, typer.Option("--filter", help="Deliver only records whose key and headers match. Queues only.")
    ] = None,
    dead_letter: Annotated[
        str | None, typer.Option("--dead-letter", metavar="TOPIC", help="Where failed records go. Queues only.")
    ] = None,
    order: Annotated[
        str | None, typer.Option("--order", metavar="key", help="Never two records of a key at once. Queues only.")
    ] = None,
    json: Json = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Subscribe to a topic."""
    brokers = brokers_of(bootstrap, client_file)
    options = {"filter": filter, "dead-letter": dead_letter, "order": order}
    new = NewSubscription(
        topic,
        name,
        is_queue=queue,
        start=parse_position(start or "latest", time.time_ns() // 1_000_000),
        is_start_explicit=start is not None,
        dead_letter_topic=dead_letter,
        settings=_settings(topic, queue, retention, options),
    )
    with clients(brokers) as both:
        _create(both, new, brokers)
        status = known(both, name)
    if json:
        print_json(_as_json(status, []))
        return
    say(f"Subscribed {name} to {topic} as a {status.kind}.")


@app.command("list")
def list_subscriptions(
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Only subscriptions to this topic.")] = None,
    json: Json = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """List the subscriptions: groups of every kind, whether they were used or created."""
    brokers = brokers_of(bootstrap, client_file)
    with clients(brokers) as both:
        if topic is not None:
            topic_metadata(both.admin, topic, brokers)
        rows = [
            {
                "subscription": status.name,
                "topic": each or None,
                "kind": status.kind,
                "state": status.shown_state,
                **lag_fields(status.lag(each or None)),
                "retention_ms": status.retention_ms if status.explicit_topic in ("", each) else 0,
            }
            for status, each in readers(both, topic)
        ]
    if json:
        print_json(rows)
        return
    print_table(
        ("subscription", "topic", "kind", "state", "lag", "retention"),
        [(*row[:-1], _shown_retention(int(str(row[-1])))) for row in table_rows(rows)],
        empty="No subscriptions yet. `headwater subscription create TOPIC NAME` makes one.",
    )


@app.command()
def describe(name: Name, json: Json = False, bootstrap: Bootstrap = None, client_file: ClientFile = None) -> None:
    """Show a subscription's positions, its lag, its members and its settings."""
    brokers = brokers_of(bootstrap, client_file)
    with clients(brokers) as both:
        show_subscription(both, known(both, name), brokers, json=json)


@app.command()
def pause(name: Name, bootstrap: Bootstrap = None, client_file: ClientFile = None) -> None:
    """Hold back the records of a queue. Workers may finish the records that they have."""
    brokers = brokers_of(bootstrap, client_file)
    _set_paused(name, True, brokers)
    say(f"Paused {name}.")


@app.command()
def resume(name: Name, bootstrap: Bootstrap = None, client_file: ClientFile = None) -> None:
    """Go on with a queue that was paused."""
    brokers = brokers_of(bootstrap, client_file)
    _set_paused(name, False, brokers)
    say(f"Resumed {name}.")


@app.command()
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Delete a subscription with its position. Records that the topic kept for it alone may be deleted."""
    brokers = brokers_of(bootstrap, client_file)
    with clients(brokers) as both:
        known(both, name)
        confirm(f"Delete subscription {name} and its position?", yes)
        delete_subscription(both.cluster, name)
    say(f"Deleted subscription {name}.")


def _settings(topic: str, is_queue: bool, retention: str | None, options: dict[str, str | None]) -> dict[str, str]:
    """Of the group of a new subscription. Raises CommandFailed for an option of queues on a stream."""
    settings = {QUEUE_KEYS[option]: value for option, value in options.items() if value is not None}
    if settings and not is_queue:
        option = next(option for option, value in options.items() if value is not None)
        raise CommandFailed(f"--{option} is for queues: a stream delivers every record.", "Add --queue.", exit_code=2)
    settings |= {TOPIC: topic, KIND: QUEUE if is_queue else STREAM}
    if retention is not None:
        settings[RETENTION] = str(_retention_ms(retention))
    if is_queue:
        # For partitions that the topic gets later: all their records came after the subscription.
        settings[OFFSET_RESET] = "earliest"
    return settings


def _create(clients: Clients, new: NewSubscription, brokers: Brokers) -> None:
    """Raises CommandFailed if there is no such topic, or such a subscription already."""
    from confluent_kafka import TopicPartition

    indexes = set(topic_metadata(clients.admin, new.topic, brokers).partitions)
    existing = subscription(clients, new.name)
    _check_is_new(existing, new.name, new.is_queue)
    if new.dead_letter_topic is not None:
        _check_takes_letters(clients.admin, new.dead_letter_topic)
    if existing is not None and not new.is_start_explicit:
        has_position = (each for each in existing.partitions if each.position is not None)
        indexes -= {each.partition for each in has_position if each.topic == new.topic}
    offsets = resolve(clients.admin, [TopicPartition(new.topic, index) for index in sorted(indexes)], new.start)
    if new.is_queue:
        # The settings first: without them a queue that was never used does not exist.
        alter_group_config(clients.cluster, new.name, set=new.settings)
        start_share_group(
            clients.cluster, new.name, new.topic, {index: offset for (_, index), offset in offsets.items()}
        )
    else:
        # The position first: if the command fails in between, it can be repeated.
        commit_offsets(clients.admin, new.name, offsets, brokers)
        alter_group_config(clients.cluster, new.name, set=new.settings)


def known(clients: Clients, name: str) -> SubscriptionStatus:
    status = subscription(clients, name)
    if status is None:
        raise CommandFailed(
            f"Subscription {name} does not exist.", "`headwater subscription list` shows the existing ones."
        )
    return status


def show_subscription(clients: Clients, status: SubscriptionStatus, brokers: Brokers, *, json: bool) -> None:
    members = _members(clients, status, brokers)
    if json:
        print_json(_as_json(status, members))
        return
    say(
        f"Subscription {status.name} to {', '.join(status.topics) or 'nothing yet'}: "
        f"{status.kind}, {status.shown_state}, {len(members)} member{'s' * (len(members) != 1)}, "
        f"lag {shown_lag(lag_fields(status.lag()))}, "
        f"retention {_shown_retention(status.retention_ms)}"
    )
    print_table(
        ("topic", "partition", "position", "end", "lag"),
        [(each.topic, each.partition, each.position, each.end_offset, each.lag) for each in status.partitions],
        empty="It has no position yet.",
    )
    if members:
        say("")
        print_table(tuple(members[0]), [tuple(member.values()) for member in members])
    if status.config.own:
        say("")
        print_table(("setting", "value"), sorted(status.config.shown.items()))


def _set_paused(name: str, is_paused: bool, brokers: Brokers) -> None:
    with clients(brokers) as both:
        if known(both, name).kind != QUEUE:
            raise CommandFailed(
                f"{name} is a stream, and only queues can be paused.",
                "A consumer of a stream does not say for which group it fetches: stop the consumers instead.",
            )
        if is_paused:
            alter_group_config(both.cluster, name, set={KIND: QUEUE, PAUSED: "true"})
        else:
            alter_group_config(both.cluster, name, delete=[PAUSED])


def _check_is_new(status: SubscriptionStatus | None, name: str, queue: bool) -> None:
    if status is None:
        return
    if status.explicit_topic:
        raise CommandFailed(
            f"Subscription {name} exists already.",
            f"`headwater subscription describe {name}` shows it.",
        )
    if (status.kind == QUEUE) != queue:
        raise CommandFailed(f"Group {name} exists already, as a {status.kind}.", "Choose another name.")


def _check_takes_letters(client: "AdminClient", topic: str) -> None:
    """Raises CommandFailed if the topic exists and does not allow dead letters (KIP-1191). A missing one is created by
    the broker."""
    if topic not in client.list_topics(timeout=REQUEST_TIMEOUT_S).topics:
        return
    if topic_config(client, topic, everything=True).get(GROUP_ENABLE) != "true":
        raise CommandFailed(
            f"Topic {topic} exists, and does not take dead letters.",
            f"Allow it: `headwater topic alter {topic} --config {GROUP_ENABLE}=true`.",
        )


def _as_json(status: SubscriptionStatus, members: list[dict[str, object]]) -> dict[str, object]:
    return {
        "subscription": status.name,
        "topics": status.topics,
        "kind": status.kind,
        "state": status.shown_state,
        **lag_fields(status.lag()),
        "retention_ms": status.retention_ms,
        "members": members,
        "partitions": [asdict(each) for each in status.partitions],
        "config": status.config.shown,
    }


def _retention_ms(text: str) -> int:
    return UNLIMITED if text == AS_LONG_AS_ALLOWED else duration_option_ms(text, "--retention")


def _shown_retention(retention_ms: int) -> str:
    if retention_ms == UNLIMITED:
        return AS_LONG_AS_ALLOWED
    return format_duration(retention_ms) if retention_ms else "the topic's"


def _members(clients: Clients, status: SubscriptionStatus, brokers: Brokers) -> list[dict[str, object]]:
    if status.state == UNUSED:
        return []
    if status.kind == QUEUE:
        return share_members(clients.cluster, status.name)
    return [
        {
            "member": member.member_id,
            "client": member.client_id,
            "host": member.host,
            "partitions": len(member.assignment.topic_partitions),
        }
        for member in describe_group(clients, status.name, brokers).members
    ]
