"""OffsetFetch (9): where a group goes on reading. Versions 1 to 10: null topics mean all from 2 on, many groups from 8
on, epochs of members of the new protocol from 9 on, topic ids instead of names in 10. Offsets of open transactions do
not exist, so `require_stable` is always fulfilled.

A group that is not known has committed nothing, which is no error: its offsets are -1.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.broker.dispatch import Api, RequestContext
from headwater.groups.events import CommittedOffset
from headwater.model.errors import ErrorCode, RequestError
from headwater.wire.messages import Message
from headwater.wire.schema import NULL_UUID

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(key=9, name="OffsetFetch", min_version=1, max_version=10)

FIRST_WITH_TOPIC_IDS = 10
NOTHING = CommittedOffset(offset=-1, leader_epoch=-1, metadata="", commit_timestamp_ms=-1)


async def handle(broker: "Broker", request: Message, context: RequestContext) -> Message:
    if context.api_version >= 8:
        # Once for each group, so that naming one again and again cannot make an answer larger than memory.
        asked = {group.group_id: group for group in request.groups}
        has_ids = context.api_version >= FIRST_WITH_TOPIC_IDS
        return Message(groups=[await _fetch(broker, group, group.topics, has_ids) for group in asked.values()])
    fetched = await _fetch(broker, request, request.topics, has_ids=False)
    if context.api_version == 1 and fetched.error_code:
        # There is no other place for the error in this version.
        fetched.topics = _failed(request.topics or (), fetched.error_code)
    return fetched


async def _fetch(broker: "Broker", group: Message, topics: Sequence[Message] | None, has_ids: bool) -> Message:
    group_id: str = group.group_id
    if has_ids and topics is not None:
        return await _fetch_by_id(broker, group, topics)
    wanted = None
    if topics is not None:
        wanted = [(topic.name, index) for topic in topics for index in topic.partition_indexes]
    try:
        found = await broker.groups.committed(group_id, wanted, *_member(group))
    except RequestError as error:
        return Message(group_id=group_id, error_code=error.code, topics=())
    by_topic: dict[str, list[Message]] = {topic.name: [] for topic in topics or ()}
    for name, index, committed in found:
        by_topic.setdefault(name, []).append(_partition(index, committed or NOTHING, ErrorCode.NONE))
    answers = []
    for name, partitions in by_topic.items():
        topic = broker.catalog.find(name) if has_ids else None
        if not has_ids or topic is not None:
            topic_id = topic.topic_id if topic is not None else NULL_UUID
            answers.append(Message(name=name, topic_id=topic_id, partitions=partitions))
    return Message(group_id=group_id, error_code=ErrorCode.NONE, topics=answers)


async def _fetch_by_id(broker: "Broker", group: Message, topics: Sequence[Message]) -> Message:
    found = [(broker.catalog.find_id(asked.topic_id), asked) for asked in topics]
    wanted = [(topic.name, index) for topic, asked in found if topic is not None for index in asked.partition_indexes]
    try:
        answers = await broker.groups.committed(group.group_id, wanted, *_member(group))
    except RequestError as error:
        return Message(group_id=group.group_id, error_code=error.code, topics=())
    committed = {(name, index): each or NOTHING for name, index, each in answers}
    return Message(
        group_id=group.group_id,
        error_code=ErrorCode.NONE,
        topics=[
            Message(
                topic_id=asked.topic_id,
                partitions=[
                    _partition(index, committed[topic.name, index], ErrorCode.NONE)
                    if topic is not None
                    else _partition(index, NOTHING, ErrorCode.UNKNOWN_TOPIC_ID)
                    for index in asked.partition_indexes
                ],
            )
            for topic, asked in found
        ],
    )


def _member(group: Message) -> tuple[str | None, int]:
    """Who asks, where the version has a place for it."""
    return getattr(group, "member_id", None), getattr(group, "member_epoch", -1)


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
