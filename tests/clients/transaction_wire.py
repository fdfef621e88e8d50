"""The requests of transactions by hand, in any version: for what no client library sends, or sends in one version only.

Nothing is tried again, except where a broker that has just started, or that still ends the transaction before, asks for
it in so many words."""

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headwater.records.batch import split
from headwater.records.build import build_batch
from headwater.records.record import Record, records
from tests.clients.transacting import Place
from tests.support.eventually import eventually
from tests.support.messages import nested
from tests.support.wire import WireClient

PRODUCE, FETCH, OFFSET_FETCH, FIND_COORDINATOR, API_VERSIONS = 0, 1, 9, 10, 18
INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, WRITE_MARKERS, TXN_OFFSET_COMMIT = 22, 24, 25, 26, 27, 28
DESCRIBE_TRANSACTIONS = 65
TRANSACTIONAL = 0x10
CONTROL = 0x20
TRANSACTION_KEY = 1


class Code:
    """Numbers of the Kafka protocol."""

    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    ILLEGAL_GENERATION = 22
    UNKNOWN_MEMBER_ID = 25
    INVALID_REQUEST = 42
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    OPERATION_NOT_ATTEMPTED = 55
    UNSTABLE_OFFSET_COMMIT = 88
    PRODUCER_FENCED = 90
    TRANSACTION_ABORTABLE = 120


BUSY = (
    Code.NOT_LEADER_OR_FOLLOWER,  # Kafka answers that a topic is created before its broker leads it
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_COORDINATOR,
    Code.CONCURRENT_TRANSACTIONS,
)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a producer says it is."""

    transactional_id: str
    producer_id: int
    epoch: int

    def but(self, **changed: Any) -> "Identity":
        return replace(self, **changed)


class Wire(WireClient):
    """One connection."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        super().__init__((host, int(port)))
        self.ask(API_VERSIONS, 0)  # a connection that was answered has been accepted, and has its place among others

    # Producers

    def init(
        self, transactional_id: str | None, version: int = 4, timeout_ms: int = 60_000, given: Identity | None = None
    ) -> Any:
        return patiently(
            lambda: self.ask(
                INIT_PRODUCER_ID,
                version,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
                producer_id=given.producer_id if given else -1,
                producer_epoch=given.epoch if given else -1,
            ),
            lambda answer: answer.error_code,
        )

    def producer(self, transactional_id: str) -> Identity:
        """A producer that may begin."""
        self.wait_for_coordinator(transactional_id)
        answer = self.init(transactional_id)
        assert answer.error_code == Code.NONE, answer
        return Identity(transactional_id, answer.producer_id, answer.producer_epoch)

    def wait_for_coordinator(self, transactional_id: str) -> None:
        patiently(
            lambda: self.ask(FIND_COORDINATOR, 4, key_type=TRANSACTION_KEY, coordinator_keys=[transactional_id]),
            lambda answer: answer.coordinators[0].error_code,
        )
        patiently(lambda: self.described(transactional_id), lambda answer: answer.error_code)

    def produce(self, who: Identity, place: Place, values: Sequence[bytes], sequence: int = 0, version: int = 9) -> Any:
        """Version 12 adds the partition to the transaction by itself; those before want it to be there."""
        topic, partition = place
        batch = build_batch(
            [Record(None, value, timestamp=int(time.time() * 1000)) for value in values],
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )
        data = nested(name=topic, partition_data=[nested(index=partition, records=bytes(batch))])
        asked = {"transactional_id": who.transactional_id, "acks": -1, "timeout_ms": 5000, "topic_data": [data]}
        return patiently(
            lambda: self.ask(PRODUCE, version, **asked).responses[0].partition_responses[0],
            lambda answer: answer.error_code,
        )

    # The coordinator of transactions

    def add(self, who: Identity, places: Sequence[Place], version: int = 3, is_verify_only: bool = False) -> list[int]:
        """The code of each place, in the order of the places. From version 4 on brokers ask each other, in batches."""
        if version >= 4:
            return self.add_batch([(who, places, is_verify_only)], version)[0]
        answer = patiently(
            lambda: self.ask(
                ADD_PARTITIONS,
                version,
                v3_and_below_transactional_id=who.transactional_id,
                v3_and_below_producer_id=who.producer_id,
                v3_and_below_producer_epoch=who.epoch,
                v3_and_below_topics=_by_topic(places, "partitions"),
            ),
            lambda answer: max(_codes(answer.results_by_topic_v3_and_below, places)),
        )
        return _codes(answer.results_by_topic_v3_and_below, places)

    def add_batch(self, asked: Sequence[tuple[Identity, Sequence[Place], bool]], version: int = 4) -> list[list[int]]:
        transactions = [
            nested(
                transactional_id=who.transactional_id,
                producer_id=who.producer_id,
                producer_epoch=who.epoch,
                verify_only=is_verify_only,
                topics=_by_topic(places, "partitions"),
            )
            for who, places, is_verify_only in asked
        ]
        answer = self.ask(ADD_PARTITIONS, version, transactions=transactions)
        assert answer.error_code == Code.NONE, answer
        found = {result.transactional_id: result.topic_results for result in answer.results_by_transaction}
        return [_codes(found[who.transactional_id], places) for who, places, _ in asked]

    def end(self, who: Identity, is_commit: bool, version: int = 3) -> Any:
        def ask() -> Any:
            self.send_end(who, is_commit, version)
            return self.answer(END_TXN, version)

        return patiently(ask, lambda answer: answer.error_code)

    def send_end(self, who: Identity, is_commit: bool, version: int) -> None:
        self.send(
            END_TXN,
            version,
            transactional_id=who.transactional_id,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            committed=is_commit,
        )

    def ended(self, who: Identity, is_commit: bool, version: int = 3) -> Identity:
        """End, and the identity for the next transaction."""
        answer = self.end(who, is_commit, version)
        assert answer.error_code == Code.NONE, answer
        return who.but(producer_id=answer.producer_id, epoch=answer.producer_epoch) if version >= 5 else who

    def described(self, transactional_id: str) -> Any:
        [state] = self.ask(DESCRIBE_TRANSACTIONS, 0, transactional_ids=[transactional_id]).transaction_states
        result: Any = state
        return result

    def wait_for_state(self, transactional_id: str, state: str) -> Any:
        def found() -> Any:
            described = self.described(transactional_id)
            return described if described.transaction_state == state else None

        return eventually(found, f"{transactional_id} is {state}")

    # Offsets of groups

    def add_offsets(self, who: Identity, group: str, version: int = 3) -> int:
        answer = patiently(
            lambda: self.ask(
                ADD_OFFSETS,
                version,
                transactional_id=who.transactional_id,
                producer_id=who.producer_id,
                producer_epoch=who.epoch,
                group_id=group,
            ),
            lambda answer: answer.error_code,
        )
        code: int = answer.error_code
        return code

    def commit_offsets(
        self, who: Identity, group: str, offsets: Mapping[Place, int], version: int = 3, **member: Any
    ) -> list[int]:
        """The code of each place, in the order of the offsets."""
        topics = [
            nested(name=topic, partitions=[nested(partition_index=partition, committed_offset=offset)])
            for (topic, partition), offset in offsets.items()
        ]
        answer = patiently(
            lambda: self.ask(
                TXN_OFFSET_COMMIT,
                version,
                transactional_id=who.transactional_id,
                group_id=group,
                producer_id=who.producer_id,
                producer_epoch=who.epoch,
                topics=topics,
                **member,
            ),
            lambda answer: max(topic.partitions[0].error_code for topic in answer.topics),
        )
        found = {
            (topic.name, partition.partition_index): partition.error_code
            for topic in answer.topics
            for partition in topic.partitions
        }
        return [found[place] for place in offsets]

    def group_offset(self, group: str, place: Place, require_stable: bool = False, version: int = 7) -> Any:
        wanted = [nested(name=place[0], partition_indexes=[place[1]])]
        if version >= 8:
            groups = [nested(group_id=group, topics=wanted, member_epoch=-1)]
            answer = self.ask(OFFSET_FETCH, version, groups=groups, require_stable=require_stable).groups[0]
        else:
            answer = self.ask(OFFSET_FETCH, version, group_id=group, topics=wanted, require_stable=require_stable)
        assert answer.error_code == Code.NONE, answer
        result: Any = answer.topics[0].partitions[0]
        return result

    # Partitions

    def mark(
        self, who: Identity, places: Sequence[Place], is_commit: bool, coordinator_epoch: int = 0, version: int = 1
    ) -> list[int]:
        """Write markers as a coordinator would; the code of each place."""
        marker = nested(
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            transaction_result=is_commit,
            topics=_by_topic(places, "partition_indexes"),
            coordinator_epoch=coordinator_epoch,
        )
        answer = self.ask(WRITE_MARKERS, version, markers=[marker])
        [result] = answer.markers
        found = {
            (topic.name, partition.partition_index): partition.error_code
            for topic in result.topics
            for partition in topic.partitions
        }
        return [found[place] for place in places]

    def fetch(self, place: Place, offset: int = 0, isolation_level: int = 1) -> Any:
        topic, partition = place
        asked = nested(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        answer = self.ask(
            FETCH,
            11,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=isolation_level,
            session_id=0,
            session_epoch=-1,
            topics=[nested(topic=topic, partitions=[asked])],
        )
        result: Any = answer.responses[0].partitions[0]
        assert result.error_code == Code.NONE, result.error_code
        return result

    def stored(self, place: Place) -> list[tuple[int, bytes | str]]:
        """(offset, value or "commit" or "abort") of all that the partition holds."""
        found: list[tuple[int, bytes | str]] = []
        for header, batch in split(self.fetch(place, isolation_level=0).records or b""):
            for record in records(batch, header):
                if header.attributes & CONTROL:
                    (kind,) = struct.unpack_from(">h", record.key or b"", 2)
                    found.append((record.offset, "commit" if kind else "abort"))
                else:
                    found.append((record.offset, bytes(record.value or b"")))
        return found

    def wait_for_marker(self, place: Place, count: int = 1) -> list[tuple[int, bytes | str]]:
        """What the partition holds, as soon as so many transactions of it have ended."""

        def ended() -> list[tuple[int, bytes | str]] | None:
            found = self.stored(place)
            return found if sum(isinstance(value, str) for _, value in found) >= count else None

        return eventually(ended, f"{place} has {count} markers")


def patiently(question: Callable[[], Any], code: Callable[[Any], int]) -> Any:
    """Ask again while the answer is that it is too early."""

    def answer() -> tuple[Any] | None:
        found = question()
        return None if code(found) in BUSY else (found,)

    return eventually(answer, "the broker is ready")[0]


def _by_topic(places: Sequence[Place], field: str) -> list[dict[str, Any]]:
    topics = dict.fromkeys(topic for topic, _ in places)
    return [nested(name=name, **{field: [index for topic, index in places if topic == name]}) for name in topics]


def _codes(topics: Sequence[Any], places: Sequence[Place]) -> list[int]:
    found = {
        (topic.name, result.partition_index): result.partition_error_code
        for topic in topics
        for result in topic.results_by_partition
    }
    return [found[place] for place in places]
