"""/v1/groups: who reads, how far they are, and who left why."""

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from headwater.gateway.broker_pages import broker_page
from headwater.gateway.context import Context
from headwater.gateway.kafka import groups
from headwater.gateway.kafka.admin import Place
from headwater.gateway.kafka.groups import SHARE, ListedGroup
from headwater.gateway.openapi import answer, operation
from headwater.gateway.problems import Problem

MAX_WITH_LAG = 500
"""Groups whose lag is asked for in a list; of more than these it is not told."""


class GroupSummary(Struct):
    name: str
    kind: str
    state: str
    members: int
    lag: int | None


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
    members: list[Member]
    partitions: list[Progress]
    departures: list[Departure]


def routes(context: Context) -> list[BaseRoute]:
    async def list_groups(request: Request) -> Response:
        return answer(Groups(await summaries(context)))

    async def describe_group(request: Request) -> Response:
        group = await groups.find_group(context, request.path_params["group"])
        found = await groups.members(context, group)
        partitions = await _progress(context, group, {place for member in found for place in member.places})
        lags = [each.lag for each in partitions if each.lag is not None]
        return answer(
            Group(
                group.name,
                group.kind,
                group.state,
                sum(lags) if lags else None,
                [
                    Member(m.member_id, m.client_id, m.host, [AssignedPartition(*place) for place in m.places])
                    for m in found
                ],
                partitions,
                await _departures(context, group.name),
            )
        )

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


async def summaries(context: Context) -> list[GroupSummary]:
    listed = await groups.list_groups(context)
    asked = listed[:MAX_WITH_LAG]
    streams = [group.name for group in asked if group.kind != SHARE]
    members = {name: len(found) for name, found in (await groups.consumer_members(context, streams)).items()}
    committed = await groups.committed(context, streams)
    ends = await groups.end_offsets(context, {place for places in committed.values() for place in places})
    lags: dict[str, int | None] = {}
    for name, places in committed.items():
        known = [max(ends[place] - offset, 0) for place, offset in places.items() if place in ends]
        lags[name] = sum(known) if known else None
    for group in asked:
        if group.kind == SHARE:
            try:
                members[group.name] = len(await groups.members(context, group))
                lags[group.name] = _share_lag(await groups.share_positions(context, group.name))
            except Problem:
                continue  # gone since it was listed
    return [
        GroupSummary(group.name, group.kind, group.state, members.get(group.name, 0), lags.get(group.name))
        for group in listed
    ]


def _share_lag(positions: dict[Place, tuple[int, int | None]]) -> int | None:
    known = [lag for _, lag in positions.values() if lag is not None]
    return sum(known) if known else None


async def _progress(context: Context, group: ListedGroup, assigned: set[Place]) -> list[Progress]:
    lags: dict[Place, int | None] = {}
    if group.kind == SHARE:
        positions = await groups.share_positions(context, group.name)
        committed = {place: start for place, (start, _) in positions.items()}
        lags = {place: lag for place, (_, lag) in positions.items()}
    else:
        committed = (await groups.committed(context, [group.name]))[group.name]
    places = sorted(committed.keys() | assigned)
    ends = await groups.end_offsets(context, places)
    told = []
    for place in places:
        end, offset = ends.get(place), committed.get(place)
        lag = lags.get(place)
        if lag is None and end is not None and offset is not None:
            lag = max(end - offset, 0)
        told.append(Progress(*place, offset, end, lag))
    return told


async def _departures(context: Context, group: str) -> list[Departure]:
    page = await broker_page(context, "groups", group=group)
    if page is None:
        return []
    try:
        return [
            Departure(left["member"], ": ".join(filter(None, (left["reason"], left["explanation"]))), left["at_ms"])
            for each in page["groups"]
            for left in each["departures"]
        ]
    except (KeyError, TypeError):
        return []
