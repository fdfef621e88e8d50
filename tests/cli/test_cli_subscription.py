"""`headwater subscription`, against a real broker."""

from typing import Any

import pytest

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
        {"subscription": f"{topic}-g", "topic": topic, "kind": "stream", "state": "empty", "lag": 0, "retention_ms": 0},
        {
            "subscription": f"{topic}-s",
            "topic": topic,
            "kind": "stream",
            "state": "empty",
            "lag": 2,
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
