"""Consumer groups as the clients live them: share, rebalance, commit, resume."""

import uuid

from tests.clients.every_client import every_client, every_client_and
from tests.clients.group_reading import (
    PARTITIONS,
    Reading,
    assert_each_once_and_in_order,
    feed,
)
from tests.clients.judged import Client, NewTopic


def new_group() -> str:
    return f"group-{uuid.uuid4().hex[:10]}"


def strategies(client: type[Client]) -> tuple[str, ...]:
    both = ("range", "roundrobin")
    return (*both, "cooperative-sticky") if "cooperative" in client.abilities else both


@every_client_and("strategy", strategies, "group")
def test_a_second_member_takes_a_share_and_gives_it_back(
    client: Client, strategy: str, new_topic: NewTopic, confluent: Client
) -> None:
    topic, group = new_topic(PARTITIONS), new_group()
    feed(confluent, topic, 0, 50)
    reading = Reading(client.member(topic, group, strategy))
    try:
        reading.until_shared()
        reading.until_received(50 * PARTITIONS)
        reading.commit()

        reading.members.append(client.member(topic, group, strategy))
        reading.until_shared()
        feed(confluent, topic, 50, 50)
        reading.until_received(100 * PARTITIONS)
        reading.commit()

        reading.members.pop(0).close()
        reading.until_shared()
        feed(confluent, topic, 100, 50)
        reading.until_received(150 * PARTITIONS)
        assert_each_once_and_in_order(reading.received, 150)
    finally:
        reading.close()


@every_client("group")
def test_a_group_resumes_where_it_committed(client: Client, new_topic: NewTopic, confluent: Client) -> None:
    topic, group = new_topic(PARTITIONS), new_group()
    feed(confluent, topic, 0, 30)
    first = Reading(client.member(topic, group))
    try:
        first.until_received(30 * PARTITIONS)
        first.commit()
    finally:
        first.close()
    feed(confluent, topic, 30, 10)
    second = Reading(client.member(topic, group))
    try:
        second.until_received(10 * PARTITIONS)
    finally:
        second.close()
    assert_each_once_and_in_order(first.received + second.received, 40)


@every_client("static")
def test_a_static_member_returns_to_its_share_without_a_rebalance(
    client: Client, new_topic: NewTopic, confluent: Client
) -> None:
    topic, group = new_topic(PARTITIONS), new_group()
    reading = Reading(client.member(topic, group, instance_id="first"))
    try:
        reading.until_shared()
        reading.members.append(client.member(topic, group, instance_id="second"))
        reading.until_shared()
        feed(confluent, topic, 0, 10)
        reading.until_received(10 * PARTITIONS)
        reading.commit()
        shares = reading.shares()

        reading.members.pop().close()  # a static member does not leave when it closes
        reading.until(lambda: True)
        assert reading.shares() == shares[:1], "the others keep theirs while it is away"
        feed(confluent, topic, 10, 10)
        reading.members.append(client.member(topic, group, instance_id="second"))
        reading.until_received(20 * PARTITIONS)
        assert reading.shares() == shares
        assert_each_once_and_in_order(reading.received, 20)
    finally:
        reading.close()


@every_client("group", "admin")
def test_a_group_is_listed_and_described_while_it_lives_and_after(
    client: Client, new_topic: NewTopic, confluent: Client
) -> None:
    topic, group = new_topic(PARTITIONS), new_group()
    feed(confluent, topic, 0, 1)
    reading = Reading(client.member(topic, group))
    try:
        reading.until_received(PARTITIONS)
        reading.commit()
        assert group in client.groups()
        view = client.group(group)
        assert (view.state, view.members) == ("STABLE", 1)
    finally:
        reading.close()
    view = client.group(group)
    assert (view.state, view.members) == ("EMPTY", 0)
