"""Server-sent events: records of a subscription as they come, one event each.

    id: 0:42,1:17          of a stream: where to go on in each partition; the browser sends it back as Last-Event-ID
    event: record
    data: {...}            as a pull gives them; a queue's have an ack_id for POST .../ack

Of a queue no more is sent than `max_in_flight` records that are not acknowledged; when the client goes, what it has not
acknowledged goes back. A client that does not read is cut off.
"""

import asyncio
from collections.abc import Mapping

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headwater.gateway.http.kafka_problems import FAILURES, problem_of
from headwater.gateway.http.problems import bad_request
from headwater.gateway.http.protocol import abort
from headwater.gateway.push.outstanding import Outstanding
from headwater.gateway.subscriptions.members.deliveries import Delivery, delivered_record
from headwater.gateway.subscriptions.members.member_pool import Member
from headwater.gateway.subscriptions.members.queue_member import QueueMember

HEARTBEAT_S = 10.0
SEND_S = 20.0
ABORT_S = 1.0
FULL_REST_S = 0.02
MAX_AT_ONCE = 100
MAX_BYTES = 1024 * 1024
MAX_ID_CHARS = 100_000
MAX_DIGITS = 18


class EventStream(Response):
    def __init__(self, member: Member, max_in_flight: int, positions: Mapping[int, int]) -> None:
        super().__init__()
        self._member = member
        self._max_in_flight = max_in_flight
        self._positions = dict(positions)
        self._outstanding = Outstanding(member)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        sending = asyncio.ensure_future(self._send_all(send))
        leaving = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and isinstance(sending.exception(), TimeoutError):
                abort(scope)
                await asyncio.wait((leaving,), timeout=ABORT_S)
        finally:
            has_left = leaving.done()
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            self._outstanding.give_back()
        if not has_left:
            async with asyncio.timeout(SEND_S):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, send: Send) -> None:
        await _send(send, b": begun\n\n")
        while True:
            room = self._max_in_flight - self._outstanding.count()
            if room <= 0:
                await asyncio.sleep(FULL_REST_S)
                continue
            try:
                deliveries = await self._member.take(min(room, MAX_AT_ONCE), MAX_BYTES, int(HEARTBEAT_S * 1000))
            except FAILURES as failure:
                detail = msgspec.json.encode({"detail": problem_of(failure).detail})
                await _send(send, b"event: problem\ndata: " + detail + b"\n\n")
                return
            self._outstanding.sent(deliveries)
            await _send(send, b"".join(map(self._event, deliveries)) or b": still here\n\n")

    def _event(self, delivery: Delivery) -> bytes:
        if isinstance(self._member, QueueMember):
            record = delivered_record(delivery, self._member.ack_id(delivery))
            return b"event: record\ndata: " + msgspec.json.encode(record) + b"\n\n"
        self._positions[delivery.partition] = delivery.offset + 1
        event_id = ",".join(f"{partition}:{offset}" for partition, offset in sorted(self._positions.items()))
        record = delivered_record(delivery, None)
        return b"id: " + event_id.encode() + b"\nevent: record\ndata: " + msgspec.json.encode(record) + b"\n\n"


def parse_event_id(text: str) -> dict[int, int]:
    """Raises Problem."""
    positions: dict[int, int] = {}
    if len(text) > MAX_ID_CHARS:
        raise bad_request("Last-Event-ID is too long to be one of ours.")
    for part in text.split(",") if text else ():
        partition, colon, offset = part.partition(":")
        numbers = (partition, offset)
        if not colon or not all(each.isascii() and each.isdigit() and len(each) <= MAX_DIGITS for each in numbers):
            raise bad_request("Last-Event-ID is not one of ours: <partition>:<offset>, with commas between.")
        positions[int(partition)] = int(offset)
    return positions


async def _send(send: Send, body: bytes) -> None:
    async with asyncio.timeout(SEND_S):
        await send({"type": "http.response.body", "body": body, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
