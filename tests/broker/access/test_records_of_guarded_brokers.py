"""Who writes and reads records where bindings are in force: refused partitions are refused for themselves, and what was
taken away is not delivered any more."""

import uuid
from typing import Any

import pytest

from headwater.model.errors import ErrorCode
from headwater.records.batch import TRANSACTIONAL, split
from headwater.records.record import records
from headwater.security.access_codes import Operation, Permission, ResourceType
from tests.support.guarded import OTHER_GUARDED, Guarded, LoggedIn, assert_hides, assert_says, produced
from tests.support.messages import nested

FETCH, METADATA, API_VERSIONS = 1, 3, 18
TOPIC, TRANSACTIONAL_ID = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
REFUSED, REFUSED_ID = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
BY_ID = 13


@pytest.fixture
def names(guarded: Guarded) -> dict[str, uuid.UUID]:
    """Two topics by name, the first of which is the user's to use."""
    mark = uuid.uuid4().hex
    return guarded.create(f"known-{mark}", f"secret-{mark}")


def codes(results: list[Any]) -> list[int]:
    return [each.error_code for each in results]


def read(guarded: Guarded, topic: str) -> list[bytes | None]:
    """All that is there, by the word of somebody who may read it."""
    (partition,) = fetched(guarded.admin, {topic: 0}).values()
    return values(partition)


def values(partition: Any) -> list[bytes | None]:
    batches = split(partition.records or b"")
    return [record.value for header, batch in batches for record in records(batch, header)]


def fetched(
    client: LoggedIn, offsets: dict[Any, int], *, version: int = 11, session: tuple[int, int] = (0, -1), **more: Any
) -> dict[Any, Any]:
    """Partition 0 of each topic, by name or id."""
    return partitions_of(ask_to_fetch(client, offsets, version=version, session=session, **more), version)


def ask_to_fetch(
    client: LoggedIn, offsets: dict[Any, int], *, version: int = 11, session: tuple[int, int] = (0, -1), **more: Any
) -> Any:
    client.send(FETCH, version, **fetch_fields(offsets, version, session, **more))
    return client.answer(FETCH, version)


def fetch_fields(offsets: dict[Any, int], version: int, session: tuple[int, int], **more: Any) -> dict[str, Any]:
    named = "topic_id" if version >= BY_ID else "topic"
    topics = [
        nested(**{named: topic}, partitions=[nested(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)])
        for topic, offset in offsets.items()
    ]
    fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_id": session[0]}
    return {**fields, "session_epoch": session[1], "topics": topics, **more}


def partitions_of(answer: Any, version: int = 11) -> dict[Any, Any]:
    return {
        topic.topic_id if version >= BY_ID else topic.topic: partition
        for topic in answer.responses
        for partition in topic.partitions
    }


# Produce


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_refused_topics_take_nothing_and_others_of_the_request_do(
    guarded: Guarded, names: dict[str, uuid.UUID], version: int
) -> None:
    known, secret = names
    guarded.allow(Operation.WRITE, TOPIC, known)
    with guarded.client() as client:
        wanted = [(name, 0, b"a value") for name in (secret, known, f"missing-{secret}")]
        results = produced(client, wanted, version=version)
    assert codes(results) == [REFUSED, 0, REFUSED]
    assert (results[0].base_offset, results[0].log_start_offset) == (-1, -1)
    if version >= 8:
        assert_says(results[0].error_message, f"User:alice may not write topic {secret!r}.")
    assert (read(guarded, known), read(guarded, secret)) == ([b"a value"], [])
    assert f"missing-{secret}" not in guarded.topics()


def test_by_id_a_refused_topic_keeps_its_name_and_an_unknown_id_is_unknown(
    guarded: Guarded, names: dict[str, uuid.UUID]
) -> None:
    known, secret = names
    guarded.allow(Operation.WRITE, TOPIC, known)
    ids = [names[secret], names[known], uuid.uuid4()]
    with guarded.client() as client:
        results = produced(client, [(each, 0, b"a value") for each in ids], version=13)
    assert codes(results) == [REFUSED, 0, ErrorCode.UNKNOWN_TOPIC_ID]
    for each in results:
        assert_hides(each, secret)
    assert read(guarded, secret) == []
    guarded.allow(Operation.DESCRIBE, TOPIC, secret)
    with guarded.client() as client:
        (result,) = produced(client, [(names[secret], 0, b"a value")], version=13)
    assert result.error_code == REFUSED
    assert_says(result.error_message, f"User:alice may not write topic {secret!r}.")


def test_an_idempotent_producer_needs_the_topic_alone(guarded: Guarded, names: dict[str, uuid.UUID]) -> None:
    known, _ = names
    guarded.allow(Operation.WRITE, TOPIC, known)
    guarded.allow(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, permission=Permission.DENY)
    with guarded.client() as client:
        results = produced(client, [(known, 0, b"a value")], producer_id=1, producer_epoch=0, base_sequence=0)
        assert codes(results) == [0]


@pytest.mark.parametrize("transactional_id", [None, "payments"])
def test_one_transactional_batch_without_the_right_to_its_id_refuses_every_partition(
    guarded: Guarded, names: dict[str, uuid.UUID], transactional_id: str | None
) -> None:
    known, secret = names
    guarded.allow(Operation.WRITE, TOPIC, known)
    if transactional_id is None:
        guarded.allow(Operation.WRITE, TRANSACTIONAL_ID, "*")
    with guarded.client() as client:
        results = produced(
            client, [(known, 0, b"a value"), (secret, 0, b"a value")], transactional_id=transactional_id,
            producer_id=1, base_sequence=0, producer_epoch=0, attributes=TRANSACTIONAL,
        )  # fmt: skip
    assert codes(results) == [REFUSED_ID, REFUSED_ID]
    assert read(guarded, known) == []


def test_a_transactional_id_is_of_no_account_where_no_batch_is_of_a_transaction(
    guarded: Guarded, names: dict[str, uuid.UUID]
) -> None:
    known, _ = names
    guarded.allow(Operation.WRITE, TOPIC, known)
    with guarded.client() as client:
        assert codes(produced(client, [(known, 0, b"a value")], transactional_id="payments")) == [0]


def test_an_allowed_transaction_comes_to_the_check_of_its_topics(guarded: Guarded, names: dict[str, uuid.UUID]) -> None:
    _, secret = names
    guarded.allow(Operation.WRITE, TRANSACTIONAL_ID, "payments")
    with guarded.client() as client:
        results = produced(
            client, [(secret, 0, b"a value")], transactional_id="payments", producer_id=1, base_sequence=0,
            producer_epoch=0, attributes=TRANSACTIONAL,
        )  # fmt: skip
    assert codes(results) == [REFUSED]


def test_without_an_answer_a_refusal_closes_the_connection_and_what_is_allowed_is_written(
    guarded: Guarded, names: dict[str, uuid.UUID]
) -> None:
    known, secret = names
    guarded.allow(Operation.WRITE, TOPIC, known)
    with guarded.client() as client:
        produced(client, [(known, 0, b"first")], acks=0)
        assert client.ask(API_VERSIONS, 0).error_code == 0, "nothing was refused"
        produced(client, [(known, 0, b"second"), (secret, 0, b"a value")], acks=0)
        with pytest.raises((AssertionError, ConnectionError), match=r"closed the connection|reset"):
            client.ask(API_VERSIONS, 0)
    assert (read(guarded, known), read(guarded, secret)) == ([b"first", b"second"], [])


@pytest.mark.skipif(OTHER_GUARDED is not None, reason="Kafka lets super users write them")
def test_internal_topics_are_written_by_nobody_who_may_write_everything(guarded: Guarded) -> None:
    guarded.admin.ask(10, 4, key_type=0, coordinator_keys=["a group"])  # makes the topic of offsets
    guarded.allow(Operation.WRITE, TOPIC, "*")
    for user in ("alice", "admin"):
        with guarded.client(user) as client:
            (result,) = produced(client, [("__consumer_offsets", 0, b"a value")])
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


# Fetch


@pytest.mark.parametrize("version", [4, 11, 12, 13])
def test_refused_partitions_are_read_by_nobody_and_others_are(
    guarded: Guarded, names: dict[str, uuid.UUID], version: int
) -> None:
    known, secret = names
    for name in names:
        guarded.write(name, b"a value")
    guarded.allow(Operation.READ, TOPIC, known)
    guarded.allow(Operation.DESCRIBE, TOPIC, secret)
    topics: list[Any] = [known, secret, f"missing-{secret}"]
    if version >= BY_ID:
        topics = [names[known], names[secret], uuid.uuid4()]
    with guarded.client() as client:
        found = fetched(client, dict.fromkeys(topics, 0), version=version)
    nowhere = ErrorCode.UNKNOWN_TOPIC_ID if version >= BY_ID else REFUSED
    assert [found[each].error_code for each in topics] == [0, REFUSED, nowhere]
    assert values(found[topics[0]]) == [b"a value"]
    assert (found[topics[1]].records or b"", found[topics[1]].high_watermark) == (b"", -1)


def test_every_partition_of_a_session_is_asked_for_at_every_request(
    guarded: Guarded, names: dict[str, uuid.UUID]
) -> None:
    known, secret = names
    for name in names:
        guarded.write(name, b"first")
        guarded.allow(Operation.READ, TOPIC, name)
    with guarded.client() as client:
        first = ask_to_fetch(client, dict.fromkeys(names, 0), session=(0, 0))
        assert [values(each) for each in partitions_of(first).values()] == [[b"first"], [b"first"]]
        guarded.allow(Operation.READ, TOPIC, secret, permission=Permission.DENY)
        second = fetched(client, {}, session=(first.session_id, 1))
        assert second[secret].error_code == REFUSED and not second[secret].records
        assert values(second[known]) == [b"first"], "other partitions of the session are served"
        guarded.forget_bindings()
        guarded.allow(Operation.READ, TOPIC, secret)
        third = fetched(client, {}, session=(first.session_id, 2))
        assert third[known].error_code == REFUSED and values(third[secret]) == [b"first"]


@pytest.mark.skipif(OTHER_GUARDED is not None, reason="Kafka takes nodes for clients, and clients for nodes")
@pytest.mark.parametrize("user", ["alice", "admin"])
def test_no_client_reads_as_a_replica(guarded: Guarded, names: dict[str, uuid.UUID], user: str) -> None:
    known, _ = names
    guarded.allow_on_cluster(Operation.CLUSTER_ACTION)
    with guarded.client(user) as client:
        answer = ask_to_fetch(client, {known: 0}, replica_id=1)
    assert (answer.error_code, answer.responses) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


# Others


def test_a_super_user_is_denied_nothing(guarded: Guarded, names: dict[str, uuid.UUID]) -> None:
    known, _ = names
    guarded.allow(Operation.ALL, TOPIC, "*", user="admin", permission=Permission.DENY)
    guarded.allow(Operation.ALL, TOPIC, "*", user="*", permission=Permission.DENY)
    guarded.write(known, b"a value")
    assert read(guarded, known) == [b"a value"]


def test_where_bindings_are_observed_records_are_written_and_read(observed: Guarded) -> None:
    topic = f"open-{uuid.uuid4().hex}"
    observed.create(topic)
    with observed.client() as client:
        assert codes(produced(client, [(topic, 0, b"a value")])) == [0]
        assert values(fetched(client, {topic: 0})[topic]) == [b"a value"]
