"""Fetch (1): committed batches, as they were stored. Versions 4 to 18; sessions from 7 on.

The client's rights are asked for every partition of the session at every request, and again when they may have changed
while it waited. Requests that claim to come from a replica are refused: replication has a listener of its own
(CVE-2018-1288).
"""

import asyncio
from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_topic
from headwater.broker.api import Api, RequestContext
from headwater.broker.fetch.fetch_sessions import INITIAL_EPOCH, NO_SESSION, FetchSession, asked_partitions
from headwater.broker.fetch.fetching import MAX_RESPONSE_BYTES, Fetching, Reading
from headwater.broker.quotas.request_usage import RequestUsage
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.replica import Buffer
from headwater.security.access_codes import Operation
from headwater.transport.connection import Answer, Pieces
from headwater.wire import fetch
from headwater.wire.fetch import FetchTopicResult

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=fetch.KEY,
    name="Fetch",
    access=Access.by_handler(
        on_topic(
            Operation.READ,
            "topics[].topic",
            refused_at="responses[].partitions[].error_code",
            condition="of every partition of the session, at every request",
        )
    ),
    min_version=fetch.MIN_VERSION,
    max_version=fetch.MAX_VERSION,
    overlaps=True,
)


def handle_frame(broker: "Broker", frame: bytearray, context: RequestContext) -> Answer:
    request, usage = fetch.read_request(frame, context.header), context.usage
    try:
        if request.replica_id >= 0:
            raise RequestError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        room_bytes = usage.room_to_read() if usage is not None else None
        if room_bytes == 0 and request.session_epoch == INITIAL_EPOCH:
            return _nothing(context, NO_SESSION)
        session, is_incremental = broker.fetch_sessions.open(request, context.connection.principal)
    except RequestError as error:
        broker.metrics.error(API.name, error.code)
        return _nothing(context, NO_SESSION, error.code)
    if room_bytes == 0:
        return _nothing(context, session.id if session is not None else NO_SESSION)
    partitions = list(session) if session is not None else list(asked_partitions(request))
    fetching = Fetching(broker.catalog, context.access, request, partitions)
    if room_bytes is not None and room_bytes < MAX_RESPONSE_BYTES:
        fetching.fit(room_bytes)
    readings = fetching.read_memory()
    if readings is not None:
        return _respond(broker, context, session, is_incremental, readings)
    if usage is not None and room_bytes is not None:
        fetching.limit(usage.room_bytes)
    running = _run(broker, context, session, is_incremental, fetching)
    return asyncio.get_running_loop().create_task(running if usage is None else usage.timed(running))


async def _run(
    broker: "Broker", context: RequestContext, session: FetchSession | None, is_incremental: bool, fetching: Fetching
) -> Pieces:
    readings = await fetching.run()
    usage = context.usage
    if usage is not None and usage.room_to_read() == 0:
        # Others of the client took what there was room for, while this one waited: as if it came now.
        if session is not None and not is_incremental:
            broker.fetch_sessions.give_up(session)
        return _nothing(context, session.id if session is not None and is_incremental else NO_SESSION)
    return _respond(broker, context, session, is_incremental, readings)


def _respond(
    broker: "Broker",
    context: RequestContext,
    session: FetchSession | None,
    is_incremental: bool,
    readings: list[Reading],
) -> Pieces:
    named = readings
    if is_incremental:
        named = [reading for reading in readings if reading.asked.is_news(reading.result)]
    topics: dict[object, FetchTopicResult] = {}
    for reading in named:
        topic = topics.get(reading.asked.topic)
        if topic is None:
            topic = topics[reading.asked.topic] = FetchTopicResult(*reading.asked.topic, [])
        topic.partitions.append(reading.result)
        if reading.result.error_code:
            broker.metrics.error(API.name, reading.result.error_code)
        elif reading.partition is not None and reading.result.size_bytes:
            broker.metrics.fetched(reading.partition.topic_name, reading.result.size_bytes)
    if session is not None:
        session.answered((reading.asked, reading.result) for reading in named)
    session_id = session.id if session is not None else NO_SESSION
    response = fetch.write_response(context.header, ErrorCode.NONE, session_id, list(topics.values()))
    usage = context.usage
    if usage is not None and usage.sent(sum(map(len, response))):
        _tell(usage, response, context)
    return response


def _nothing(context: RequestContext, session_id: int, code: ErrorCode = ErrorCode.NONE) -> Pieces:
    """An answer without partitions: of a client that is over its quota, or whose session is none. A session stays as it
    is."""
    response = fetch.write_response(context.header, code, session_id, [])
    if context.usage is not None:
        _tell(context.usage, response, context)
    return response


def _tell(usage: RequestUsage, response: list[Buffer], context: RequestContext) -> None:
    throttle_ms = usage.answer()
    if throttle_ms:
        fetch.tell_throttle(response, context.header, throttle_ms)
