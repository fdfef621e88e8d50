"""Node calls: RPCs to the broker of another node, bytes of a kind, answered with bytes or one of Kafka's error codes.

    ASK    kind 1 | body    ->    error code 2 | body, or a message in UTF-8 if the code is not 0

They travel where the calls to stores do, so the caller has proven that it belongs to the cluster. What the kinds are
is the broker's business.
"""

import struct
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias

from headwater.model.errors import ErrorCode, RequestError
from headwater.model.replica import Buffer
from headwater.peers.messages import MAX_MESSAGE_BYTES, REPLY_BYTES
from headwater.wire.cursor import Cursor, MalformedRequest

_CODE: Final = struct.Struct(">h")

CallHandler: TypeAlias = Callable[[int, Cursor], Coroutine[Any, Any, bytes]]
"""(kind, body) -> the body of the reply. Raises RequestError; MalformedRequest for bytes that cannot be read."""


async def refuse_calls(kind: int, body: Cursor) -> bytes:
    """The handler of a node whose broker does not serve clients, or not yet."""
    raise RequestError(ErrorCode.BROKER_NOT_AVAILABLE, "The node is starting, or serves no clients.")


class LateCalls:
    """A handler that refuses calls until the broker can answer them.

    A node serves its store while its broker still starts: nodes that start at the same time need each other's stores to
    take over partitions. So the listener exists before the handler does, and is given this instead.
    """

    def __init__(self) -> None:
        self._handler: CallHandler = refuse_calls

    def begin(self, handler: CallHandler) -> None:
        """From now on the handler answers."""
        self._handler = handler

    def __call__(self, kind: int, body: Cursor) -> Coroutine[Any, Any, bytes]:
        return self._handler(kind, body)


async def answer_call(on_call: CallHandler, body: Cursor) -> Buffer:
    """The body of the reply to ASK: the handler's, or its error."""
    try:
        return _CODE.pack(ErrorCode.NONE) + await on_call(body.take(1)[0], body)
    except RequestError as error:
        return _CODE.pack(error.code) + (error.message or "").encode()[:MAX_MESSAGE_BYTES]
    except MalformedRequest as error:
        return _CODE.pack(ErrorCode.INVALID_REQUEST) + str(error).encode()[:MAX_MESSAGE_BYTES]


def call_body(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + body


def read_reply(frame: bytearray) -> Cursor:
    """The body of the reply. Raises RequestError if the other node refused the call."""
    answer = Cursor(frame, REPLY_BYTES)
    (code,) = _CODE.unpack(answer.take(_CODE.size))
    if code == ErrorCode.NONE:
        return answer
    message = str(answer.take(answer.end - answer.position), "utf-8", "replace")
    try:
        raise RequestError(ErrorCode(code), message)
    except ValueError:  # a newer node may have more error codes
        raise RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{message} (error {code})") from None
