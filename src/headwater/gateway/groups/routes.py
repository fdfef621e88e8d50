"""/v1/groups: who reads, how far they are, and who left why."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from headwater.gateway.cluster.broker_pages import broker_page
from headwater.gateway.context import Context
from headwater.gateway.groups.group_readers import KEYS, GroupReader, group_readers
from headwater.gateway.http.problems import Problem
from headwater.gateway.kafka import groups
from headwater.gateway.kafka.brokers import Refused
from headwater.gateway.kafka.connection import BrokerGone
from headwater.gateway.kafka.group_configs import group_configs, problem_of
from headwater.gateway.kafka.groups import ListedGroup
from headwater.gateway.kafka.retry import patiently
from headwater.gateway.openapi import answer, operation

MAX_WITH_LAG = 500
"""Groups whose lag is asked for in a list; of more than these it is not told."""


class GroupSummary(Struct):
    name: str
    kind: str
    state: str
    members: int | None
    """null, as the next ones: not known."""
    lag: int | None
    unknown_partitions: int | None
    """As in a group's own page."""


class Groups(Struct):
    groups: list[GroupSummary]


class AssignedPartition(Struct):
    topic: str
    partition: int


class Member(Struct):
    id: str
    client_id: str
    host: str
    assignment: list[AssignedPartition]


class Progress(Struct):
    topic: str
    partition: int
    committed: int | None
    """For a share group: where the records begin that it has not settled."""
    end_offset: int | None
    lag: int | None
    """Of a partition without a position: from the start of its log; of a queue, from where it would begin."""


class Departure(Struct):
    member: str
    reason: str
    at: int
    """Milliseconds since 1970."""


class Group(Struct):
    name: str
    kind: str
    state: str
    lag: int | None
    """The sum of what is known."""
    unknown_partitions: int
    """How many partitions that it reads have no known position: those without a commit, whose lag is counted from the
    start of the log, and those that no node leads, whose lag is not counted."""
    members: list[Member]
    partitions: list[Progress]
    departures: list[Departure] | None
    """null: not known, because no broker can be asked, or the asked one does not coordinate the group."""


def routes(context: Context) -> list[BaseRoute]:
    async def list_groups(request: Request) -> Response:
        return answer(Groups(await patiently(lambda: summaries(context))))

    async def describe_group(request: Request) -> Response:
        return answer(await patiently(lambda: described(context, request.path_params["group"])))

    return [
        operation(
            "GET", "/v1/groups", list_groups, "List groups of every kind", context,
            answers={200: Groups}, problems=(502,),
        ),
        operation(
            "GET", "/v1/groups/{group}", describe_group, "A group's members, lag, and who left why", context,
            answers={200: Group}, problems=(404, 502),
        ),
    ]  # fmt: skip


async def described(context: Context, name: str) -> Group:
    group = await groups.find_group(context, name)
    found = (await group_readers(context, [group], await _settings(context, [group]))).get(name)
    if found is None:
        raise groups.unknown_group(name)
    lag = found.lag
    return Group(
        group.name,
        group.kind,
        group.state,
        lag.records,
        lag.unknown_partitions,
        [
            Member(m.member_id, m.client_id, m.host, [AssignedPartition(*place) for place in m.places])
            for m in found.members
        ],
        [Progress(each.topic, each.partition, each.position, each.end_offset, each.lag) for each in found.standings],
        await _departures(context, group.name),
    )


async def summaries(context: Context) -> list[GroupSummary]:
    listed = await groups.list_groups(context)
    asked = listed[:MAX_WITH_LAG]
    found = await group_readers(context, asked, await _settings(context, asked), skips_silent=True)
    return [_summary(group, found.get(group.name)) for group in listed]


def _summary(group: ListedGroup, found: GroupReader | None) -> GroupSummary:
    if found is None:
        return GroupSummary(group.name, group.kind, group.state, None, None, None)
    lag = found.lag
    return GroupSummary(group.name, group.kind, group.state, len(found.members), lag.records, lag.unknown_partitions)


async def _settings(context: Context, listed: Sequence[ListedGroup]) -> dict[str, Mapping[str, str]]:
    try:
        configs = await group_configs(context.subscriptions.brokers, [group.name for group in listed], KEYS)
    except (Refused, BrokerGone) as error:
        raise problem_of(error) from None
    return {name: config.values for name, config in configs.items()}


async def _departures(context: Context, group: str) -> list[Departure] | None:
    try:
        page = await broker_page(context, "groups", group=group)
        if page is None or not page.get("is_known", True):
            return None
        return [
            Departure(left["member"], ": ".join(filter(None, (left["reason"], left["explanation"]))), left["at_ms"])
            for each in page["groups"]
            for left in each["departures"]
        ]
    except (Problem, KeyError, TypeError):
        return None
