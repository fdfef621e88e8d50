"""`headwater subscription`: durable readers of a topic, each with a position, a retention and a way of delivery.

A group is a subscription by being used. Created here it is one from the start: it has its position before its first
reader comes, keeps it however long nobody reads, and may ask the topic to keep longer what it has not consumed.
"""

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.client import (
    DEFAULT_BOOTSTRAP,
    REQUEST_TIMEOUT_S,
    Bootstrap,
    Json,
    admin,
    topic_metadata,
)
from headwater.cli.duration import HELP as DURATION_HELP
from headwater.cli.duration import parse_duration_ms, show_duration
from headwater.cli.group import commit_offsets, describe_group
from headwater.cli.group_config import KIND, OFFSET_RESET, PAUSED, RETENTION, TOPIC, alter_group_config
from headwater.cli.group_lag import lag_fields, shown_lag, table_rows
from headwater.cli.output import Problem, confirm, print_json, print_table, say
from headwater.cli.position import HELP as POSITION_HELP
from headwater.cli.position import parse_position, resolve
from headwater.cli.share_group import share_members, start_share_group
from headwater.cli.subscription_facts import (
    QUEUE,
    STREAM,
    UNUSED,
    SubscriptionFacts,
    readers,
    subscription,
)
from headwater.cli.topic import topic_config
from headwater.cli.unsubscribing import unsubscribe

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
        str | None, typer.Option("--filter", help="Deliver only records whose key and headers are so. Queues only.")
    ] = None,
    dead_letter: Annotated[
        str | None, typer.Option("--dead-letter", metavar="TOPIC", help="Where failed records go. Queues only.")
    ] = None,
    order: Annotated[
        str | None, typer.Option("--order", metavar="key", help="Never two records of a key at once. Queues only.")
    ] = None,
    json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Subscribe to a topic."""
    from confluent_kafka import TopicPartition

    given = {"filter": filter, "dead-letter": dead_letter, "order": order}
    settings = {QUEUE_KEYS[option]: value for option, value in given.items() if value is not None}
    if settings and not queue:
        option = next(option for option, value in given.items() if value is not None)
        raise Problem(f"--{option} is for queues: who reads a stream gets every record.", "Add --queue.", exit_code=2)
    settings |= {TOPIC: topic, KIND: QUEUE if queue else STREAM}
    if retention is not None:
        settings[RETENTION] = str(_retention_ms(retention))
    if queue:
        # For partitions that the topic gets later: nothing in them came before the subscription.
        settings[OFFSET_RESET] = "earliest"
    position = parse_position(start or "latest", time.time_ns() // 1_000_000)
    with admin(bootstrap) as client:
        indexes = set(topic_metadata(client, topic, bootstrap).partitions)
        existing = subscription(client, name)
        _check_is_new(existing, name, queue)
        if dead_letter is not None:
            _check_takes_letters(client, dead_letter)
        if existing is not None and start is None:
            has_position = (place for place in existing.places if place.position is not None)
            indexes -= {place.partition for place in has_position if place.topic == topic}
        offsets = resolve(client, [TopicPartition(topic, index) for index in sorted(indexes)], position)
        if queue:
            # The settings first: they are what makes a queue that nobody has used yet.
            alter_group_config(client, name, bootstrap, set=settings)
            start_share_group(client, name, topic, {index: offset for (_, index), offset in offsets.items()})
        else:
            # The position first: should this end in between, it can be repeated.
            commit_offsets(client, name, offsets, bootstrap)
            alter_group_config(client, name, bootstrap, set=settings)
        facts = known(client, name)
    if json:
        print_json(_as_json(facts, []))
        return
    say(f"Subscribed {name} to {topic} as a {settings[KIND]}.")


@app.command("list")
def list_subscriptions(
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Only those of this topic.")] = None,
    json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List the subscriptions: groups of every kind, whether they were used or created."""
    with admin(bootstrap) as client:
        if topic is not None:
            topic_metadata(client, topic, bootstrap)
        rows = [
            {
                "subscription": facts.name,
                "topic": each or None,
                "kind": facts.kind,
                "state": facts.shown_state,
                **lag_fields(facts.lag(each or None)),
                "retention_ms": facts.retention_ms if facts.explicit_topic in ("", each) else 0,
            }
            for facts, each in readers(client, topic)
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
def describe(name: Name, json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show where a subscription is, what it lacks, who reads it, and its settings."""
    with admin(bootstrap) as client:
        show_subscription(client, known(client, name), bootstrap, json=json)


@app.command()
def pause(name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Hold back the records of a queue. What workers have already, they may finish."""
    _set_paused(name, True, bootstrap)
    say(f"Paused {name}.")


@app.command()
def resume(name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Go on with a queue that was paused."""
    _set_paused(name, False, bootstrap)
    say(f"Resumed {name}.")


@app.command()
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Unsubscribe: the position is forgotten, and what was kept for it may go."""
    with admin(bootstrap) as client:
        known(client, name)
        confirm(f"Delete subscription {name} and its position?", yes)
        unsubscribe(client, name, bootstrap)
    say(f"Deleted subscription {name}.")


def known(client: "AdminClient", name: str) -> SubscriptionFacts:
    facts = subscription(client, name)
    if facts is None:
        raise Problem(f"Subscription {name} does not exist.", "`headwater subscription list` shows those that do.")
    return facts


def show_subscription(client: "AdminClient", facts: SubscriptionFacts, bootstrap: str, *, json: bool) -> None:
    members = _members(client, facts, bootstrap)
    if json:
        print_json(_as_json(facts, members))
        return
    say(
        f"Subscription {facts.name} to {', '.join(facts.topics) or 'nothing yet'}: {facts.kind}, {facts.shown_state}, "
        f"{len(members)} member{'s' * (len(members) != 1)}, lag {shown_lag(lag_fields(facts.lag()))}, "
        f"retention {_shown_retention(facts.retention_ms)}"
    )
    print_table(
        ("topic", "partition", "position", "end", "lag"),
        [(place.topic, place.partition, place.position, place.end_offset, place.lag) for place in facts.places],
        empty="It has no position yet.",
    )
    if members:
        say("")
        print_table(tuple(members[0]), [tuple(member.values()) for member in members])
    if facts.config.own:
        say("")
        print_table(("setting", "value"), sorted(facts.config.own.items()))


def _set_paused(name: str, is_paused: bool, bootstrap: str) -> None:
    with admin(bootstrap) as client:
        if known(client, name).kind != QUEUE:
            raise Problem(
                f"{name} is a stream, and only queues can be paused.",
                "Who reads a stream fetches records without saying for which group: stop its consumers instead.",
            )
        if is_paused:
            alter_group_config(client, name, bootstrap, set={KIND: QUEUE, PAUSED: "true"})
        else:
            alter_group_config(client, name, bootstrap, delete=[PAUSED])


def _check_is_new(facts: SubscriptionFacts | None, name: str, queue: bool) -> None:
    if facts is None:
        return
    if facts.explicit_topic:
        raise Problem(
            f"Subscription {name} exists already.",
            f"`headwater subscription describe {name}` shows it.",
        )
    if (facts.kind == QUEUE) != queue:
        raise Problem(f"Group {name} exists already, as a {facts.kind}.", "Choose another name.")


def _check_takes_letters(client: "AdminClient", topic: str) -> None:
    """A topic that does not exist is made for it; one that does must have been given for that (KIP-1191)."""
    if topic not in client.list_topics(timeout=REQUEST_TIMEOUT_S).topics:
        return
    if topic_config(client, topic, everything=True).get(GROUP_ENABLE) != "true":
        raise Problem(
            f"Topic {topic} exists, and does not take dead letters.",
            f"Allow it: `headwater topic alter {topic} --config {GROUP_ENABLE}=true`.",
        )


def _as_json(facts: SubscriptionFacts, members: list[dict[str, object]]) -> dict[str, object]:
    return {
        "subscription": facts.name,
        "topics": facts.topics,
        "kind": facts.kind,
        "state": facts.shown_state,
        **lag_fields(facts.lag()),
        "retention_ms": facts.retention_ms,
        "members": members,
        "partitions": [asdict(place) for place in facts.places],
        "config": facts.config.own,
    }


def _retention_ms(text: str) -> int:
    return UNLIMITED if text == AS_LONG_AS_ALLOWED else parse_duration_ms(text, "--retention")


def _shown_retention(retention_ms: int) -> str:
    if retention_ms == UNLIMITED:
        return AS_LONG_AS_ALLOWED
    return show_duration(retention_ms) if retention_ms else "the topic's"


def _members(client: "AdminClient", facts: SubscriptionFacts, bootstrap: str) -> list[dict[str, object]]:
    if facts.state == UNUSED:
        return []
    if facts.kind == QUEUE:
        return [asdict(member) for member in share_members(client, facts.name)]
    return [
        {
            "member": member.member_id,
            "client": member.client_id,
            "host": member.host,
            "partitions": len(member.assignment.topic_partitions),
        }
        for member in describe_group(client, facts.name, bootstrap).members
    ]
