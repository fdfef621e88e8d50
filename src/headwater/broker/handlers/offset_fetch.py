"""OffsetFetch (9): where a group goes on reading. Versions 1 to 8: null topics mean all from 2 on, many groups from 8
on. Offsets of open transactions do not exist, so `require_stable` is always fulfilled.

A group that is not known has committed nothing, which is no error: its offsets are -1.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.broker.dispatch import Api, RequestContext
from headwater.groups.events import CommittedOffset
from headwater.model.errors import ErrorCode, RequestError
from headwater.wire.messages import Message

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(key=9, name="OffsetFetch", min_version=1, max_version=8)

NOTHING = CommittedOffset(offset=-1, leader_epoch=-1, metadata="", commit_timestamp_ms=-1)


async def handle(broker: "Broker", request: Message, context: RequestContext) -> Message:
    if context.api_version >= 8:
        # Once for each group, so that naming one again and again cannot make an answer larger than memory.
        asked = {group.group_id: group.topics for group in request.groups}
        return Message(groups=[await _fetch(broker, group_id, topics) for group_id, topics in asked.items()])
    fetched = await _fetch(broker, request.group_id, request.topics)
    if context.api_version == 1 and fetched.error_code:
        # There is no other place for the error in this version.
        fetched.topics = _failed(request.topics or (), fetched.error_code)
    return fetched


async def _fetch(broker: "Broker", group_id: str, topics: Sequence[Message] | None) -> Message:
    wanted = None
    if topics is not None:
        wanted = [(topic.name, index) for topic in topics for index in topic.partition_indexes]
    try:
        found = await broker.groups.committed(group_id, wanted)
    except RequestError as error:
        return Message(group_id=group_id, error_code=error.code, topics=())
    by_topic: dict[str, list[Message]] = {topic.name: [] for topic in topics or ()}
    for topic, index, committed in found:
        by_topic.setdefault(topic, []).append(_partition(index, committed or NOTHING, ErrorCode.NONE))
    answers = [Message(name=name, partitions=partitions) for name, partitions in by_topic.items()]
    return Message(group_id=group_id, error_code=ErrorCode.NONE, topics=answers)


def _failed(topics: Sequence[Message], error: ErrorCode) -> list[Message]:
    return [
        Message(name=topic.name, partitions=[_partition(index, NOTHING, error) for index in topic.partition_indexes])
        for topic in topics
    ]


def _partition(index: int, committed: CommittedOffset, error: ErrorCode) -> Message:
    return Message(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=error,
    )
