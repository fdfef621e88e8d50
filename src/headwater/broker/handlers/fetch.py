"""Fetch (1): committed batches, as they were stored. Versions 4 to 18; sessions from 7 on.

The client's rights are asked for every partition of the session at every request, and again when they may have changed
while it waited. Requests that claim to come from a replica are refused: replication has a listener of its own
(CVE-2018-1288).
"""

import asyncio
from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_topic
from headwater.broker.api import Api, RequestContext
from headwater.broker.fetch.fetch_sessions import NO_SESSION, FetchSession, asked_partitions
from headwater.broker.fetch.fetching import Fetching, Reading
from headwater.model.errors import ErrorCode, RequestError
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
    request = fetch.read_request(frame, context.header)
    try:
        if request.replica_id >= 0:
            raise RequestError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        session, is_incremental = broker.fetch_sessions.open(request, context.connection.principal)
    except RequestError as error:
        broker.metrics.error(API.name, error.code)
        return fetch.write_response(context.header, error.code, NO_SESSION, [])
    partitions = list(session) if session is not None else list(asked_partitions(request))
    fetching = Fetching(broker.catalog, context.access, request, partitions)
    readings = fetching.read_memory()
    if readings is not None:
        return _respond(broker, context, session, is_incremental, readings)
    return asyncio.get_running_loop().create_task(_run(broker, context, session, is_incremental, fetching))


async def _run(
    broker: "Broker", context: RequestContext, session: FetchSession | None, is_incremental: bool, fetching: Fetching
) -> Pieces:
    return _respond(broker, context, session, is_incremental, await fetching.run())


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
    return fetch.write_response(context.header, ErrorCode.NONE, session_id, list(topics.values()))
