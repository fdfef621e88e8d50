"""The APIs and versions of the table of all messages."""

from collections.abc import Iterator

from headwater.wire.api_keys import ApiKey
from headwater.wire.schema import UnknownMessage, request_schema

MAX_VERSIONS = 30


def every_version() -> Iterator[tuple[ApiKey, int]]:
    for api_key in ApiKey:
        for version in range(MAX_VERSIONS):
            try:
                request_schema(api_key, version)
            except UnknownMessage:
                continue
            yield api_key, version
