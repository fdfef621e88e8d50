"""Three nodes that hold their users to bindings, and one connection of each user to each node."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headwater.model.errors import ErrorCode
from headwater.security.access_codes import Operation, PatternType, Permission, ResourceType
from headwater.transport.ports import free_ports
from tests.cluster.small_cluster import SmallCluster
from tests.support.eventually import until
from tests.support.first_users import LISTENER, write_first_users
from tests.support.messages import nested
from tests.support.user_client import UserClient

ADMIN, READER = "admin", "alice"
NODES: Final = (1, 2, 3)
TOPIC: Final = "orders"
METADATA, CREATE_TOPICS, CREATE_ACLS, DELETE_ACLS = 3, 19, 30, 31


@dataclass(frozen=True, slots=True)
class GuardedNodes:
    addresses: dict[int, tuple[str, int]]
    admins: dict[int, UserClient]
    readers: dict[int, UserClient]

    async def allow(self, by: int = 1) -> None:
        """Reading the topic, by one node, and known to all when this returns."""
        creation = nested(
            resource_type=ResourceType.TOPIC, resource_name=TOPIC, resource_pattern_type=PatternType.LITERAL,
            principal=f"User:{READER}", host="*", operation=Operation.READ, permission_type=Permission.ALLOW,
        )  # fmt: skip
        answer = await self.admins[by].ask(CREATE_ACLS, 3, creations=[creation])
        assert [each.error_code for each in answer.results] == [0]
        for node in NODES:
            await until(self._knows(node, ErrorCode.NONE), f"node {node} allows it")

    async def revoke(self) -> None:
        """By node 1, which has acknowledged it when this returns."""
        deletion = nested(
            resource_type_filter=ResourceType.TOPIC, resource_name_filter=TOPIC,
            pattern_type_filter=PatternType.LITERAL, principal_filter=f"User:{READER}", host_filter="*",
            operation=Operation.READ, permission_type=Permission.ALLOW,
        )  # fmt: skip
        answer = await self.admins[1].ask(DELETE_ACLS, 3, filters=[deletion])
        assert [len(each.matching_acls) for each in answer.filter_results] == [1]

    async def refuses(self, node: int) -> bool:
        return await self.code(node) == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    async def code(self, node: int) -> int:
        """What the reader is told of the topic."""
        answer = await self.readers[node].ask(METADATA, 9, topics=[nested(name=TOPIC)], allow_auto_topic_creation=False)
        code: int = answer.topics[0].error_code
        return code

    def _knows(self, node: int, code: int) -> Callable[[], Awaitable[bool]]:
        async def knows() -> bool:
            return await self.code(node) == code

        return knows


@contextmanager
def three_nodes(directory: Path, metadata: str | None = None) -> Iterator[dict[int, tuple[str, int]]]:
    """The addresses that users log in at."""
    addresses = {node: ("127.0.0.1", port) for node, port in zip(NODES, free_ports(len(NODES)), strict=True)}
    write_first_users(directory / "node-1", ADMIN, READER)
    settings: dict[str, Any] = {"authorization": "on", "super_users": [f"User:{ADMIN}"]}
    with SmallCluster(directory, metadata, **settings) as cluster:
        for node, (host, port) in addresses.items():
            cluster.add(node, listener=[{**LISTENER, "listen": f"{host}:{port}"}])
        yield addresses


@asynccontextmanager
async def logged_in(addresses: dict[int, tuple[str, int]]) -> AsyncIterator[GuardedNodes]:
    """There is a topic, and each node leads a partition of it: node 1 the first."""
    admins, readers = {}, {}
    for node, address in addresses.items():
        admins[node] = await UserClient.log_in(address, ADMIN)
        readers[node] = await UserClient.log_in(address, READER)
    try:
        await _create_topic(admins[1])
        yield GuardedNodes(addresses, admins, readers)
    finally:
        for client in (*admins.values(), *readers.values()):
            client.close()


async def _create_topic(admin: UserClient) -> None:
    assignments = [nested(partition_index=index, broker_ids=[node]) for index, node in enumerate(NODES)]
    topic = nested(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=[])

    async def is_created() -> bool:
        """Node 1 may not know of the others yet."""
        answer = await admin.ask(CREATE_TOPICS, 7, topics=[topic], timeout_ms=30_000, validate_only=False)
        return answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

    await until(is_created, "the topic is created")
