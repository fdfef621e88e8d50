"""`headwater transaction`, against a real broker."""

from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.wire import ask


def producer(bootstrap: str, transactional_id: str) -> Producer:
    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0})
    made.init_transactions(10)
    return made


def begin(bootstrap: str, topic: str) -> Producer:
    """A producer with one record in an open transaction, whose transactional id is the topic's name."""
    made = producer(bootstrap, topic)
    made.begin_transaction()
    made.produce(topic, b"open", partition=0)
    assert made.flush(60) == 0
    return made


def test_a_transaction_is_listed_and_described_while_it_runs_and_after(cli: Any, name: str, bootstrap: str) -> None:
    cli.ok("topic", "create", name)
    writer = begin(bootstrap, name)
    (listed,) = [
        row for row in cli.json("transaction", "list", "--state", "Ongoing") if row["transactional_id"] == name
    ]
    described = cli.json("transaction", "describe", name)
    assert described["state"] == "Ongoing" and described["producer_id"] == listed["producer_id"]
    assert described["partitions"] == [[name, 0]]
    assert cli.json("transaction", "list", "--longer-than", "1h") == []
    assert "Ongoing" in cli.ok("transaction", "describe", name)
    writer.commit_transaction(10)
    assert cli.json("transaction", "describe", name)["state"] in ("PrepareCommit", "CompleteCommit")


def test_what_is_unknown_is_said_so(cli: Any, name: str) -> None:
    unknown = cli("transaction", "describe", name)
    assert unknown.exit_code == 1 and name in unknown.stderr
    state = cli("transaction", "list", "--state", "Sleeping")
    assert state.exit_code == 2 and "CompleteCommit" in state.stderr
    topic = cli("transaction", "open", name)
    assert topic.exit_code == 1 and "does not exist" in topic.stderr


def test_an_open_transaction_is_found_and_is_not_hanging_while_its_coordinator_knows_it(
    cli: Any, name: str, bootstrap: str
) -> None:
    cli.ok("topic", "create", name)
    writer = begin(bootstrap, name)
    (found,) = cli.json("transaction", "open", name)
    assert (found["topic"], found["partition"], found["start_offset"]) == (name, 0, 0)
    assert cli.json("transaction", "open", name, "--hanging") == []
    writer.abort_transaction(10)


def test_a_hanging_transaction_is_found_and_aborted(cli: Any, name: str, bootstrap: str) -> None:
    """The coordinator's side is ended in the partition behind its back; the producer then writes on."""
    cli.ok("topic", "create", name)
    writer = begin(bootstrap, name)
    assert cli("transaction", "abort", name, "0", "0").exit_code == 2  # nobody is here to ask
    assert "is open" in cli("transaction", "abort", name, "0", "7", "--yes").stderr
    cli.ok("transaction", "abort", name, "0", "0", "--yes")
    assert cli.json("transaction", "open", name) == []
    cli.ok("produce", name, "after")
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "isolation.level": "read_committed"})
    reader.assign([TopicPartition(name, 0, 0)])
    found = reader.poll(10)
    assert found is not None and found.error() is None and found.value() == b"after"
    reader.close()
    writer.abort_transaction(10)


def test_the_commands_speak_the_requests_of_the_protocol(bootstrap: str) -> None:
    host, port = bootstrap.rsplit(":", 1)
    answer = ask((host, int(port)), 66, 2, state_filters=["Nonsense"], producer_id_filters=[], duration_filter=-1)
    assert list(answer.unknown_state_filters) == ["Nonsense"]
