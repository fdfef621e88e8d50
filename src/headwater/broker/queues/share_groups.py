"""The share groups, as those who serve their queues see them: their coordinator may be another node."""

import contextlib
import logging
from collections.abc import Callable

from headwater.broker.groups.group_coordinator import GroupCoordinator
from headwater.broker.nodes import node_messages
from headwater.broker.nodes.node_client import ConnectionClass, NodeClient, NodeRequest, no_response
from headwater.broker.nodes.node_messages import NodeCallKind
from headwater.broker.nodes.routed import Route
from headwater.broker.state.record_log import Spawn
from headwater.groups.share import ShareSettings
from headwater.logs.events import log_event
from headwater.model.errors import RequestError


class ShareGroups:
    def __init__(self, groups: GroupCoordinator, nodes: NodeClient, spawn: Spawn) -> None:
        self._groups = groups
        self._nodes = nodes
        self._spawn = spawn

    def on_departure(self, listener: Callable[[str, str], None]) -> None:
        """Of members of groups that are coordinated here. The other nodes learn of it by the member's connection, or
        when its leases run out."""
        self._groups.on_share_departure.append(listener)

    async def check(self, group_id: str) -> None:
        """Raises RequestError unless there is such a group."""

        async def check_here() -> None:
            self._groups.share_group(group_id)

        request = NodeRequest(
            NodeCallKind.SHARE_GROUP, ConnectionClass.STATE, lambda: node_messages.text(group_id), no_response
        )
        await self._route(group_id).call(check_here, request)

    def doubt(self, group_id: str, member_id: str, settings: ShareSettings) -> None:
        """The member's connection was lost: it must be heard of soon."""
        route = self._route(group_id)
        if route.is_here:
            with contextlib.suppress(RequestError):  # it never was a member
                self._groups.doubt_share_member(group_id, member_id, settings)
        else:
            self._spawn(self._send_doubt(route, group_id, member_id))

    async def _send_doubt(self, route: Route, group_id: str, member_id: str) -> None:
        """If the coordinator does not get it, the member's session runs out all the same, later."""
        body = node_messages.text(group_id) + node_messages.text(member_id)
        try:
            await route.send(NodeRequest(NodeCallKind.DOUBT_MEMBER, ConnectionClass.STATE, lambda: body, no_response))
        except RequestError as error:
            log_event("member_not_doubted", logging.WARNING, group=group_id, error=error)

    def _route(self, group_id: str) -> Route:
        groups = self._groups
        return Route(self._nodes, lambda: groups.keeps(group_id), lambda: groups.offsets_partition(group_id))
