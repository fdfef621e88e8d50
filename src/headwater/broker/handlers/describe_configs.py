"""DescribeConfigs (32): the configuration of topics, of groups, of this broker and of its logger. Versions 1 to 4: from
3 on with the type of each entry and, when asked for, its documentation.

A group need not exist to be described: its configuration may come first. Client metrics have none and are refused as
INVALID_REQUEST. Of sensitive settings only gateways are shown the values; others see where one comes from.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headwater.broker.access.client_access import ClientAccess
from headwater.broker.access.config_access import config_refusal
from headwater.broker.access.declared_access import Access, on_cluster, on_group, on_topic
from headwater.broker.api import Api, RequestContext
from headwater.broker.settings.config_resources import (
    ConfigEntry,
    ConfigResourceType,
    describe_overrides,
    describe_topic,
    refuse_kind,
)
from headwater.broker.settings.topic_name import check_topic_name
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.DESCRIBE_CONFIGS,
    name="DescribeConfigs",
    access=Access.by_handler(
        on_topic(
            Operation.DESCRIBE_CONFIGS,
            "resources[].resource_name",
            refused_at="results[].error_code",
            condition="of topics",
        ),
        on_group(
            Operation.DESCRIBE_CONFIGS,
            "resources[].resource_name",
            refused_at="results[].error_code",
            condition="of groups",
        ),
        on_cluster(
            Operation.DESCRIBE_CONFIGS,
            refused_at="results[].error_code",
            condition="of brokers, their loggers, and client metrics",
        ),
    ),
    min_version=1,
    max_version=4,
)

RESOURCES_AT_ONCE = 100
"""Described before other requests are served."""


async def handle(broker: "Broker", request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    access = context.access
    refusals = await _refusals(request.resources, access)
    allowed = [asked for asked, refusal in zip(request.resources, refusals, strict=True) if refusal is None]
    await _refresh(broker, allowed)
    descriptions = _Descriptions(broker, access, request.include_synonyms, request.include_documentation)
    results = []
    for count, (asked, refusal) in enumerate(zip(request.resources, refusals, strict=True), 1):
        results.append(descriptions.answer(asked) if refusal is None else _refused(asked, refusal))
        if count % RESOURCES_AT_ONCE == 0:
            await asyncio.sleep(0)
    return DescribeConfigsResponse(results=results)


async def _refusals(resources: Sequence[DescribeConfigsResource], access: ClientAccess) -> list[RequestError | None]:
    """Of each resource, why the client may not see its settings."""
    refusals: list[RequestError | None] = []
    for count, asked in enumerate(resources, 1):
        refusals.append(config_refusal(access, Operation.DESCRIBE_CONFIGS, asked.resource_type, asked.resource_name))
        if count % RESOURCES_AT_ONCE == 0:
            await asyncio.sleep(0)
    return refusals


def _refused(asked: DescribeConfigsResource, error: RequestError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.message,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=(),
    )


async def _refresh(broker: "Broker", resources: Sequence[DescribeConfigsResource]) -> None:
    """What was altered through another node is shown here, too, as soon as that was acknowledged."""
    groups = {asked.resource_name for asked in resources if asked.resource_type == ConfigResourceType.GROUP}
    await broker.group_configs.refresh_if_possible(*groups)
    topics = {asked.resource_name for asked in resources if asked.resource_type == ConfigResourceType.TOPIC}
    await broker.catalog.reread_if_possible(filter(None, map(broker.catalog.find, topics)))


class _Descriptions:
    """The answers to one request. Topics share the entries that they did not override, and nothing is described twice:
    so neither many topics nor a hostile request costs more than what there is to tell."""

    def __init__(self, broker: "Broker", access: ClientAccess, with_synonyms: bool, with_documentation: bool) -> None:
        self._broker = broker
        self._shows_secrets = access.shows_secrets
        self._with_synonyms = with_synonyms
        self._with_documentation = with_documentation
        self._defaults = broker.settings.topic_defaults
        self._unaltered = self._messages(describe_topic({}, self._defaults))
        self._answered: set[tuple[int, str]] = set()

    def answer(self, asked: DescribeConfigsResource) -> DescribeConfigsResult:
        try:
            if (asked.resource_type, asked.resource_name) in self._answered:
                raise RequestError(ErrorCode.INVALID_REQUEST, "The resource is named twice.")
            self._answered.add((asked.resource_type, asked.resource_name))
            entries = self._describe(asked.resource_type, asked.resource_name)
        except RequestError as error:
            return _refused(asked, error)
        # Null and empty both mean all.
        wanted = set(asked.configuration_keys or ())
        return DescribeConfigsResult(
            error_code=ErrorCode.NONE,
            error_message=None,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
            configs=[message for name, message in entries.items() if not wanted or name in wanted],
        )

    def _describe(self, resource_type: int, name: str) -> dict[str, DescribeConfigsResourceResult]:
        broker = self._broker
        match resource_type:
            case ConfigResourceType.TOPIC:
                check_topic_name(name)
                altered = describe_overrides(broker.catalog.topic(name).overrides, self._defaults)
                return {**self._unaltered, **self._messages(altered)}
            case ConfigResourceType.BROKER:
                truths = {"default.replication.factor": str(broker.default_replication_factor)}
                return self._messages(broker.settings.describe(name, broker.cluster_nodes.own.listeners, truths))
            case ConfigResourceType.GROUP:
                return self._messages(broker.group_configs.describe(name))
            case ConfigResourceType.BROKER_LOGGER:
                broker.settings.check_number(name)
                return self._messages(broker.loggers.describe())
        raise refuse_kind(resource_type)

    def _messages(self, entries: Iterable[ConfigEntry]) -> dict[str, DescribeConfigsResourceResult]:
        return {entry.name: self._message(entry) for entry in entries}

    def _message(self, entry: ConfigEntry) -> DescribeConfigsResourceResult:
        is_hidden = entry.is_sensitive and not self._shows_secrets
        return DescribeConfigsResourceResult(
            name=entry.name,
            value=None if is_hidden else entry.value,
            read_only=entry.is_read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
            synonyms=_synonyms(entry, is_hidden) if self._with_synonyms else (),
            config_type=entry.type,
            documentation=entry.doc if self._with_documentation else None,
        )


def _synonyms(entry: ConfigEntry, is_hidden: bool) -> list[DescribeConfigsSynonym]:
    """What is not set has none, as in Kafka."""
    return [
        DescribeConfigsSynonym(name=found.name, value=None if is_hidden else found.value, source=found.source)
        for found in entry.candidates
        if found.value is not None
    ]
