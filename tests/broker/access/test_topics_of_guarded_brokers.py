"""What users see of topics, and may do with them, where bindings are in force: of what they may not see they learn
nothing, whether it exists or not."""

import uuid
from typing import Any

import pytest

from headwater.broker.handlers import describe_topic_partitions
from headwater.broker.handlers import metadata as metadata_handler
from headwater.model.errors import ErrorCode
from headwater.security.access_codes import SUPPORTED_BITS, Operation, PatternType, Permission, ResourceType
from tests.support.eventually import eventually
from tests.support.guarded import Guarded, assert_hides, assert_says
from tests.support.messages import nested

LIST_OFFSETS, METADATA, CREATE, DELETE, DELETE_RECORDS, EPOCHS, PARTITIONS, PRODUCERS, DESCRIBE = (
    2, 3, 19, 20, 21, 23, 37, 61, 75,
)  # fmt: skip
TOPIC = ResourceType.TOPIC
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NULL = uuid.UUID(int=0)
NOT_ASKED = -(2**31)
BY_NAME, BY_ID = "by name", "by id"


@pytest.fixture
def names(guarded: Guarded) -> dict[str, uuid.UUID]:
    """Two topics by name, the first of which is the user's to know."""
    mark = uuid.uuid4().hex
    return guarded.create(f"known-{mark}", f"secret-{mark}")


def asked(*names: str, **more: Any) -> list[dict[str, Any]]:
    return [nested(name=name, **more) for name in names]


def metadata(guarded: Guarded, version: int, topics: Any, *, creates: bool = False, user: str = "alice") -> Any:
    operations = {f"include_{each}_authorized_operations": True for each in ("topic", "cluster")}
    with guarded.client(user) as client:
        return client.ask(METADATA, version, topics=topics, allow_auto_topic_creation=creates, **operations)


# Metadata


@pytest.mark.parametrize("version", [0, 1, 9, 12, 13])
def test_of_all_topics_those_are_shown_that_may_be_described(
    guarded: Guarded, names: dict[str, uuid.UUID], version: int
) -> None:
    known, secret = names
    every: list[Any] | None = [] if version == 0 else None
    assert_hides(answer := metadata(guarded, version, every), known, secret)
    assert answer.topics == [] and len(answer.brokers) == 1
    guarded.allow(Operation.WRITE, TOPIC, known)
    assert_hides(answer := metadata(guarded, version, every), secret)
    assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [(known, 1)]
    assert {known, secret} <= {topic.name for topic in metadata(guarded, version, every, user="admin").topics}


@pytest.mark.parametrize("version", [8, 9, 10, 12, 13])
def test_a_topic_that_may_not_be_described_looks_like_one_that_is_not_there(
    guarded: Guarded, names: dict[str, uuid.UUID], version: int
) -> None:
    known, secret = names
    guarded.allow(Operation.DESCRIBE, TOPIC, known)
    missing = f"missing-{secret}"
    answer = metadata(guarded, version, asked(secret, known, missing, topic_id=NULL), creates=True)
    by_name = {topic.name: topic for topic in answer.topics}
    assert by_name[known].error_code == ErrorCode.NONE
    assert by_name[known].topic_authorized_operations == 1 << Operation.DESCRIBE
    for name in (secret, missing):
        topic = by_name[name]
        assert (topic.error_code, topic.topic_id, topic.partitions, topic.is_internal) == (REFUSED, NULL, [], False)
        assert topic.topic_authorized_operations == NOT_ASKED
    assert_hides(answer, str(names[secret]))
    assert missing not in guarded.topics()


def test_by_id_a_refused_topic_keeps_its_name_and_an_unknown_id_is_unknown(
    guarded: Guarded, names: dict[str, uuid.UUID]
) -> None:
    known, secret = names
    guarded.allow(Operation.READ, TOPIC, known)
    ids = [names[known], names[secret], uuid.uuid4()]
    answer = metadata(guarded, 12, [nested(name=None, topic_id=each) for each in ids])
    found = {topic.topic_id: (topic.error_code, topic.name) for topic in answer.topics}
    unknown = ErrorCode.UNKNOWN_TOPIC_ID
    assert found == {ids[0]: (0, known), ids[1]: (REFUSED, None), ids[2]: (unknown, None)}
    assert_hides(answer, secret)


def test_topics_are_created_on_their_first_use_by_those_who_may_create_them(guarded: Guarded) -> None:
    mark = uuid.uuid4().hex
    first, second = f"first-{mark}", f"second-{mark}"

    def found(name: str) -> int:
        (topic,) = metadata(guarded, 12, asked(name, topic_id=NULL), creates=True).topics
        return int(topic.error_code)

    def is_created(name: str) -> bool:
        """Kafka makes it later, and says so: UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE."""
        code = found(name)
        assert code in (0, 3, 5), code
        return name in guarded.topics()

    guarded.allow(Operation.CREATE, TOPIC, first)
    assert found(first) == REFUSED, "who may create a topic may not describe it for that"
    guarded.allow(Operation.DESCRIBE, TOPIC, "*")
    assert found(second) == REFUSED and second not in guarded.topics()
    eventually(lambda: is_created(first), "who may create it and describe it has it")
    guarded.allow_on_cluster(Operation.CREATE)
    eventually(lambda: is_created(second), "who may create every topic has it")


def test_what_may_be_done_is_told_of_topics_and_of_the_cluster_to_those_who_may_describe_it(
    guarded: Guarded, names: dict[str, uuid.UUID]
) -> None:
    known, secret = names
    guarded.allow(Operation.ALL, TOPIC, known)
    guarded.allow(Operation.DELETE, TOPIC, known, permission=Permission.DENY)
    guarded.allow(Operation.READ, TOPIC, "secret-", pattern=PatternType.PREFIXED)
    answer = metadata(guarded, 9, asked(known, secret))
    assert [topic.topic_authorized_operations for topic in answer.topics] == [
        SUPPORTED_BITS[TOPIC] & ~(1 << Operation.DELETE),
        1 << Operation.READ | 1 << Operation.DESCRIBE,
    ]
    assert answer.cluster_authorized_operations == 0
    guarded.allow_on_cluster(Operation.ALTER)
    both = 1 << Operation.ALTER | 1 << Operation.DESCRIBE
    assert metadata(guarded, 9, asked(known)).cluster_authorized_operations == both
    assert metadata(guarded, 9, [], user="admin").cluster_authorized_operations == SUPPORTED_BITS[ResourceType.CLUSTER]


# DescribeTopicPartitions


def described(guarded: Guarded, topics: list[str], limit: int = 100, cursor: Any = None) -> Any:
    with guarded.client() as client:
        return client.ask(DESCRIBE, 0, topics=asked(*topics), response_partition_limit=limit, cursor=cursor)


def test_descriptions_of_partitions_hide_topics_and_no_cursor_names_them(guarded: Guarded) -> None:
    mark = uuid.uuid4().hex
    known, secret = [f"a-{mark}", f"c-{mark}"], [f"b-{mark}", f"d-{mark}"]
    guarded.create(*known, *secret)
    for name in known:
        guarded.allow(Operation.DESCRIBE, TOPIC, name)
    pages = []
    cursor: Any = None
    while True:
        answer = described(guarded, [], limit=1, cursor=cursor)
        assert_hides(answer, *secret)
        pages.append([topic.name for topic in answer.topics])
        if answer.next_cursor is None:
            break
        cursor = nested(topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index)
    assert pages == [[known[0]], [known[1]]]


def test_a_refused_topic_among_others_has_neither_partitions_nor_an_id(
    guarded: Guarded, names: dict[str, uuid.UUID]
) -> None:
    known, secret = names
    guarded.allow(Operation.DESCRIBE, TOPIC, known)
    answer = described(guarded, [known, secret, f"missing-{secret}", "no topic's name"])
    found = {topic.name: (topic.error_code, topic.topic_id, len(topic.partitions)) for topic in answer.topics}
    refused = (REFUSED, NULL, 0)
    assert found == {
        known: (0, names[known], 1), secret: refused, f"missing-{secret}": refused, "no topic's name": refused,
    }  # fmt: skip
    operations = {topic.name: topic.topic_authorized_operations for topic in answer.topics}
    assert (operations[known], operations[secret]) == (1 << Operation.DESCRIBE, NOT_ASKED)


# Partitions


def per_partition(guarded: Guarded, api_key: int, version: int, topics: list[str], user: str = "alice") -> list[Any]:
    """The answers for partition 0 of each topic."""
    partition: dict[int, dict[str, Any]] = {
        LIST_OFFSETS: {"partition_index": 0, "timestamp": -1},
        DELETE_RECORDS: {"partition_index": 0, "offset": 0},
        EPOCHS: {"partition": 0, "leader_epoch": 0},
    }
    inside = {"partition_indexes": [0]} if api_key == PRODUCERS else {"partitions": [nested(**partition[api_key])]}
    name = "topic" if api_key == EPOCHS else "name"
    more = {"timeout_ms": 10_000} if api_key == DELETE_RECORDS else {}
    with guarded.client(user) as client:
        answer = client.ask(api_key, version, topics=[nested(**{name: each}, **inside) for each in topics], **more)
    found = {getattr(topic, name): partition for topic in answer.topics for partition in topic.partitions}
    return [found[each] for each in topics]


@pytest.mark.parametrize(
    ("api_key", "version", "needed"),
    [
        (LIST_OFFSETS, 1, Operation.DESCRIBE),
        (LIST_OFFSETS, 11, Operation.DESCRIBE),
        (DELETE_RECORDS, 0, Operation.DELETE),
        (DELETE_RECORDS, 2, Operation.DELETE),
        (EPOCHS, 2, Operation.DESCRIBE),
        (EPOCHS, 4, Operation.DESCRIBE),
        (PRODUCERS, 0, Operation.READ),
    ],
)
def test_partitions_of_refused_topics_say_nothing_and_others_are_answered(
    guarded: Guarded, names: dict[str, uuid.UUID], api_key: int, version: int, needed: Operation
) -> None:
    known, secret = names
    for name in names:
        guarded.write(name, b"a secret")
    nothing = per_partition(guarded, api_key, version, [known])
    assert [each.error_code for each in nothing] == [REFUSED], "the user may do nothing yet"
    guarded.allow(needed, TOPIC, known)
    answers = per_partition(guarded, api_key, version, [secret, known, f"missing-{secret}"])
    assert [each.error_code for each in answers] == [REFUSED, 0, REFUSED]
    assert repr(answers[0]) == repr(answers[2]).replace("missing-", ""), (
        "a topic that is there is answered as one that is not"
    )
    offset = {LIST_OFFSETS: "offset", DELETE_RECORDS: "low_watermark", EPOCHS: "end_offset"}.get(api_key)
    assert offset is None or getattr(answers[0], offset) == -1
    assert [each.error_code for each in per_partition(guarded, api_key, version, [secret], user="admin")] == [0]


def test_of_epochs_a_client_that_acts_as_a_node_may_ask_everything(
    guarded: Guarded, names: dict[str, uuid.UUID]
) -> None:
    guarded.allow_on_cluster(Operation.CLUSTER_ACTION)
    assert [each.error_code for each in per_partition(guarded, EPOCHS, 4, list(names))] == [0, 0]


def test_a_partition_that_is_asked_for_twice_is_refused_like_one_that_is_not(
    guarded: Guarded, names: dict[str, uuid.UUID]
) -> None:
    _, secret = names
    partition = nested(partition_index=0, timestamp=-1)
    with guarded.client() as client:
        answer = client.ask(LIST_OFFSETS, 7, topics=[nested(name=secret, partitions=[partition, partition])])
    assert {each.error_code for each in answer.topics[0].partitions} == {REFUSED}


def test_what_cannot_be_a_topic_has_no_producers_to_hide(guarded: Guarded) -> None:
    (answer,) = per_partition(guarded, PRODUCERS, 0, ["no topic's name"])
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


# CreateTopics, CreatePartitions


def created(guarded: Guarded, names: list[str], version: int = 7, *, user: str = "alice", **more: Any) -> list[Any]:
    fields = {"timeout_ms": 10_000, "validate_only": False, **more}
    topics = asked(*names, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    with guarded.client(user) as client:
        return list(client.ask(CREATE, version, topics=topics, **fields).topics)


@pytest.mark.parametrize("validates_only", [True, False])
def test_a_topic_is_created_by_those_who_may_create_it_or_every_topic(guarded: Guarded, validates_only: bool) -> None:
    mine, other = f"mine-{uuid.uuid4().hex}", f"other-{uuid.uuid4().hex}"
    guarded.allow(Operation.CREATE, TOPIC, "mine-", pattern=PatternType.PREFIXED)
    results = created(guarded, [other, mine, "twice", "twice"], validate_only=validates_only)
    codes = {each.name: each.error_code for each in results}
    assert codes == {other: REFUSED, mine: 0, "twice": ErrorCode.INVALID_REQUEST}
    (message,) = (each.error_message for each in results if each.name == other)
    assert_says(message, f"User:alice may not create topic '{other}'.")
    assert ({mine, other} & guarded.topics()) == (set() if validates_only else {mine})
    guarded.allow_on_cluster(Operation.CREATE)
    assert [each.error_code for each in created(guarded, [other], validate_only=validates_only)] == [0]


@pytest.mark.parametrize("version", [4, 5, 7])
def test_the_settings_of_a_new_topic_are_told_to_those_who_may_describe_them(guarded: Guarded, version: int) -> None:
    guarded.allow_on_cluster(Operation.CREATE)
    (untold,) = created(guarded, [f"a-{uuid.uuid4().hex}"], version)
    assert (untold.error_code, untold.topic_config_error_code) == (0, REFUSED if version >= 5 else 0)
    assert not untold.configs and (untold.num_partitions, untold.replication_factor) == (-1, -1)
    assert (untold.topic_id != NULL) == (version >= 7)
    guarded.allow(Operation.ALTER_CONFIGS, TOPIC, "*")
    (told,) = created(guarded, [f"b-{uuid.uuid4().hex}"], version)
    assert told.topic_config_error_code == 0
    if version >= 5:
        assert told.num_partitions == 1 and "retention.ms" in {each.name for each in told.configs}


def test_partitions_are_added_by_those_who_may_alter_the_topic(guarded: Guarded, names: dict[str, uuid.UUID]) -> None:
    known, secret = names
    guarded.allow(Operation.ALTER, TOPIC, known)
    topics = asked(secret, known, f"missing-{secret}", count=2, assignments=None)
    with guarded.client() as client:
        answer = client.ask(PARTITIONS, 3, topics=topics, timeout_ms=10_000, validate_only=False)
    results = {each.name: each for each in answer.results}
    codes = {name: each.error_code for name, each in results.items()}
    assert codes == {secret: REFUSED, known: 0, f"missing-{secret}": REFUSED}
    assert_says(results[secret].error_message, f"User:alice may not alter topic {secret!r}.")


# DeleteTopics


def deleted(guarded: Guarded, version: int, *topics: Any) -> dict[tuple[str | None, uuid.UUID], Any]:
    """By name and id of the answers, whose order says nothing."""
    fields: dict[str, Any] = {"topic_names": topics} if version < 6 else {"topics": topics}
    with guarded.client() as client:
        answer = client.ask(DELETE, version, timeout_ms=10_000, **fields)
    assert len(answer.responses) == len(topics)
    return {(each.name, each.topic_id): each for each in answer.responses}


@pytest.mark.parametrize("version", [1, 5, 6])
def test_by_name_a_topic_that_may_not_be_described_is_refused_whether_it_is_there_or_not(
    guarded: Guarded, names: dict[str, uuid.UUID], version: int
) -> None:
    known, secret = names
    missing, described = f"missing-{secret}", f"described-{secret}"
    guarded.allow(Operation.DESCRIBE, TOPIC, known)
    guarded.allow(Operation.DESCRIBE, TOPIC, described)
    topics = [known, secret, missing, described]
    answers = deleted(guarded, version, *(topics if version < 6 else asked(*topics, topic_id=NULL)))
    assert {name: each.error_code for (name, _), each in answers.items()} == {
        known: REFUSED, secret: REFUSED, missing: REFUSED, described: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }  # fmt: skip
    assert {topic_id for _, topic_id in answers} == {NULL}
    assert {known, secret} <= guarded.topics()


def test_by_id_a_name_is_told_to_those_who_may_describe_it(guarded: Guarded, names: dict[str, uuid.UUID]) -> None:
    known, secret = names
    guarded.allow(Operation.DESCRIBE, TOPIC, known)
    unknown = uuid.uuid4()
    ids = [names[known], names[secret], unknown]
    answers = deleted(guarded, 6, *(nested(name=None, topic_id=each) for each in ids))
    assert {key: each.error_code for key, each in answers.items()} == {
        (known, names[known]): REFUSED,
        (None, names[secret]): REFUSED,
        (None, unknown): ErrorCode.UNKNOWN_TOPIC_ID,
    }
    for each in answers.values():
        assert_hides(each, secret)


@pytest.mark.parametrize("how", [BY_NAME, BY_ID])
@pytest.mark.parametrize("on_cluster", [False, True])
def test_a_topic_is_deleted_by_those_who_may_delete_it_or_every_topic(
    guarded: Guarded, names: dict[str, uuid.UUID], how: str, on_cluster: bool
) -> None:
    known, secret = names
    if on_cluster:
        guarded.allow_on_cluster(Operation.DELETE)
    else:
        guarded.allow(Operation.DELETE, TOPIC, known)
    chosen = nested(name=known, topic_id=NULL) if how == BY_NAME else nested(name=None, topic_id=names[known])
    (answer,) = deleted(guarded, 6, chosen).values()
    assert (answer.error_code, answer.name, answer.topic_id) == (0, known, names[known])
    eventually(lambda: known not in guarded.topics(), "the topic is gone")
    assert secret in guarded.topics()


# Observed


def test_where_bindings_are_observed_nothing_is_hidden_or_refused(observed: Guarded) -> None:
    topic = f"open-{uuid.uuid4().hex}"
    assert [each.error_code for each in created(observed, [topic])] == [0]
    (seen,) = [each for each in metadata(observed, 12, None).topics if each.name == topic]
    assert seen.topic_authorized_operations == SUPPORTED_BITS[TOPIC]
    assert [each.error_code for each in per_partition(observed, LIST_OFFSETS, 7, [topic])] == [0]
    assert [each.name for each in described(observed, []).topics if each.name == topic] == [topic]
    (answer,) = deleted(observed, 6, nested(name=topic, topic_id=NULL)).values()
    assert answer.error_code == 0


def test_while_many_topics_are_checked_other_requests_are_served(
    guarded: Guarded, names: dict[str, uuid.UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (metadata_handler, describe_topic_partitions):
        monkeypatch.setattr(module, "ASKED_AT_ONCE", 1)
    known, _ = names
    guarded.allow(Operation.DESCRIBE, TOPIC, known)
    assert [topic.name for topic in metadata(guarded, 12, None).topics] == [known]
    assert [topic.name for topic in described(guarded, []).topics] == [known]
