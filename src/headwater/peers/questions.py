"""What a node asks the broker of another one: bytes of a kind, answered with bytes or with one of Kafka's error codes.

    ASK    kind 1 | body    ->    error code 2 | body, or a message in UTF-8 if the code is not 0

It travels where the calls to stores do, so whoever asks has proven that it belongs to the cluster. What the kinds are
is the broker's business.
"""

import struct
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias

from headwater.model.errors import ErrorCode, RequestError
from headwater.model.replica import Buffer
from headwater.peers.messages import MAX_MESSAGE_BYTES, REPLY_BYTES
from headwater.wire.codec import Cursor, MalformedRequest

_CODE: Final = struct.Struct(">h")

OnAsk: TypeAlias = Callable[[int, Cursor], Coroutine[Any, Any, bytes]]
"""(kind, body) -> the body of the answer. Raises RequestError; MalformedRequest for what cannot be read."""


async def nobody_answers(kind: int, body: Cursor) -> bytes:
    raise RequestError(ErrorCode.BROKER_NOT_AVAILABLE, "The node is starting, or serves no clients.")


async def answered(on_ask: OnAsk, body: Cursor) -> Buffer:
    try:
        return _CODE.pack(ErrorCode.NONE) + await on_ask(body.take(1)[0], body)
    except RequestError as error:
        return _CODE.pack(error.code) + (error.message or "").encode()[:MAX_MESSAGE_BYTES]
    except MalformedRequest as error:
        return _CODE.pack(ErrorCode.INVALID_REQUEST) + str(error).encode()[:MAX_MESSAGE_BYTES]


def question(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + body


def read_answer(frame: bytearray) -> Cursor:
    """Raises RequestError if that is the answer."""
    answer = Cursor(frame, REPLY_BYTES)
    (code,) = _CODE.unpack(answer.take(_CODE.size))
    if code == ErrorCode.NONE:
        return answer
    message = str(answer.take(answer.end - answer.position), "utf-8", "replace")
    try:
        raise RequestError(ErrorCode(code), message)
    except ValueError:  # a newer node may have others
        raise RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{message} (error {code})") from None
