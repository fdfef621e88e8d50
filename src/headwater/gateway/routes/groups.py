"""/v1/groups: who reads, how far they are, and who left why."""

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from headwater.gateway.broker_pages import broker_page
from headwater.gateway.context import Context
from headwater.gateway.kafka import groups
from headwater.gateway.kafka.admin import Place
from headwater.gateway.kafka.groups import SHARE, GroupMember, ListedGroup
from headwater.gateway.kafka.patience import patiently
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
    """Of a partition that a member is assigned and nobody has committed: from the start of its log."""


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
    """How many partitions have no known position: those that a member is assigned and nobody has committed, whose lag
    is counted from the start of the log, and those that nobody leads, whose lag is not counted."""
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
    found = await groups.members(context, group)
    partitions = await _progress(context, group, found)
    lag, unknown = _total(partitions)
    return Group(
        group.name,
        group.kind,
        group.state,
        lag,
        unknown,
        [Member(m.member_id, m.client_id, m.host, [AssignedPartition(*place) for place in m.places]) for m in found],
        partitions,
        await _departures(context, group.name),
    )


async def summaries(context: Context) -> list[GroupSummary]:
    listed = await groups.list_groups(context)
    asked = listed[:MAX_WITH_LAG]
    streams = [group.name for group in asked if group.kind != SHARE]
    members = await groups.consumer_members(context, streams)
    committed = await groups.committed(context, streams)
    totals: dict[str, tuple[int | None, int]] = {}
    for name, partitions in (await _stream_progress(context, committed, members)).items():
        totals[name] = _total(partitions)
    for group in asked:
        if group.kind == SHARE:
            try:
                members[group.name] = await groups.members(context, group)
                positions = await groups.share_positions(context, group.name)
                totals[group.name] = _share_total(positions, _assigned(members[group.name]))
            except Problem:
                continue  # gone since it was listed
    return [
        GroupSummary(
            group.name,
            group.kind,
            group.state,
            len(members.get(group.name, ())),
            *totals.get(group.name, (None, None)),
        )
        for group in listed
    ]


def _total(partitions: list[Progress]) -> tuple[int | None, int]:
    lags = [each.lag for each in partitions if each.lag is not None]
    unknown = sum(1 for each in partitions if each.committed is None or each.lag is None)
    return sum(lags) if lags else None, unknown


def _share_total(positions: dict[Place, tuple[int, int | None]], assigned: set[Place]) -> tuple[int | None, int]:
    lags = [lag for _, lag in positions.values() if lag is not None]
    return sum(lags) if lags else None, len(positions.keys() | assigned) - len(lags)


async def _progress(context: Context, group: ListedGroup, members: list[GroupMember]) -> list[Progress]:
    if group.kind == SHARE:
        return await _share_progress(context, group.name, members)
    committed = await groups.committed(context, [group.name])
    return (await _stream_progress(context, committed, {group.name: members}))[group.name]


async def _share_progress(context: Context, name: str, members: list[GroupMember]) -> list[Progress]:
    positions = await groups.share_positions(context, name)
    places = sorted(positions.keys() | _assigned(members))
    ends = await groups.end_offsets(context, places)
    told = []
    for place in places:
        start, lag = positions.get(place, (None, None))
        told.append(Progress(*place, start, ends.get(place), lag if lag is not None else _lag(start, ends.get(place))))
    return told


async def _stream_progress(
    context: Context, committed: dict[str, dict[Place, int]], members: dict[str, list[GroupMember]]
) -> dict[str, list[Progress]]:
    """Of classic and consumer groups, by name."""
    places = {name: sorted(offsets.keys() | _assigned(members.get(name, []))) for name, offsets in committed.items()}
    ends = await groups.end_offsets(context, {place for found in places.values() for place in found})
    uncommitted = {place for name, found in places.items() for place in found if place not in committed[name]}
    starts = await groups.start_offsets(context, uncommitted)
    told: dict[str, list[Progress]] = {}
    for name, offsets in committed.items():
        told[name] = []
        for place in places[name]:
            offset, end = offsets.get(place), ends.get(place)
            position = offset if offset is not None else starts.get(place)
            told[name].append(Progress(*place, offset, end, _lag(position, end)))
    return told


def _assigned(members: list[GroupMember]) -> set[Place]:
    return {place for member in members for place in member.places}


def _lag(position: int | None, end: int | None) -> int | None:
    return max(end - position, 0) if position is not None and end is not None else None


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
