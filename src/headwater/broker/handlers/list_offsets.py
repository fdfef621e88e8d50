"""ListOffsets (2): where a point in time is in the log. Versions 1 to 10.

timestamp  -1 latest, -2 earliest, -3 the record with the largest timestamp, -4 earliest on local disk,
           -5 latest in remote storage (there is none), else the first record at or after it

With isolation level read_committed nothing at or past the last stable offset is found.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.broker.dispatch import Api, RequestContext
from headwater.broker.offset_search import find_max_timestamp, find_timestamp
from headwater.broker.partition import Partition
from headwater.model.errors import ErrorCode, RequestError
from headwater.wire.messages import Message

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(key=2, name="ListOffsets", min_version=1, max_version=10)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5


async def handle(broker: "Broker", request: Message, context: RequestContext) -> Message:
    """A partition that is asked for more than once is answered once, with INVALID_REQUEST, as in Kafka: each answer may
    cost a search."""
    asked: dict[str, dict[int, list[Message]]] = {}
    for topic in request.topics:
        by_index = asked.setdefault(topic.name, {})
        for partition in topic.partitions:
            by_index.setdefault(partition.partition_index, []).append(partition)
    topics = []
    for name, by_index in asked.items():
        partitions = [await _answer(broker, name, each, request.isolation_level) for each in by_index.values()]
        topics.append(Message(name=name, partitions=partitions))
    return Message(topics=topics)


async def _answer(broker: "Broker", topic: str, questions: Sequence[Message], isolation_level: int) -> Message:
    asked = questions[0]
    result = Message(partition_index=asked.partition_index, error_code=ErrorCode.NONE)
    try:
        if len(questions) > 1:
            raise RequestError(ErrorCode.INVALID_REQUEST, "A partition has one answer in a response.")
        partition = broker.catalog.topic(topic).partition(asked.partition_index)
        partition.check_epoch(asked.current_leader_epoch)
        result.offset, result.timestamp, result.leader_epoch = await _search(
            partition, asked.timestamp, isolation_level
        )
    except RequestError as error:
        result.error_code = error.code
    return result


async def _search(partition: Partition, timestamp: int, isolation_level: int) -> tuple[int, int, int]:
    """(offset, timestamp, leader epoch), each -1 if there is none."""
    end = partition.last_stable_offset if isolation_level else partition.high_watermark
    if timestamp == LATEST:
        return end, -1, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return partition.log_start, -1, partition.epoch_at(partition.log_start)
    if timestamp == MAX_TIMESTAMP:
        found = await find_max_timestamp(partition, end)
    elif timestamp >= 0:
        found = await find_timestamp(partition, timestamp, end)
    elif timestamp == LATEST_TIERED:
        found = None
    else:
        raise RequestError(ErrorCode.UNSUPPORTED_VERSION, f"Timestamp {timestamp} has no meaning.")
    return (found.offset, found.timestamp, found.leader_epoch) if found is not None else (-1, -1, -1)
