"""The share groups, as those who serve their queues see them: their coordinator may be another node."""

import contextlib
import logging
from collections.abc import Callable

from headwater.broker.groups.group_coordinator import GroupCoordinator
from headwater.broker.nodes import node_messages as node_calls
from headwater.broker.nodes.node_client import Lane, NodeClient
from headwater.broker.nodes.node_messages import Kind
from headwater.broker.state.record_log import Spawn
from headwater.groups.share import ShareSettings
from headwater.model.errors import RequestError
from headwater.transport.facts import log_fact


class ShareGroups:
    def __init__(self, groups: GroupCoordinator, nodes: NodeClient, spawn: Spawn) -> None:
        self._groups = groups
        self._nodes = nodes
        self._spawn = spawn

    def on_departure(self, tell: Callable[[str, str], None]) -> None:
        """Of members of groups that are coordinated here. The other nodes learn of it by the member's connection, or
        when its leases run out."""
        self._groups.on_share_departure = tell

    async def check(self, group_id: str) -> None:
        """Raises RequestError unless there is such a group."""
        if self._nodes.is_alone or self._groups.keeps(group_id):
            self._groups.share_group(group_id)
            return
        partition = await self._groups.offsets_partition(group_id)
        await self._nodes.ask_leader(partition, Kind.SHARE_GROUP, node_calls.text(group_id), Lane.STATE)

    def doubt(self, group_id: str, member_id: str, settings: ShareSettings) -> None:
        """The member's connection was lost: it must be heard of soon."""
        if self._nodes.is_alone or self._groups.keeps(group_id):
            with contextlib.suppress(RequestError):  # it never was a member
                self._groups.doubt_share_member(group_id, member_id, settings)
        else:
            self._spawn(self._doubt_far(group_id, member_id))

    async def _doubt_far(self, group_id: str, member_id: str) -> None:
        """If nobody hears of it, the member's session runs out all the same, later."""
        body = node_calls.text(group_id) + node_calls.text(member_id)
        try:
            partition = await self._groups.offsets_partition(group_id)
            await self._nodes.ask_leader(partition, Kind.DOUBT_MEMBER, body, Lane.STATE)
        except RequestError as error:
            log_fact("member_not_doubted", logging.WARNING, group=group_id, error=error)
