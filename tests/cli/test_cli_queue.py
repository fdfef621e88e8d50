"""`headwater queue`, against a real broker."""

import time
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Consumer, Producer, ShareConsumer, TopicPartition

from headwater.gateway.redrive.runs import group_of
from tests.support.eventually import eventually

LETTERS = 6


def write_letters(bootstrap: str, topic: str, origin: str, count: int = LETTERS) -> None:
    """Dead letters as a broker writes them: the even ones were rejected, the odd ones failed too often."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        headers = {
            "color": "red" if number % 3 == 0 else "blue",
            "headwater.dlq.topic": origin,
            "headwater.dlq.partition": str(number % 2),
            "headwater.dlq.offset": str(number),
            "headwater.dlq.group": "workers",
            "headwater.dlq.reason": "delivery-limit" if number % 2 else "rejected",
            "headwater.dlq.delivery-count": "5",
        }
        producer.produce(topic, key=f"k{number}", value=f"v{number}", partition=0, headers=list(headers.items()))
    assert producer.flush(60) == 0


def place(bootstrap: str, topic: str, offset: int, metadata: str, expression: str | None = None) -> None:
    """What a run has committed."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group_of(topic, expression)})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset, metadata)], asynchronous=False)
    consumer.close()


@pytest.fixture
def origin(cli: Any, bootstrap: str, name: str) -> str:
    """A topic, and beside it its dead letters."""
    cli.ok("topic", "create", name, "--partitions", "2")
    cli.ok("topic", "create", f"{name}-dlq")
    write_letters(bootstrap, f"{name}-dlq", name)
    return name


def values(cli: Any, topic: str) -> list[str]:
    return sorted(cli.ok("consume", topic, "--exit-at-end").split())


def test_dead_letters_go_back_to_where_they_came_from(cli: Any, origin: str) -> None:
    said = cli.ok("queue", "redrive", f"{origin}-dlq")
    assert said == f"Redrove {LETTERS} records: {LETTERS} to {origin}.\n"
    lines = cli.ok("consume", origin, "--exit-at-end", "--format", "%p %k %v %h").splitlines()
    assert sorted(lines) == sorted(
        f"{number % 2} k{number} v{number} color={'red' if number % 3 == 0 else 'blue'},"
        f"headwater.redrive-of={origin}-dlq/0/{number}"
        for number in range(LETTERS)
    )


def test_a_redrive_can_be_repeated(cli: Any, bootstrap: str, origin: str) -> None:
    cli.ok("queue", "redrive", f"{origin}-dlq")
    assert cli.json("queue", "redrive", f"{origin}-dlq")["redriven"] == 0
    write_letters(bootstrap, f"{origin}-dlq", origin, 1)
    assert cli.json("queue", "redrive", f"{origin}-dlq")["redriven"] == 1
    assert len(values(cli, origin)) == LETTERS + 1


def test_what_a_redrive_sent_before_it_was_killed_is_not_sent_again(cli: Any, bootstrap: str, origin: str) -> None:
    """It sent four records, and had committed none of them."""
    since_ms = time.time_ns() // 1_000_000
    cli.ok("queue", "redrive", f"{origin}-dlq", "--limit", "4")
    place(bootstrap, f"{origin}-dlq", 0, f"since {since_ms} =")
    again = cli.json("queue", "redrive", f"{origin}-dlq")
    assert (again["sent_before"], again["redriven"]) == (4, LETTERS - 4)
    assert values(cli, origin) == [f"v{number}" for number in range(LETTERS)]


def test_a_filter_leaves_the_others_for_later(cli: Any, origin: str) -> None:
    chosen = ("--filter", "header('headwater.dlq.reason') = 'rejected'")
    first = cli.json("queue", "redrive", f"{origin}-dlq", *chosen)
    assert (first["redriven"], first["filtered"]) == (3, 3)
    assert values(cli, origin) == ["v0", "v2", "v4"]
    assert cli.json("queue", "redrive", f"{origin}-dlq", *chosen)["redriven"] == 0
    rest = cli.json("queue", "redrive", f"{origin}-dlq")
    assert (rest["redriven"], rest["sent_before"]) == (3, 3)
    assert values(cli, origin) == [f"v{number}" for number in range(LETTERS)]
    assert cli.json("queue", "redrive", f"{origin}-dlq", "--filter", "header('color') = 'red'")["redriven"] == 0


def test_a_limit_ends_in_the_middle_and_the_next_run_goes_on(cli: Any, origin: str) -> None:
    assert cli.json("queue", "redrive", f"{origin}-dlq", "--limit", "2")["redriven"] == 2
    assert values(cli, origin) == ["v0", "v1"]
    assert cli.json("queue", "redrive", f"{origin}-dlq")["redriven"] == LETTERS - 2


def test_a_dry_run_sends_nothing_and_remembers_nothing(cli: Any, origin: str) -> None:
    said = cli.ok("queue", "redrive", f"{origin}-dlq", "--dry-run")
    assert said == f"Would redrive {LETTERS} records: {LETTERS} to {origin}.\n"
    assert values(cli, origin) == []
    assert cli.json("queue", "redrive", f"{origin}-dlq")["redriven"] == LETTERS


def test_dead_letters_can_go_elsewhere(cli: Any, origin: str) -> None:
    cli.ok("topic", "create", f"{origin}-other")
    cli.ok("produce", f"{origin}-dlq", "stray")
    refused = cli("queue", "redrive", f"{origin}-dlq")
    assert refused.exit_code == 1 and "does not say where it came from" in refused.stderr
    assert len(values(cli, origin)) == LETTERS, "those before it are on their way, and not sent again"
    assert cli.json("queue", "redrive", f"{origin}-dlq", "--to", f"{origin}-other")["redriven"] == 1
    assert values(cli, f"{origin}-other") == ["stray"]


def test_two_runs_that_crash_send_nothing_twice(cli: Any, bootstrap: str, origin: str) -> None:
    """The second one has only marked that it is at work, with another target, when it ends."""
    since_ms = time.time_ns() // 1_000_000
    cli.ok("topic", "create", f"{origin}-other")
    cli.ok("queue", "redrive", f"{origin}-dlq", "--limit", "2")
    place(bootstrap, f"{origin}-dlq", 0, f"since {since_ms} =,{origin}-other")
    again = cli.json("queue", "redrive", f"{origin}-dlq", "--to", f"{origin}-other")
    assert (again["sent_before"], again["redriven"]) == (2, LETTERS - 2)


def test_what_a_filtered_run_sent_before_it_was_killed_is_known_to_others(
    cli: Any, bootstrap: str, origin: str
) -> None:
    since_ms, expression = time.time_ns() // 1_000_000, "header('color') = 'blue'"
    cli.ok("queue", "redrive", f"{origin}-dlq", "--filter", expression, "--limit", "2")
    place(bootstrap, f"{origin}-dlq", 0, f"since {since_ms} =", expression)
    everything = cli.json("queue", "redrive", f"{origin}-dlq")
    assert (everything["sent_before"], everything["redriven"]) == (2, LETTERS - 2)
    assert cli.json("queue", "redrive", f"{origin}-dlq", "--filter", expression)["redriven"] == 0
    assert values(cli, origin) == [f"v{number}" for number in range(LETTERS)]


def test_a_record_that_a_worker_rejects_comes_back_by_a_redrive(cli: Any, bootstrap: str, name: str) -> None:
    cli.ok("topic", "create", name)
    cli.ok("subscription", "create", name, f"{name}-q", "--queue", "--dead-letter", f"{name}-dead")
    cli.ok("produce", name, "--key", "k", "poison")
    assert work(bootstrap, f"{name}-q", name, AcknowledgeType.REJECT) == "poison"
    eventually(
        lambda: any(row["topic"] == f"{name}-dead" and row["records"] for row in cli.json("topic", "list")),
        "a rejected record becomes a dead letter",
    )
    assert cli.ok("queue", "redrive", f"{name}-dead") == f"Redrove 1 record: 1 to {name}.\n"
    assert work(bootstrap, f"{name}-q", name, AcknowledgeType.ACCEPT) == "poison"
    assert cli.json("queue", "describe", f"{name}-q")["lag"] == 0


def work(bootstrap: str, group: str, topic: str, verdict: AcknowledgeType) -> str:
    """Take one record of a queue, and acknowledge it so."""
    mode = {"share.acknowledgement.mode": "explicit"}
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, **mode})
    consumer.subscribe([topic])
    until_s = time.monotonic() + 60
    try:
        while time.monotonic() < until_s:
            for message in consumer.poll(0.2):
                consumer.acknowledge(message, verdict)
                consumer.commit_sync()
                return str(message.value().decode())
        raise AssertionError("a worker gets a record within ten seconds")
    finally:
        consumer.close()


def test_a_letter_without_a_copy_sends_its_original(cli: Any, bootstrap: str, origin: str) -> None:
    cli.ok("topic", "create", f"{origin}-bare")
    cli.ok("produce", origin, "--partition", "1", "--key", "k", "--header", "color=red", "the original")
    producer = Producer({"bootstrap.servers": bootstrap})
    for offset in ("0", "7"):
        where = {"headwater.dlq.topic": origin, "headwater.dlq.partition": "1", "headwater.dlq.offset": offset}
        producer.produce(f"{origin}-bare", headers=list(where.items()))
    assert producer.flush(60) == 0
    done = cli.json("queue", "redrive", f"{origin}-bare")
    assert (done["redriven"], done["gone"]) == (1, 1)
    lines = cli.ok("consume", origin, "--exit-at-end", "--format", "%p %k %v %h").splitlines()
    assert lines[1] == f"1 k the original color=red,headwater.redrive-of={origin}-bare/0/0"


def test_a_rate_is_kept(cli: Any, origin: str) -> None:
    began = time.monotonic()
    assert cli.json("queue", "redrive", f"{origin}-dlq", "--rate", "10/s")["redriven"] == LETTERS
    assert time.monotonic() - began >= 0.5


@pytest.mark.parametrize(
    ("args", "exit_code", "problem"),
    [
        (("--rate", "fast"), 2, "'fast' is not a rate"),
        (("--rate", "0"), 2, "'0' is not a rate"),
        (("--filter", "key ="), 2, "--filter"),
        (("--to", "nowhere-at-all"), 1, "Topic nowhere-at-all does not exist."),
    ],
)
def test_what_cannot_be_redriven_is_said(
    cli: Any, origin: str, args: tuple[str, ...], exit_code: int, problem: str
) -> None:
    refused = cli("queue", "redrive", f"{origin}-dlq", *args)
    assert refused.exit_code == exit_code and problem in refused.stderr, refused.output


def test_dead_letters_of_a_topic_that_is_gone_stay(cli: Any, origin: str) -> None:
    cli.ok("topic", "delete", origin, "--yes")
    refused = cli("queue", "redrive", f"{origin}-dlq")
    assert refused.exit_code == 1 and f"Topic {origin} does not exist." in refused.stderr
    assert origin not in {row["topic"] for row in cli.json("topic", "list")}
