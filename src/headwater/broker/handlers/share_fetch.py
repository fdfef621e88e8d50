"""ShareFetch (78): records lent to a member of a share group, and acknowledgements of those it had (KIP-932). Versions
1 and 2: from 2 on with a strict limit of records (KIP-1206) and renewed leases (KIP-1222).

Batches are sent whole, as they are stored, unless very few of their records are wanted; the acquired ranges tell which
of them are the member's.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_group, on_topic
from headwater.broker.api import Api, RequestContext
from headwater.broker.queues.share_acknowledging import Acknowledging
from headwater.broker.queues.share_fetching import ShareFetching, ShareFetchLimits, ShareReading, divided
from headwater.broker.queues.share_rights import share_rights
from headwater.broker.queues.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, checked_names
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NO_LEADER_EPOCH, NO_NODE, PartitionId, TopicId
from headwater.queues.outcomes import AcquireMode
from headwater.security.access_codes import Operation
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.share_fetch import (
    AcquiredRecords,
    FetchTopic,
    ForgottenTopic,
    LeaderIdAndEpoch,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.SHARE_FETCH,
    name="ShareFetch",
    access=Access.first(
        on_group(Operation.READ),
        then=(
            on_topic(
                Operation.READ,
                "topics[].topic_id",
                refused_at="responses[].partitions[].error_code",
                condition="of every partition of the session and the request",
            ),
        ),
    ),
    min_version=1,
    max_version=2,
)


async def handle(broker: "Broker", request: ShareFetchRequest, context: RequestContext) -> ShareFetchResponse:
    group_id, member_id = checked_names(request.group_id, request.member_id)
    usage = context.usage
    room_bytes = usage.room_to_read() if usage is not None else None
    limits = _limits(request, usage.room_bytes if usage is not None and room_bytes is not None else None)
    acknowledges = any(asked.acknowledgement_batches for topic in request.topics for asked in topic.partitions)
    session = broker.shares.session(
        group_id, member_id, request.share_session_epoch, context.connection, acknowledges=acknowledges
    )
    if request.share_session_epoch != FINAL_EPOCH:
        broker.shares.sessions.update(session, _asked(request.topics), _forgotten(request.forgotten_topics_data))
    is_first = request.share_session_epoch == INITIAL_EPOCH
    if is_first:
        await broker.group_configs.refresh_if_possible(group_id)
    rights = share_rights(broker.catalog, context.access, group_id)
    acknowledging = Acknowledging(broker.shares, group_id, member_id, rights, may_renew=request.is_renew_ack)
    acknowledging.decide(request.topics)
    fetching: ShareFetching | None = None
    if request.share_session_epoch == FINAL_EPOCH:
        broker.shares.close_session(session)
        context.connection.when_closed.pop(session.key, None)
    elif room_bytes == 0:
        pass  # the client is over its quota: its acknowledgements count, and it is given nothing
    elif not request.is_renew_ack and (session.partitions or not (acknowledges or request.forgotten_topics_data)):
        fetching = ShareFetching(broker.shares, broker.catalog, session, limits, rights)
        await fetching.run()
    acknowledged = await acknowledging.errors()
    readings = fetching.settled() if fetching is not None else {}
    if rights is not None:
        rights.check_group()
    session.reported_errors = {partition: reading.error for partition, reading in readings.items() if reading.error}
    topics = _topics(broker, readings, acknowledged, request.batch_size, is_first)
    if usage is not None:
        usage.sent_later(sum(len(partition.records or b"") for topic in topics for partition in topic.partitions))
    return ShareFetchResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        acquisition_lock_timeout_ms=broker.group_configs.settings(group_id).record_lock_duration_ms,
        responses=topics,
        node_endpoints=(),
    )


def _asked(topics: Iterable[FetchTopic]) -> Iterator[PartitionId]:
    for topic in topics:
        for partition in topic.partitions:
            yield PartitionId(topic.topic_id, partition.partition_index)


def _forgotten(topics: Iterable[ForgottenTopic]) -> Iterator[PartitionId]:
    for topic in topics:
        for index in topic.partitions:
            yield PartitionId(topic.topic_id, index)


def _limits(request: ShareFetchRequest, room_bytes: Callable[[], int] | None) -> ShareFetchLimits:
    if request.is_renew_ack and any((request.max_wait_ms, request.min_bytes, request.max_records, request.max_bytes)):
        raise RequestError(ErrorCode.INVALID_REQUEST, "A request that renews leases fetches nothing: its limits are 0.")
    try:
        mode = AcquireMode(request.share_acquire_mode)
    except ValueError:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"There is no acquire mode {request.share_acquire_mode}."
        ) from None
    return ShareFetchLimits(
        request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records, mode, room_bytes
    )


def _topics(
    broker: "Broker",
    readings: dict[PartitionId, ShareReading],
    acknowledged: dict[PartitionId, ErrorCode],
    batch_size: int,
    names_all: bool,
) -> list[ShareFetchableTopicResponse]:
    topics: dict[TopicId, list[PartitionData]] = {}
    for partition in dict.fromkeys((*readings, *acknowledged)):
        reading = readings.get(partition) or ShareReading()
        if not (names_all or reading.ranges or reading.error or partition in acknowledged):
            continue
        answers = topics.setdefault(partition.topic_id, [])
        answers.append(_partition(broker, partition, reading, acknowledged.get(partition), batch_size))
    return [
        ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()
    ]


def _partition(
    broker: "Broker", partition: PartitionId, reading: ShareReading, acknowledged: ErrorCode | None, batch_size: int
) -> PartitionData:
    ranges, batches = reading.in_order()
    thin = broker.shares.partial_batches
    records = b"".join(thin.cut(partition, header, batch, ranges) for header, batch in batches)
    queue = reading.queue
    if queue is not None and records:
        broker.metrics.fetched(queue.partition.topic_name, len(records))
    for code in (reading.error, acknowledged):
        if code:
            broker.metrics.error(API.name, code)
    return PartitionData(
        partition_index=partition.index,
        error_code=reading.error,
        error_message=reading.message,
        acknowledge_error_code=acknowledged or ErrorCode.NONE,
        acknowledge_error_message=None,
        current_leader=LeaderIdAndEpoch(
            leader_id=queue.partition.leader if queue is not None else NO_NODE,
            leader_epoch=queue.partition.leader_epoch if queue is not None else NO_LEADER_EPOCH,
        ),
        records=records,
        acquired_records=[
            AcquiredRecords(first_offset=each.first, last_offset=each.last, delivery_count=each.delivery_count)
            for each in divided(ranges, [header.last_offset for header, _ in batches], batch_size)
        ],
    )
