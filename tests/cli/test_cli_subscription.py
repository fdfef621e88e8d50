"""`headwater subscription`, against a real broker."""

import time
from typing import Any

import pytest
from confluent_kafka import ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from headwater.security.redaction import HIDDEN

DAY_MS = 86_400_000


@pytest.fixture
def topic(cli: Any, name: str) -> str:
    """A topic with five records."""
    cli.ok("topic", "create", name)
    cli.ok("produce", name, *"abcde")
    return name


def test_a_subscription_has_its_position_before_anybody_reads(cli: Any, topic: str) -> None:
    said = cli.ok("subscription", "create", topic, f"{topic}-s", "--from", "earliest", "--retention", "14d")
    assert said == f"Subscribed {topic}-s to {topic} as a stream.\n"
    described = cli.json("subscription", "describe", f"{topic}-s")
    assert described["kind"] == "stream" and described["topics"] == [topic] and described["lag"] == 5
    assert described["retention_ms"] == 14 * DAY_MS
    assert described["partitions"] == [
        {"topic": topic, "partition": 0, "position": 0, "end_offset": 5, "lag": 5},
    ]
    assert described["config"]["headwater.subscription.topic"] == topic
    assert cli.ok("consume", topic, "--group", f"{topic}-s", "--exit-at-end") == "a\nb\nc\nd\ne\n"
    assert cli.json("subscription", "describe", f"{topic}-s")["lag"] == 0


def test_a_subscription_begins_with_what_comes_after_it(cli: Any, topic: str) -> None:
    cli.ok("subscription", "create", topic, f"{topic}-s")
    cli.ok("produce", topic, "f")
    assert cli.ok("consume", topic, "--group", f"{topic}-s", "--exit-at-end") == "f\n"


@pytest.mark.parametrize(("start", "position"), [("beginning", 0), ("2", 2), ("-1", 4), ("1h", 0), ("2099-01-01", 5)])
def test_a_subscription_can_begin_anywhere(cli: Any, topic: str, start: str, position: int) -> None:
    created = cli.json("subscription", "create", topic, f"{topic}-s", "--from", start)
    assert created["partitions"][0]["position"] == position


def test_subscriptions_are_listed_with_the_groups_that_came_by_being_used(cli: Any, topic: str) -> None:
    cli.ok("subscription", "create", topic, f"{topic}-s", "--from", "3", "--retention", "max")
    cli.ok("consume", topic, "--group", f"{topic}-g", "--exit-at-end")
    assert cli.json("subscription", "list", topic) == [
        {
            "subscription": f"{topic}-g",
            "topic": topic,
            "kind": "stream",
            "state": "empty",
            "lag": 0,
            "unknown_partitions": 0,
            "retention_ms": 0,
        },
        {
            "subscription": f"{topic}-s",
            "topic": topic,
            "kind": "stream",
            "state": "empty",
            "lag": 2,
            "unknown_partitions": 0,
            "retention_ms": -1,
        },
    ]
    header, *lines = cli.ok("subscription", "list", topic).splitlines()
    assert header.split() == ["SUBSCRIPTION", "TOPIC", "KIND", "STATE", "LAG", "RETENTION"]
    assert lines[1].split() == [f"{topic}-s", topic, "stream", "empty", "2", "max"]
    assert {row["topic"] for row in cli.json("subscription", "list")} >= {topic}


def test_a_group_that_has_read_goes_on_where_it_is_when_it_becomes_explicit(cli: Any, topic: str) -> None:
    cli.ok("consume", topic, "--group", f"{topic}-g", "--max", "2")
    created = cli.json("subscription", "create", topic, f"{topic}-g", "--retention", "1h")
    assert created["partitions"][0]["position"] == 2


def test_a_description_reads_well(cli: Any, topic: str) -> None:
    cli.ok("subscription", "create", topic, f"{topic}-s", "--from", "1", "--retention", "12h")
    first, *_ = cli.ok("subscription", "describe", f"{topic}-s").splitlines()
    assert first == f"Subscription {topic}-s to {topic}: stream, empty, 0 members, lag 4, retention 12h"


def test_a_description_does_not_show_what_webhooks_are_signed_with(cli: Any, bootstrap: str, topic: str) -> None:
    cli.ok("subscription", "create", topic, f"{topic}-s")
    change = ConfigEntry("headwater.push.secret", "a canary", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ResourceType.GROUP, f"{topic}-s", incremental_configs=[change])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([group])[group].result(60)
    assert cli.json("subscription", "describe", f"{topic}-s")["config"]["headwater.push.secret"] == HIDDEN
    described = cli.ok("subscription", "describe", f"{topic}-s")
    assert HIDDEN in described and "canary" not in described


def test_a_deleted_subscription_leaves_nothing_behind(cli: Any, topic: str) -> None:
    cli.ok("subscription", "create", topic, f"{topic}-s", "--retention", "1d")
    assert cli("subscription", "delete", f"{topic}-s").exit_code == 2
    assert cli.ok("subscription", "delete", f"{topic}-s", "--yes") == f"Deleted subscription {topic}-s.\n"
    gone = cli("subscription", "describe", f"{topic}-s")
    assert gone.exit_code == 1 and gone.stderr.startswith(f"headwater: Subscription {topic}-s does not exist.")
    assert cli.json("subscription", "list", topic) == []
    cli.ok("subscription", "create", topic, f"{topic}-s")
    assert cli.json("subscription", "describe", f"{topic}-s")["retention_ms"] == 0


def test_a_stream_is_not_paused(cli: Any, topic: str) -> None:
    cli.ok("subscription", "create", topic, f"{topic}-s")
    refused = cli("subscription", "pause", f"{topic}-s")
    assert refused.exit_code == 1 and "only queues can be paused" in refused.stderr


def work(bootstrap: str, group: str, topic: str, wait_s: float = 10.0, count: int = 1) -> list[str]:
    """What a worker of a queue gets until it has so many, or its time is over."""
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.subscribe([topic])
    values: list[str] = []
    until_s = time.monotonic() + wait_s
    try:
        while time.monotonic() < until_s and len(values) < count:
            values += [message.value().decode() for message in consumer.poll(0.2) if message.error() is None]
    finally:
        consumer.close()
    return values


def test_a_queue_begins_where_it_was_told_before_its_first_worker_comes(cli: Any, bootstrap: str, topic: str) -> None:
    options = (
        "--queue",
        "--retention",
        "1d",
        "--filter",
        "exists(key)",
        "--dead-letter",
        f"{topic}-dead",
        "--order",
        "key",
    )
    said = cli.ok("subscription", "create", topic, f"{topic}-q", *options)
    assert said == f"Subscribed {topic}-q to {topic} as a queue.\n"
    cli.ok("produce", topic, "unwanted")
    cli.ok("produce", topic, "--key", "k", "wanted")
    described = cli.json("subscription", "describe", f"{topic}-q")
    assert (described["kind"], described["state"], described["lag"]) == ("queue", "empty", 2)
    assert described["partitions"][0]["position"] == 5
    assert (
        described["config"].items()
        >= {
            "headwater.filter": "exists(key)",
            "headwater.share.order": "key",
            "errors.deadletterqueue.topic.name": f"{topic}-dead",
        }.items()
    )
    assert work(bootstrap, f"{topic}-q", topic) == ["wanted"]


def test_queues_are_listed_and_described(cli: Any, topic: str) -> None:
    cli.ok("subscription", "create", topic, f"{topic}-s")
    cli.ok("subscription", "create", topic, f"{topic}-q", "--queue", "--from", "earliest", "--dead-letter", "dead")
    assert cli.json("queue", "list", topic) == [
        {
            "queue": f"{topic}-q",
            "topic": topic,
            "state": "empty",
            "lag": 5,
            "unknown_partitions": 0,
            "dead_letters": "dead",
        }
    ]
    assert [row["kind"] for row in cli.json("subscription", "list", topic)] == ["queue", "stream"]
    assert cli.json("queue", "describe", f"{topic}-q")["partitions"][0]["position"] == 0
    refused = cli("queue", "describe", f"{topic}-s")
    assert refused.exit_code == 1 and f"{topic}-s is a stream, not a queue." in refused.stderr


def test_a_paused_queue_gives_its_workers_nothing(cli: Any, bootstrap: str, topic: str) -> None:
    cli.ok("subscription", "create", topic, f"{topic}-q", "--queue", "--from", "earliest")
    assert cli.ok("subscription", "pause", f"{topic}-q") == f"Paused {topic}-q.\n"
    assert cli.json("subscription", "describe", f"{topic}-q")["state"] == "paused"
    assert work(bootstrap, f"{topic}-q", topic, wait_s=1.0) == []
    cli.ok("subscription", "resume", f"{topic}-q")
    assert work(bootstrap, f"{topic}-q", topic, count=5) == [*"abcde"]


def test_a_deleted_queue_leaves_nothing_behind(cli: Any, topic: str) -> None:
    cli.ok("subscription", "create", topic, f"{topic}-q", "--queue", "--filter", "exists(key)")
    cli.ok("subscription", "delete", f"{topic}-q", "--yes")
    assert cli.json("queue", "list", topic) == []
    cli.ok("subscription", "create", topic, f"{topic}-q")
    described = cli.json("subscription", "describe", f"{topic}-q")
    assert described["kind"] == "stream" and "headwater.filter" not in described["config"]


def test_dead_letters_go_only_to_topics_that_take_them(cli: Any, topic: str) -> None:
    cli.ok("topic", "create", f"{topic}-dead")
    wanted = ("subscription", "create", topic, f"{topic}-q", "--queue", "--dead-letter", f"{topic}-dead")
    refused = cli(*wanted)
    assert refused.exit_code == 1 and "does not take dead letters" in refused.stderr
    cli.ok("topic", "alter", f"{topic}-dead", "--config", "errors.deadletterqueue.group.enable=true")
    cli.ok(*wanted)


def test_a_filter_that_is_none_makes_no_queue(cli: Any, topic: str) -> None:
    refused = cli("subscription", "create", topic, f"{topic}-q", "--queue", "--filter", "key =")
    assert refused.exit_code == 1 and "headwater.filter" in refused.stderr
    assert cli.json("subscription", "list", topic) == []


def test_a_name_is_given_once(cli: Any, topic: str) -> None:
    cli.ok("subscription", "create", topic, f"{topic}-s")
    refused = cli("subscription", "create", topic, f"{topic}-s")
    assert refused.exit_code == 1 and "exists already" in refused.stderr


@pytest.mark.parametrize(
    ("args", "exit_code", "problem"),
    [
        (("--retention", "soon"), 2, "'soon' is not a length of time"),
        (("--from", "yesterday"), 2, "'yesterday' is not a position"),
        (("--filter", "key == 'a'"), 2, "--filter is for queues"),
        (("--order", "key"), 2, "--order is for queues"),
        (("--dead-letter", "dlq"), 2, "--dead-letter is for queues"),
    ],
)
def test_what_cannot_be_is_said(cli: Any, topic: str, args: tuple[str, ...], exit_code: int, problem: str) -> None:
    refused = cli("subscription", "create", topic, f"{topic}-s", *args)
    assert refused.exit_code == exit_code and problem in refused.stderr, refused.output


def test_an_unknown_topic_is_not_subscribed_to(cli: Any, name: str) -> None:
    refused = cli("subscription", "create", name, "s")
    assert refused.exit_code == 1 and f"Topic {name} does not exist." in refused.stderr
    assert cli("subscription", "list", name).exit_code == 1
