"""Requests in, responses out: headers and bodies of any API in any version.

The response header of ApiVersions is always version 0, whatever the request's version, because a client that
reads it does not know yet what the server speaks.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from headwater.wire.api_keys import ApiKey
from headwater.wire.codec import struct_reader, struct_writer
from headwater.wire.cursor import Cursor, MalformedRequest, check_null
from headwater.wire.message import Message, Request
from headwater.wire.message_classes import request_class
from headwater.wire.schema import UnknownMessage, request_schema, response_schema

_HEADER = struct.Struct(">hhih")
_CORRELATION = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class RequestHeader:
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def read_header(frame: bytes | bytearray | memoryview) -> RequestHeader:
    """The header of a request. Its flexible part is skipped only for APIs and versions that are known; an unknown one
    is answered without reading further."""
    if len(frame) < _HEADER.size:
        raise MalformedRequest(f"a request of {len(frame)} bytes has no header")
    api_key, api_version, correlation_id, client_id_length = _HEADER.unpack_from(frame)
    cursor = Cursor(frame, _HEADER.size)
    client_id = None
    if client_id_length >= 0:
        client_id = str(cursor.take(client_id_length), "utf-8", "replace")
    else:
        check_null(client_id_length, True, "client_id")
    if is_flexible(api_key, api_version):
        cursor.skip_tags()
    return RequestHeader(api_key, api_version, correlation_id, client_id, cursor.position)


def read_body(frame: bytes | bytearray | memoryview, header: RequestHeader) -> Request[Any]:
    cursor = Cursor(frame, header.body_position)
    try:
        return request_reader(header.api_key, header.api_version)(cursor)
    except struct.error as error:
        raise MalformedRequest(str(error)) from None


def write_response(api_key: int, api_version: int, correlation_id: int, response: Message) -> bytearray:
    """The whole response without the frame's length."""
    out = response_start(api_key, api_version, correlation_id)
    struct_writer(response_schema(api_key, api_version))(out, response)
    return out


def response_start(api_key: int, api_version: int, correlation_id: int) -> bytearray:
    out = bytearray(_CORRELATION.pack(correlation_id))
    if api_key != ApiKey.API_VERSIONS and is_flexible(api_key, api_version):
        out.append(0)
    return out


@cache
def request_reader(api_key: int, api_version: int) -> Callable[[Cursor], Request[Any]]:
    return struct_reader(request_schema(api_key, api_version), request_class(api_key))


@cache
def is_flexible(api_key: int, api_version: int) -> bool:
    try:
        return request_schema(api_key, api_version).is_flexible
    except UnknownMessage:
        return False
