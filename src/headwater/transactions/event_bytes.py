"""The bytes of events: key and value of the records of the internal topic. Big-endian.

    key     kind u8 = 1 | transactional id, the rest, in UTF-8
    value   version u8 = 1 | state u8 | protocol u8 | producer id i64 | epoch i16 | last epoch i16 | previous id i64
            | next id i64 | timeout i32 | started i64 | updated i64 | topics u32 | topic...
    topic   id 16 bytes | partitions u32 | index u32...
    none    the transactional id is forgotten

State is a number of `_STATES`, protocol 1 or 2. Ids, epochs and times are -1 where there is none. Topics and indexes
are sorted, each there once: one state has one form. A kind that is not known is not for us; a version that is not known
cannot be read. To change the format: write a new version, and keep reading the old ones.

Kafka's tools take the first two bytes of a key for a number. Here it is one from 256 on, which they do not know, and
skip (docs/decisions/0019).
"""

import struct
import uuid
from itertools import groupby, pairwise
from typing import Final

from headwater.model.ids import PartitionId
from headwater.records.byte_reader import ByteReader, MalformedBytes
from headwater.transactions.events import Event, TransactionForgotten, TransactionStored
from headwater.transactions.transaction import (
    LAST_EPOCH,
    MAX_EPOCH,
    NO_EPOCH,
    NO_ID,
    NO_TIME,
    Transaction,
    TransactionState,
    is_transactional_id,
)

_KIND: Final = 1
_VERSION: Final = 1
_STATES: Final = (
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)
_PROTOCOLS: Final = (1, 2)
_MAX_INDEX: Final = 2**31 - 1
_HEAD = struct.Struct(">BBBqhhqqiqqI")
_TOPIC = struct.Struct(">16sI")
_INDEX_BYTES: Final = 4


def encode(event: Event) -> tuple[bytes, bytes | None]:
    """Key and value; no value forgets the transactional id."""
    match event:
        case TransactionStored(transaction):
            return _key(transaction.transactional_id), _value(transaction)
        case TransactionForgotten(transactional_id):
            return _key(transactional_id), None


def decode(key: bytes, value: bytes | None) -> Event | None:
    """The event of a record; None if it is of a kind that is not for us. Raises MalformedBytes. Work and memory are
    bounded by the bytes given."""
    if not key:
        raise MalformedBytes("the key is empty")
    if key[0] != _KIND:
        return None
    try:
        transactional_id = key[1:].decode()
    except UnicodeDecodeError as error:
        raise MalformedBytes("a transactional id is not UTF-8") from error
    if not is_transactional_id(transactional_id):
        raise MalformedBytes(f"a transactional id has {len(key) - 1} bytes")
    if value is None:
        return TransactionForgotten(transactional_id)
    return TransactionStored(_read(transactional_id, value))


def _key(transactional_id: str) -> bytes:
    return bytes((_KIND,)) + transactional_id.encode()


def _value(transaction: Transaction) -> bytes:
    topics = [(topic, list(found)) for topic, found in groupby(sorted(transaction.partitions), _topic_of)]
    head = _HEAD.pack(
        _VERSION,
        _STATES.index(transaction.state),
        transaction.version,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.last_producer_epoch,
        transaction.previous_producer_id,
        transaction.next_producer_id,
        transaction.timeout_ms,
        transaction.started_ms,
        transaction.updated_ms,
        len(topics),
    )
    return head + b"".join(_topic(topic, found) for topic, found in topics)


def _topic_of(partition: PartitionId) -> uuid.UUID:
    return partition.topic_id


def _topic(topic_id: uuid.UUID, partitions: list[PartitionId]) -> bytes:
    indexes = struct.pack(f">{len(partitions)}I", *(each.index for each in partitions))
    return _TOPIC.pack(topic_id.bytes, len(partitions)) + indexes


def _read(transactional_id: str, value: bytes) -> Transaction:
    if value[:1] != bytes((_VERSION,)):
        raise MalformedBytes(f"version {value[0]} of a transaction is not known" if value else "the value is empty")
    reader = ByteReader(value)
    (
        _,
        state,
        version,
        producer_id,
        producer_epoch,
        last_producer_epoch,
        previous_producer_id,
        next_producer_id,
        timeout_ms,
        started_ms,
        updated_ms,
        topics,
    ) = reader.unpack(_HEAD)
    if state >= len(_STATES) or version not in _PROTOCOLS:
        raise MalformedBytes(f"state {state} of protocol {version} is not known")
    transaction = Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        last_producer_epoch=last_producer_epoch,
        previous_producer_id=previous_producer_id,
        next_producer_id=next_producer_id,
        timeout_ms=timeout_ms,
        state=_STATES[state],
        partitions=_read_partitions(reader, topics),
        started_ms=started_ms,
        updated_ms=updated_ms,
        version=version,
    )
    _check(transaction)
    return transaction


def _read_partitions(reader: ByteReader, topics: int) -> frozenset[PartitionId]:
    partitions: list[PartitionId] = []
    for _ in range(topics):
        topic_id, count = reader.unpack(_TOPIC)
        if count == 0:
            raise MalformedBytes("a topic has no partitions")
        indexes = reader.take(reader.checked(count, _INDEX_BYTES) * _INDEX_BYTES)
        topic = uuid.UUID(bytes=topic_id)
        partitions += (PartitionId(topic, index) for index in struct.unpack(f">{count}I", indexes))
    reader.check_end()
    if any(after <= before for before, after in pairwise(partitions)):
        raise MalformedBytes("the partitions are not in order")
    if any(each.index > _MAX_INDEX for each in partitions):
        raise MalformedBytes("a partition's index is too high")
    return frozenset(partitions)


def _check(transaction: Transaction) -> None:
    """What no transaction can be, whatever was done to it."""
    state = transaction.state
    # Of an open transaction one more epoch must be left, to fence it with.
    highest = LAST_EPOCH if state is TransactionState.ONGOING else MAX_EPOCH
    if transaction.producer_id < 0 or not 0 <= transaction.producer_epoch <= highest:
        raise MalformedBytes(f"producer {transaction.producer_id}, epoch {transaction.producer_epoch}, {state.value}")
    if transaction.last_producer_epoch < NO_EPOCH or transaction.previous_producer_id < NO_ID:
        raise MalformedBytes(
            f"producer {transaction.previous_producer_id} before, epoch {transaction.last_producer_epoch}"
        )
    if transaction.next_producer_id < NO_ID or (transaction.next_producer_id != NO_ID and not state.is_prepared):
        raise MalformedBytes(f"producer {transaction.next_producer_id} next, {state.value}")
    if transaction.timeout_ms <= 0 or transaction.started_ms < NO_TIME or transaction.updated_ms < NO_TIME:
        raise MalformedBytes(f"a time of {transaction.timeout_ms} ms from {transaction.started_ms}")
    if transaction.partitions and not (state is TransactionState.ONGOING or state.is_prepared):
        raise MalformedBytes(f"partitions, {state.value}")
