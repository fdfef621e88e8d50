"""WebSockets: records to the client, what became of them from it, as JSON in text frames.

    to the client      {"records": [...]}           as a pull gives them
                       {"results": [...]}           to each frame that acknowledges something
                       {"problem": {"detail": ...}}  then the socket is closed
    from the client    {"credit": 100}              send so many more
                       {"ack": [ids], "release": [...], "reject": [...], "extend": [...]}      of a queue
                       {"commit": [{"partition": 0, "offset": 42}]}                           of a stream

No record is sent without credit. The server pings; a client that does not answer, or does not read, is cut off, and
what it held goes back to its queue.
"""

import asyncio
import contextlib
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.websockets import WebSocket, WebSocketDisconnect

from headwater.gateway.http.kafka_problems import FAILURES, problem_of
from headwater.gateway.http.problems import Problem
from headwater.gateway.http.protocol import abort
from headwater.gateway.push.outstanding import Outstanding
from headwater.gateway.subscriptions.bodies import MAX_ACKS, AckIds, AckIn, CommitOffset
from headwater.gateway.subscriptions.members.member_pool import Member
from headwater.gateway.subscriptions.members.queue_member import QueueMember
from headwater.gateway.subscriptions.members.stream_member import StreamMember
from headwater.gateway.subscriptions.reads import acknowledge, delivered_records

MAX_CREDIT = 10_000
MAX_AT_ONCE = 200
MAX_BYTES = 1024 * 1024
TAKE_WAIT_MS = 5_000
SEND_S = 20.0
POLICY_VIOLATION, TRY_AGAIN_LATER = 1008, 1013


class FrameIn(Struct, forbid_unknown_fields=True):
    credit: Annotated[int, Meta(ge=1, le=MAX_CREDIT)] = 0
    ack: AckIds = []
    release: AckIds = []
    reject: AckIds = []
    extend: AckIds = []
    commit: Annotated[list[CommitOffset], Meta(max_length=MAX_ACKS)] = []


_decode = msgspec.json.Decoder(FrameIn).decode


class RecordSocket:
    def __init__(self, socket: WebSocket, member: Member, credit: int) -> None:
        self._socket = socket
        self._member = member
        self._credit = credit
        self._has_credit = asyncio.Event()
        self._outstanding = Outstanding(member)
        self._sending = asyncio.Lock()

    async def run(self) -> None:
        """Until the client goes."""
        giving = asyncio.ensure_future(self._give())
        hearing = asyncio.ensure_future(self._hear())
        try:
            done, _ = await asyncio.wait((giving, hearing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (giving, hearing):
                task.cancel()
            await asyncio.gather(giving, hearing, return_exceptions=True)
            self._outstanding.give_back()
        for task in done:
            await self._end(task.exception())

    async def _give(self) -> None:
        while True:
            if self._credit <= 0:
                self._has_credit.clear()
                await self._has_credit.wait()
            deliveries = await self._member.take(min(self._credit, MAX_AT_ONCE), MAX_BYTES, TAKE_WAIT_MS)
            if deliveries:
                self._outstanding.sent(deliveries)
                self._credit -= len(deliveries)
                await self._send({"records": list(delivered_records(self._member, deliveries))})

    async def _hear(self) -> None:
        while True:
            frame = self._read(await self._socket.receive_text())
            if frame.credit:
                self._credit = min(self._credit + frame.credit, MAX_CREDIT)
                self._has_credit.set()
            if frame.ack or frame.release or frame.reject or frame.extend:
                if not isinstance(self._member, QueueMember):
                    raise Problem(409, "Not a queue", "Records of a stream are not acknowledged; commit its position.")
                acks = AckIn(frame.ack, frame.release, frame.reject, frame.extend)
                await self._send({"results": await acknowledge(self._member, acks)})
            if frame.commit:
                if not isinstance(self._member, StreamMember):
                    raise Problem(409, "Not a stream", "Records of a queue are acknowledged one by one.")
                await self._member.commit({each.partition: each.offset for each in frame.commit})
                await self._send({"committed": frame.commit})

    def _read(self, text: str) -> FrameIn:
        try:
            return _decode(text)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise Problem(400, "Bad request", f"The frame cannot be read: {error}.") from None
        except RecursionError:
            raise Problem(400, "Bad request", "The frame is nested too deeply.") from None

    async def _send(self, value: Any) -> None:
        async with self._sending, asyncio.timeout(SEND_S):
            await self._socket.send_text(msgspec.json.encode(value).decode())

    async def _end(self, error: BaseException | None) -> None:
        if error is None or isinstance(error, WebSocketDisconnect):
            return
        if isinstance(error, TimeoutError):
            abort(self._socket.scope)  # it does not read: no word would reach it
            return
        with contextlib.suppress(Exception):  # it may be gone already
            async with asyncio.timeout(SEND_S):
                if isinstance(error, FAILURES):
                    problem = problem_of(error)
                    await self._send({"problem": {"title": problem.title, "detail": problem.detail}})
                    await self._socket.close(POLICY_VIOLATION if problem.status < 429 else TRY_AGAIN_LATER)
                else:
                    await self._socket.close(POLICY_VIOLATION)
        if not isinstance(error, (*FAILURES, RuntimeError, KeyError)):
            raise error
