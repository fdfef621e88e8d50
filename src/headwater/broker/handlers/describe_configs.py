"""DescribeConfigs (32): the configuration of topics, of this broker and of its logger. Versions 1 to 4: from 3 on
with the type of each entry and, when asked for, its documentation.

Groups and client metrics have no configuration here yet and are refused as INVALID_REQUEST.
"""

from typing import TYPE_CHECKING

from headwater.broker.config import Address
from headwater.broker.config_resources import (
    ConfigEntry,
    ResourceType,
    describe_broker,
    describe_logger,
    describe_topic,
    refuse_kind,
)
from headwater.broker.dispatch import Api, RequestContext
from headwater.broker.topic_name import check_topic_name
from headwater.model.errors import ErrorCode, RequestError
from headwater.wire.messages import Message

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(key=32, name="DescribeConfigs", min_version=1, max_version=4)


def handle(broker: "Broker", request: Message, context: RequestContext) -> Message:
    return Message(results=[_describe(broker, asked, request) for asked in request.resources])


def _describe(broker: "Broker", asked: Message, request: Message) -> Message:
    result = Message(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=(),
    )
    try:
        entries = _entries(broker, asked.resource_type, asked.resource_name)
    except RequestError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    # Null and empty both mean all.
    wanted = set(asked.configuration_keys or ())
    result.configs = [
        _message(entry, request.include_synonyms, request.include_documentation)
        for entry in entries
        if not wanted or entry.name in wanted
    ]
    return result


def _entries(broker: "Broker", resource_type: int, name: str) -> list[ConfigEntry]:
    match resource_type:
        case ResourceType.TOPIC:
            check_topic_name(name)
            return describe_topic(broker.catalog.topic(name).overrides, broker.config.topic_defaults)
        case ResourceType.BROKER:
            return describe_broker(broker.config, name, str(Address(*broker.advertised)))
        case ResourceType.BROKER_LOGGER:
            return describe_logger(broker.config, name)
    raise refuse_kind(resource_type)


def _message(entry: ConfigEntry, with_synonyms: bool, with_documentation: bool) -> Message:
    return Message(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=False,
        synonyms=[Message(name=found.name, value=found.value, source=found.source) for found in entry.candidates]
        if with_synonyms
        else (),
        config_type=entry.type,
        documentation=entry.doc if with_documentation else None,
    )
