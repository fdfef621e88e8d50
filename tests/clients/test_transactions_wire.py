"""Every answer of the transaction APIs, in every version, as Apache Kafka gives it.

Where Headwater waits a moment and Kafka asks its client to come again (CONCURRENT_TRANSACTIONS), both are right."""

import uuid
from collections.abc import Iterator

import pytest

from headwater.records.batch import split
from tests.clients.judged import NewTopic
from tests.clients.transacting import Place
from tests.clients.transaction_wire import (
    END_TXN,
    Code,
    Identity,
    Wire,
)

COMMIT, ABORT = True, False
OLDER_END_VERSIONS = (0, 1, 2, 3, 4)
NEWER_END_VERSION = 5
"""KIP-890: the epoch changes with each transaction."""
MAX_TIMEOUT_MS = 900_000


def fenced_by(version: int, since: int = 2) -> int:
    """Clients that are older than the code for it are told in other words."""
    return Code.PRODUCER_FENCED if version >= since else Code.INVALID_PRODUCER_EPOCH


@pytest.fixture
def wire(bootstrap: str) -> Iterator[Wire]:
    connection = Wire(bootstrap)
    yield connection
    connection.close()


@pytest.fixture
def who(wire: Wire) -> Identity:
    """A producer that has used its id before: there is an epoch behind it."""
    name = f"wire-{uuid.uuid4().hex[:10]}"
    wire.producer(name)
    return wire.producer(name)


@pytest.fixture
def place(new_topic: NewTopic) -> Place:
    return new_topic(), 0


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:10]}"


def begin(wire: Wire, who: Identity, place: Place, *values: bytes, sequence: int = 0) -> None:
    assert wire.add(who, [place]) == [Code.NONE]
    answer = wire.produce(who, place, values or [b"value"], sequence)
    assert answer.error_code == Code.NONE, answer


# InitProducerId


@pytest.mark.parametrize("version", range(6))
def test_an_empty_transactional_id_is_refused(wire: Wire, version: int) -> None:
    assert wire.init("", version).error_code == Code.INVALID_REQUEST


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("timeout_ms", [0, -1, MAX_TIMEOUT_MS + 1])
def test_a_timeout_out_of_bounds_is_refused(wire: Wire, who: Identity, version: int, timeout_ms: int) -> None:
    answer = wire.init(who.transactional_id, version, timeout_ms)
    assert answer.error_code == Code.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize("version", range(6))
def test_the_longest_timeout_is_taken(wire: Wire, who: Identity, version: int) -> None:
    assert wire.init(who.transactional_id, version, MAX_TIMEOUT_MS).error_code == Code.NONE


@pytest.mark.parametrize("version", range(6))
def test_a_producer_without_a_transactional_id_gets_an_id_of_its_own(wire: Wire, version: int) -> None:
    one, two = wire.init(None, version), wire.init(None, version)
    assert (one.error_code, two.error_code) == (Code.NONE, Code.NONE)
    assert (one.producer_epoch, two.producer_epoch) == (0, 0)
    assert one.producer_id != two.producer_id


@pytest.mark.parametrize("version", range(6))
def test_the_same_transactional_id_gets_the_next_epoch(wire: Wire, who: Identity, version: int) -> None:
    answer = wire.init(who.transactional_id, version)
    assert (answer.error_code, answer.producer_id) == (Code.NONE, who.producer_id)
    assert answer.producer_epoch == who.epoch + 1


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_producer_bumps_its_own_epoch_and_a_repeated_bump_is_recognised(
    wire: Wire, who: Identity, version: int
) -> None:
    for _ in range(2):
        answer = wire.init(who.transactional_id, version, given=who)
        assert (answer.error_code, answer.producer_id) == (Code.NONE, who.producer_id)
        assert answer.producer_epoch == who.epoch + 1


@pytest.mark.parametrize("version", [3, 4, 5])
def test_an_epoch_that_is_not_the_last_one_does_not_bump(wire: Wire, who: Identity, version: int) -> None:
    older = wire.init(who.transactional_id, version, given=who.but(epoch=who.epoch - 1))
    newer = wire.init(who.transactional_id, version, given=who.but(epoch=who.epoch + 1))
    other = wire.init(who.transactional_id, version, given=who.but(producer_id=who.producer_id + 1_000_000))
    assert [each.error_code for each in (older, newer, other)] == [fenced_by(version, since=4)] * 3


@pytest.mark.parametrize("version", [3, 4, 5])
def test_half_an_identity_is_refused(wire: Wire, who: Identity, version: int) -> None:
    for half in (who.but(epoch=-1), who.but(producer_id=-1)):
        assert wire.init(who.transactional_id, version, given=half).error_code == Code.INVALID_REQUEST


def test_a_new_producer_aborts_what_its_predecessor_left_open(wire: Wire, who: Identity, place: Place) -> None:
    begin(wire, who, place)
    answer = wire.init(who.transactional_id)
    assert (answer.error_code, answer.producer_id) == (Code.NONE, who.producer_id)
    assert answer.producer_epoch > who.epoch
    assert wire.wait_for_marker(place) == [(0, b"value"), (1, "abort")]
    assert wire.produce(who, place, [b"late"], 1).error_code == Code.INVALID_PRODUCER_EPOCH
    assert wire.end(who, COMMIT).error_code == Code.PRODUCER_FENCED


# AddPartitionsToTxn


@pytest.mark.parametrize("version", range(6))
def test_partitions_are_added_once_however_often_one_asks(
    wire: Wire, who: Identity, new_topic: NewTopic, version: int
) -> None:
    topic = new_topic(2)
    places = [(topic, 0), (topic, 1)]
    assert wire.add(who, places[:1], version) == [Code.NONE]
    assert wire.add(who, places, version) == [Code.NONE, Code.NONE]
    assert wire.add(who, places, version) == [Code.NONE, Code.NONE]
    found = wire.described(who.transactional_id)
    assert found.transaction_state == "Ongoing"
    assert [(each.topic, sorted(each.partitions)) for each in found.topics] == [(topic, [0, 1])]


@pytest.mark.parametrize("version", range(6))
def test_partitions_are_added_for_nobody_but_the_current_producer(
    wire: Wire, who: Identity, place: Place, version: int
) -> None:
    stranger = who.but(transactional_id=f"{who.transactional_id}-unknown")
    assert wire.add(stranger, [place], version) == [Code.INVALID_PRODUCER_ID_MAPPING]
    other = who.but(producer_id=who.producer_id + 1_000_000)
    assert wire.add(other, [place], version) == [Code.INVALID_PRODUCER_ID_MAPPING]
    assert wire.add(who.but(epoch=who.epoch - 1), [place], version) == [fenced_by(version)]
    assert wire.add(who.but(epoch=who.epoch + 1), [place], version) == [fenced_by(version)]
    assert wire.described(who.transactional_id).transaction_state == "Empty"


@pytest.mark.parametrize("version", range(6))
def test_one_partition_that_is_not_there_keeps_the_others_out(
    wire: Wire, who: Identity, place: Place, version: int
) -> None:
    places = [place, (place[0], 7), ("no-such-topic", 0)]
    assert wire.add(who, places, version) == [
        Code.OPERATION_NOT_ATTEMPTED,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert wire.described(who.transactional_id).transaction_state == "Empty"


@pytest.mark.parametrize("version", [4, 5])
def test_transactions_in_one_request_are_judged_apart(wire: Wire, who: Identity, place: Place, version: int) -> None:
    second = wire.producer(f"{who.transactional_id}-second")
    stale = wire.producer(f"{who.transactional_id}-stale").but(epoch=-1)
    asked = [(who, [place], False), (second, [(place[0], 7)], False), (stale, [place], False)]
    assert wire.add_batch(asked, version) == [
        [Code.NONE],
        [Code.UNKNOWN_TOPIC_OR_PARTITION],
        [Code.PRODUCER_FENCED],
    ]


@pytest.mark.parametrize(("version", "refusal"), [(4, Code.TRANSACTION_ABORTABLE), (5, Code.TRANSACTION_ABORTABLE)])
def test_verifying_adds_nothing(wire: Wire, who: Identity, new_topic: NewTopic, version: int, refusal: int) -> None:
    topic = new_topic(2)
    assert wire.add(who, [(topic, 0)], version, is_verify_only=True) == [refusal]
    assert wire.described(who.transactional_id).transaction_state == "Empty"
    assert wire.add(who, [(topic, 0)]) == [Code.NONE]
    answer = wire.add(who, [(topic, 0), (topic, 1)], version, is_verify_only=True)
    assert answer == [Code.NONE, refusal]
    [added] = wire.described(who.transactional_id).topics
    assert list(added.partitions) == [0]
    assert wire.add(who.but(epoch=who.epoch - 1), [(topic, 0)], version, is_verify_only=True) == [Code.PRODUCER_FENCED]
    stranger = who.but(producer_id=who.producer_id + 1_000_000)
    assert wire.add(stranger, [(topic, 0)], version, is_verify_only=True) == [Code.INVALID_PRODUCER_ID_MAPPING]


# Produce


@pytest.mark.parametrize(
    ("version", "refusal"), [(3, Code.INVALID_TXN_STATE), (9, Code.INVALID_TXN_STATE), (11, Code.TRANSACTION_ABORTABLE)]
)
def test_a_partition_that_was_not_added_takes_no_transactional_records(
    wire: Wire, who: Identity, place: Place, version: int, refusal: int
) -> None:
    assert wire.produce(who, place, [b"value"], version=version).error_code == refusal
    assert wire.stored(place) == []
    begin(wire, who, place)


def test_the_newer_produce_adds_the_partition_by_itself(wire: Wire, who: Identity, place: Place) -> None:
    assert wire.produce(who, place, [b"value"], version=12).error_code == Code.NONE
    found = wire.described(who.transactional_id)
    assert found.transaction_state == "Ongoing"
    assert [(each.topic, list(each.partitions)) for each in found.topics] == [(place[0], [0])]


def test_records_of_an_epoch_that_is_over_are_refused(wire: Wire, who: Identity, place: Place) -> None:
    begin(wire, who, place)
    newer = wire.producer(who.transactional_id)
    begin(wire, newer, place)
    for version in (9, 12):
        assert wire.produce(who, place, [b"late"], 1, version).error_code == Code.INVALID_PRODUCER_EPOCH


# EndTxn


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("is_commit", [COMMIT, ABORT])
def test_a_transaction_is_ended_in_each_version(
    wire: Wire, who: Identity, place: Place, version: int, is_commit: bool
) -> None:
    begin(wire, who, place)
    assert wire.end(who, is_commit, version).error_code == Code.NONE
    assert wire.wait_for_marker(place) == [(0, b"value"), (1, "commit" if is_commit else "abort")]
    wire.wait_for_state(who.transactional_id, "CompleteCommit" if is_commit else "CompleteAbort")


@pytest.mark.parametrize("version", range(6))
def test_nobody_but_the_current_producer_ends_its_transaction(
    wire: Wire, who: Identity, place: Place, version: int
) -> None:
    begin(wire, who, place)
    for is_commit in (COMMIT, ABORT):
        stranger = who.but(transactional_id=f"{who.transactional_id}-unknown")
        assert wire.end(stranger, is_commit, version).error_code == Code.INVALID_PRODUCER_ID_MAPPING
        other = who.but(producer_id=who.producer_id + 1_000_000)
        assert wire.end(other, is_commit, version).error_code == Code.INVALID_PRODUCER_ID_MAPPING
        for epoch in (who.epoch - 1, who.epoch + 1):
            assert wire.end(who.but(epoch=epoch), is_commit, version).error_code == fenced_by(version)
    assert wire.described(who.transactional_id).transaction_state == "Ongoing"


@pytest.mark.parametrize("version", OLDER_END_VERSIONS)
@pytest.mark.parametrize("is_commit", [COMMIT, ABORT])
def test_an_end_is_repeated_but_not_turned_round(
    wire: Wire, who: Identity, place: Place, version: int, is_commit: bool
) -> None:
    begin(wire, who, place)
    wire.ended(who, is_commit, version)
    assert wire.end(who, not is_commit, version).error_code == Code.INVALID_TXN_STATE
    assert wire.end(who, is_commit, version).error_code == Code.NONE
    assert wire.end(who, not is_commit, version).error_code == Code.INVALID_TXN_STATE
    assert [value for _, value in wire.wait_for_marker(place)][1:] == ["commit" if is_commit else "abort"]


@pytest.mark.parametrize("is_commit", [COMMIT, ABORT])
def test_with_the_newer_protocol_an_end_is_repeated_by_the_epoch_before(
    wire: Wire, who: Identity, place: Place, is_commit: bool
) -> None:
    begin(wire, who, place)
    following = wire.ended(who, is_commit, NEWER_END_VERSION)
    assert (following.producer_id, following.epoch) == (who.producer_id, who.epoch + 1)
    assert wire.end(who, not is_commit, NEWER_END_VERSION).error_code == Code.INVALID_TXN_STATE
    again = wire.end(who, is_commit, NEWER_END_VERSION)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (
        Code.NONE,
        following.producer_id,
        following.epoch,
    )
    begin(wire, following, place)
    assert wire.end(who, is_commit, NEWER_END_VERSION).error_code == Code.PRODUCER_FENCED, "that was the one before"
    assert wire.end(who, not is_commit, NEWER_END_VERSION).error_code == Code.PRODUCER_FENCED
    assert wire.described(who.transactional_id).transaction_state == "Ongoing"


def test_with_the_newer_protocol_the_marker_ends_the_epoch(wire: Wire, who: Identity, place: Place) -> None:
    begin(wire, who, place)
    following = wire.ended(who, COMMIT, NEWER_END_VERSION)
    wire.wait_for_marker(place)
    batches = [header for header, _ in split(wire.fetch(place, isolation_level=0).records or b"")]
    assert [header.producer_epoch for header in batches] == [who.epoch, following.epoch]
    assert wire.produce(who, place, [b"late"], 1, 12).error_code == Code.INVALID_PRODUCER_EPOCH
    assert wire.produce(following, place, [b"next"], 0, 12).error_code == Code.NONE


@pytest.mark.parametrize("version", OLDER_END_VERSIONS)
def test_nothing_was_begun_and_nothing_can_be_ended(wire: Wire, who: Identity, version: int) -> None:
    for is_commit in (COMMIT, ABORT):
        assert wire.end(who, is_commit, version).error_code == Code.INVALID_TXN_STATE


def test_with_the_newer_protocol_nothing_is_aborted_with_an_epoch_and_never_committed(
    wire: Wire, who: Identity, place: Place
) -> None:
    """A client that does not know whether it sent something aborts to be sure."""
    assert wire.end(who, COMMIT, NEWER_END_VERSION).error_code == Code.INVALID_TXN_STATE
    following = wire.ended(who, ABORT, NEWER_END_VERSION)
    assert following == who.but(epoch=who.epoch + 1)
    begin(wire, following, place)
    third = wire.ended(following, COMMIT, NEWER_END_VERSION)
    wire.wait_for_state(who.transactional_id, "CompleteCommit")
    assert wire.end(third, COMMIT, NEWER_END_VERSION).error_code == Code.INVALID_TXN_STATE
    assert wire.ended(third, ABORT, NEWER_END_VERSION).epoch == third.epoch + 1


@pytest.mark.parametrize("version", OLDER_END_VERSIONS)
def test_requests_on_the_heels_of_an_end_find_it_done_or_are_asked_to_come_again(
    wire: Wire, who: Identity, place: Place, version: int
) -> None:
    begin(wire, who, place)
    for is_commit in (COMMIT, COMMIT, ABORT):
        wire.send_end(who, is_commit, version)
    first, second, turned = (wire.answer(END_TXN, version).error_code for _ in range(3))
    assert first == Code.NONE
    assert second in (Code.NONE, Code.CONCURRENT_TRANSACTIONS)
    assert turned in (Code.INVALID_TXN_STATE, Code.CONCURRENT_TRANSACTIONS)
    assert wire.add(who, [place]) == [Code.NONE]
    assert [value for _, value in wire.stored(place)] == [b"value", "commit"], "one marker, however often one ends"


# AddOffsetsToTxn and TxnOffsetCommit


@pytest.mark.parametrize("version", range(5))
def test_a_group_is_added_for_nobody_but_the_current_producer(
    wire: Wire, who: Identity, group: str, version: int
) -> None:
    stranger = who.but(transactional_id=f"{who.transactional_id}-unknown")
    assert wire.add_offsets(stranger, group, version) == Code.INVALID_PRODUCER_ID_MAPPING
    other = who.but(producer_id=who.producer_id + 1_000_000)
    assert wire.add_offsets(other, group, version) == Code.INVALID_PRODUCER_ID_MAPPING
    assert wire.add_offsets(who.but(epoch=who.epoch - 1), group, version) == fenced_by(version)
    assert wire.add_offsets(who, group, version) == Code.NONE
    [added] = wire.described(who.transactional_id).topics
    assert added.topic == "__consumer_offsets"


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("is_commit", [COMMIT, ABORT])
def test_offsets_are_the_group_s_when_the_transaction_is_committed(
    wire: Wire, who: Identity, group: str, place: Place, version: int, is_commit: bool
) -> None:
    if version < 5:  # the newest adds the group by itself
        assert wire.add_offsets(who, group) == Code.NONE
    assert wire.commit_offsets(who, group, {place: 42}, version) == [Code.NONE]
    assert wire.group_offset(group, place).committed_offset == -1
    wire.ended(who, is_commit, NEWER_END_VERSION if version == 5 else 3)
    wire.wait_for_state(who.transactional_id, "CompleteCommit" if is_commit else "CompleteAbort")
    assert wire.group_offset(group, place).committed_offset == (42 if is_commit else -1)


@pytest.mark.parametrize("version", [7, 8, 9])
def test_who_wants_stable_offsets_only_is_told_that_one_is_not(
    wire: Wire, who: Identity, group: str, place: Place, version: int
) -> None:
    assert wire.add_offsets(who, group) == Code.NONE
    assert wire.commit_offsets(who, group, {place: 7}) == [Code.NONE]
    unstable = wire.group_offset(group, place, require_stable=True, version=version)
    assert (unstable.error_code, unstable.committed_offset) == (Code.UNSTABLE_OFFSET_COMMIT, -1)
    other = wire.group_offset(group, (place[0], 1), require_stable=True, version=version)
    assert other.error_code == Code.NONE, "only what is pending is not stable"
    assert wire.group_offset(group, place, version=version).error_code == Code.NONE
    wire.ended(who, COMMIT)
    wire.wait_for_state(who.transactional_id, "CompleteCommit")
    stable = wire.group_offset(group, place, require_stable=True, version=version)
    assert (stable.error_code, stable.committed_offset) == (Code.NONE, 7)


@pytest.mark.parametrize("version", range(5))
def test_offsets_for_a_group_that_was_not_added_are_refused(
    wire: Wire, who: Identity, group: str, place: Place, version: int
) -> None:
    refusal = Code.TRANSACTION_ABORTABLE if version >= 4 else Code.INVALID_TXN_STATE
    assert wire.commit_offsets(who, group, {place: 42}, version) == [refusal]
    assert wire.group_offset(group, place).committed_offset == -1


@pytest.mark.parametrize("version", range(6))
def test_offsets_are_taken_from_nobody_but_the_current_producer(
    wire: Wire, who: Identity, group: str, place: Place, version: int
) -> None:
    assert wire.add_offsets(who, group) == Code.NONE
    stranger = who.but(transactional_id=f"{who.transactional_id}-unknown")
    assert wire.commit_offsets(stranger, group, {place: 42}, version) == [Code.INVALID_PRODUCER_ID_MAPPING]
    other = who.but(producer_id=who.producer_id + 1_000_000)
    assert wire.commit_offsets(other, group, {place: 42}, version) == [Code.INVALID_PRODUCER_ID_MAPPING]
    assert wire.commit_offsets(who.but(epoch=who.epoch - 1), group, {place: 42}, version) == [
        Code.INVALID_PRODUCER_EPOCH
    ]


@pytest.mark.parametrize("version", range(6))
def test_offsets_of_partitions_that_are_not_there_are_refused_one_by_one(
    wire: Wire, who: Identity, group: str, place: Place, version: int
) -> None:
    assert wire.add_offsets(who, group) == Code.NONE
    offsets = {place: 1, ("no-such-topic", 0): 2}
    assert wire.commit_offsets(who, group, offsets, version) == [Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_who_names_a_membership_must_have_it(wire: Wire, who: Identity, group: str, place: Place, version: int) -> None:
    assert wire.add_offsets(who, group) == Code.NONE
    unknown = wire.commit_offsets(who, group, {place: 1}, version, generation_id=4, member_id="nobody")
    assert unknown in ([Code.UNKNOWN_MEMBER_ID], [Code.ILLEGAL_GENERATION])


# WriteTxnMarkers


@pytest.mark.parametrize("version", [1, 2])
def test_markers_are_written_where_there_is_a_partition(wire: Wire, who: Identity, place: Place, version: int) -> None:
    begin(wire, who, place)
    codes = wire.mark(who, [place, ("no-such-topic", 0)], ABORT, version=version)
    assert codes == [Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert wire.stored(place) == [(0, b"value"), (1, "abort")]
    fetched = wire.fetch(place)
    assert fetched.last_stable_offset == 2
    aborted = [(each.producer_id, each.first_offset) for each in fetched.aborted_transactions]
    assert aborted == [(who.producer_id, 0)]


@pytest.mark.parametrize("version", [1, 2])
def test_a_marker_of_an_older_coordinator_is_refused(wire: Wire, who: Identity, place: Place, version: int) -> None:
    begin(wire, who, place)
    assert wire.mark(who, [place], COMMIT, coordinator_epoch=5, version=version) == [Code.NONE]
    begin(wire, who, place, sequence=1)
    older = wire.mark(who, [place], COMMIT, coordinator_epoch=4, version=version)
    assert older == [Code.TRANSACTION_COORDINATOR_FENCED]
    assert wire.fetch(place).last_stable_offset == 2, "the second transaction is open"


@pytest.mark.parametrize("version", [1, 2])
def test_a_marker_of_an_older_epoch_is_refused(wire: Wire, who: Identity, place: Place, version: int) -> None:
    begin(wire, who, place)
    older = wire.mark(who.but(epoch=who.epoch - 1), [place], COMMIT, version=version)
    assert older == [Code.INVALID_PRODUCER_EPOCH]
    assert wire.fetch(place).last_stable_offset == 0


# What the older protocol lets happen


@pytest.mark.usefixtures("ours_only")
@pytest.mark.parametrize("version", OLDER_END_VERSIONS)
@pytest.mark.parametrize("is_commit", [COMMIT, ABORT])
def test_an_end_that_comes_late_on_an_abandoned_connection_does_not_tear_the_next_transaction(
    wire: Wire, bootstrap: str, who: Identity, place: Place, version: int, is_commit: bool
) -> None:
    """A client sends the end of its first transaction, hears nothing, connects anew, ends it there and begins the
    second with the same epoch. Then the first connection delivers."""
    begin(wire, who, place, b"first")
    other = Wire(bootstrap)
    other.ended(who, COMMIT, version)
    other.wait_for_marker(place)
    begin(other, who, place, b"second", sequence=1)
    late = wire.end(who, is_commit, version)
    assert late.error_code == Code.INVALID_TXN_STATE
    assert other.described(who.transactional_id).transaction_state == "Ongoing"
    assert other.produce(who, place, [b"and more"], 2).error_code == Code.NONE
    assert other.fetch(place).last_stable_offset == 2
    other.ended(who, ABORT, version)
    other.wait_for_marker(place, 2)
    assert [value for _, value in other.stored(place)] == [b"first", "commit", b"second", b"and more", "abort"]
    other.close()


def test_with_the_newer_protocol_a_late_end_has_the_wrong_epoch(
    wire: Wire, bootstrap: str, who: Identity, place: Place
) -> None:
    assert wire.produce(who, place, [b"first"], version=12).error_code == Code.NONE
    other = Wire(bootstrap)
    following = other.ended(who, COMMIT, NEWER_END_VERSION)
    other.wait_for_marker(place)
    assert other.produce(following, place, [b"second"], version=12).error_code == Code.NONE
    assert wire.end(who, COMMIT, NEWER_END_VERSION).error_code == Code.PRODUCER_FENCED
    assert other.fetch(place).last_stable_offset == 2
    other.ended(following, ABORT, NEWER_END_VERSION)
    other.close()
