"""The client's side: requests out, responses in, of any API in any version. `messages` is the server's.

    request    length i32 | api key i16 | version i16 | correlation id i32 | client id string | tags | body
    response   correlation id i32 | tags | body

Tags are there where the body is flexible; the response of ApiVersions never has them.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from headwater.wire.api_keys import ApiKey
from headwater.wire.codec import struct_reader, struct_writer
from headwater.wire.cursor import Cursor, MalformedRequest
from headwater.wire.message import Records, Request, ResponseT
from headwater.wire.message_classes import response_class
from headwater.wire.messages import is_flexible
from headwater.wire.schema import request_schema, response_schema

MAX_RESPONSE_ELEMENTS = 5_000_000
"""More than a server takes in a request: the metadata of a large cluster has ten array elements for each partition."""
_LENGTH = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")
_CORRELATION = struct.Struct(">i")


class MalformedResponse(Exception):
    """The bytes are not the response to the request that was sent."""


def write_request(request: Request[Any], api_version: int, correlation_id: int, client_id: str) -> bytearray:
    """The whole request, its length first."""
    api_key = request.API_KEY
    name = client_id.encode()
    out = bytearray(_LENGTH.size)
    out += _HEADER.pack(api_key, api_version, correlation_id, len(name))
    out += name
    if is_flexible(api_key, api_version):
        out.append(0)
    struct_writer(request_schema(api_key, api_version))(out, request)
    _LENGTH.pack_into(out, 0, len(out) - _LENGTH.size)
    return out


def read_response(
    frame: Records,
    request_class: type[Request[ResponseT]],
    api_version: int,
    number: int,
) -> ResponseT:
    """The response in a frame. Raises MalformedResponse if it is not the response to that request."""
    api_key = request_class.API_KEY
    cursor = Cursor(frame)
    cursor.elements_left = MAX_RESPONSE_ELEMENTS
    try:
        (answered,) = _CORRELATION.unpack(cursor.take(_CORRELATION.size))
        if answered != number:
            raise MalformedResponse(f"the response to request {answered} came in place of that to {number}")
        if api_key != ApiKey.API_VERSIONS and is_flexible(api_key, api_version):
            cursor.skip_tags()
        response: ResponseT = _response_reader(api_key, api_version)(cursor)
        return response
    except (MalformedRequest, struct.error) as error:
        raise MalformedResponse(f"response of API {api_key} in version {api_version}: {error}") from None


def correlation_id(frame: Records) -> int:
    """Of the request that a frame answers. Raises MalformedResponse."""
    if len(frame) < _CORRELATION.size:
        raise MalformedResponse(f"a response of {len(frame)} bytes")
    return int(_CORRELATION.unpack_from(frame)[0])


@cache
def _response_reader(api_key: int, api_version: int) -> Callable[[Cursor], Any]:
    return struct_reader(response_schema(api_key, api_version), response_class(api_key))
