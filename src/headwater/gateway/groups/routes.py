"""/v1/groups: who reads, how far they are, and who left why."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from headwater.client.admin.groups import GroupListing
from headwater.client.asyncio_cluster import AsyncioCluster
from headwater.gateway.cluster.broker_pages import PageReader
from headwater.gateway.groups.group_readers import KEYS, GroupReader, group_readers
from headwater.gateway.http.openapi import Operation, answer
from headwater.gateway.http.problems import Problem
from headwater.gateway.kafka import groups
from headwater.gateway.kafka.admin import Admin
from headwater.gateway.kafka.errors import group_not_found
from headwater.gateway.kafka.group_configs import group_configs
from headwater.gateway.kafka.until_ready import retry_until_ready

MAX_WITH_LAG = 500
"""Groups whose lag is asked for in a list; for further groups it is left out."""


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
    """For a share group: the offset of the first record that is not resolved."""
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
    """How many partitions that it reads have no known position: partitions without a commit, whose lag is counted from
    the start of the log, and partitions that no node leads, whose lag is not counted."""
    members: list[Member]
    partitions: list[Progress]
    departures: list[Departure] | None
    """null: not known, because no broker can be asked, or the asked one does not coordinate the group."""


class GroupRoutes:
    def __init__(self, admin: Admin, cluster: AsyncioCluster, pages: PageReader) -> None:
        self._admin = admin
        self._cluster = cluster
        self._pages = pages

    def operations(self) -> list[Operation]:
        return [
            Operation(
                "GET", "/v1/groups", self.list_groups, "List groups of every kind",
                answers={200: Groups}, problems=(502,),
            ),
            Operation(
                "GET", "/v1/groups/{group}", self.describe_group, "A group's members, lag, and who left why",
                answers={200: Group}, problems=(404, 502),
            ),
        ]  # fmt: skip

    async def list_groups(self, request: Request) -> Response:
        return answer(Groups(await retry_until_ready(self._summaries)))

    async def describe_group(self, request: Request) -> Response:
        return answer(await retry_until_ready(lambda: self._describe(request.path_params["group"])))

    async def _summaries(self) -> list[GroupSummary]:
        listed = await groups.list_groups(self._admin)
        first = listed[:MAX_WITH_LAG]
        readers = await group_readers(self._admin, first, await self._settings(first), skips_silent=True)
        return [_summary(group, readers.get(group.name)) for group in listed]

    async def _describe(self, name: str) -> Group:
        group = await groups.find_group(self._admin, name)
        reader = (await group_readers(self._admin, [group], await self._settings([group]))).get(name)
        if reader is None:
            raise group_not_found(name)
        lag = reader.lag
        return Group(
            name=group.name,
            kind=group.kind,
            state=group.state,
            lag=lag.records,
            unknown_partitions=lag.unknown_partitions,
            members=[
                Member(
                    each.member_id, each.client_id, each.host, [AssignedPartition(*name) for name in each.partitions]
                )
                for each in reader.members
            ],
            partitions=[
                Progress(each.topic, each.partition, each.position, each.end_offset, each.lag)
                for each in reader.standings
            ],
            departures=await self._departures(group.name),
        )

    async def _settings(self, listed: Sequence[GroupListing]) -> dict[str, Mapping[str, str]]:
        configs = await group_configs(self._cluster, [group.name for group in listed], KEYS)
        return {name: config.values for name, config in configs.items()}

    async def _departures(self, group: str) -> list[Departure] | None:
        try:
            page = await self._pages.json("groups", group=group)
            if page is None or not page.get("is_known", True):
                return None
            return [
                Departure(left["member"], ": ".join(filter(None, (left["reason"], left["explanation"]))), left["at_ms"])
                for each in page["groups"]
                for left in each["departures"]
            ]
        except (Problem, KeyError, TypeError):
            return None


def _summary(group: GroupListing, reader: GroupReader | None) -> GroupSummary:
    """Without a reader, its members and its lag are not known."""
    if reader is None:
        return GroupSummary(group.name, group.kind, group.state, None, None, None)
    lag = reader.lag
    return GroupSummary(group.name, group.kind, group.state, len(reader.members), lag.records, lag.unknown_partitions)
