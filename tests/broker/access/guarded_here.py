"""A broker on the test's event loop that holds its users to bindings, and clients on that loop that log in."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.broker.server import Broker
from headwater.broker.settings.broker_config import BrokerConfig
from headwater.security.access_codes import Operation, PatternType, Permission, ResourceType
from headwater.security.acl import AclBinding
from headwater.security.scram import ScramCredential, ScramMechanism
from headwater.testing.fakes.clock import ManualClock
from headwater.testing.fakes.files import MemoryFiles
from tests.support.local_broker import SMALL_STORE, Client

ADMIN, PASSWORD = "admin", "secret"
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
LISTENER = {"name": "guarded", "protocol": "SASL_PLAINTEXT", "listen": "127.0.0.1:0", "mechanisms": ["PLAIN"]}


@dataclass(slots=True)
class GuardedHere:
    broker: Broker
    admin: Client
    _clients: list[Client] = field(default_factory=list)

    async def client(self, user: str) -> Client:
        """Closed with the broker."""
        client = await log_in(self.broker, user)
        self._clients.append(client)
        return client

    async def allow(self, user: str, operation: Operation, resource_type: ResourceType, name: str) -> None:
        await self.broker.acl_bindings.create([_binding(user, operation, resource_type, name)])

    async def revoke(self, user: str, operation: Operation, resource_type: ResourceType, name: str) -> None:
        await self.broker.acl_bindings.delete([_binding(user, operation, resource_type, name)])

    def close(self) -> None:
        for client in (self.admin, *self._clients):
            client.close()


@asynccontextmanager
async def guarded_here(
    directory: Path, *users: str, clock: ManualClock | None = None, **config: Any
) -> AsyncIterator[GuardedHere]:
    settings: dict[str, Any] = {
        "data_dir": directory,
        "metrics": "off",
        "http": "off",
        "listener": [LISTENER],
        "authorization": "on",
        "super_users": [f"User:{ADMIN}"],
        **config,
    }
    loaded = BrokerConfig.load(None, **settings)
    broker = await Broker.start(loaded, clock=clock, files=MemoryFiles(), store_options=SMALL_STORE)
    try:
        credential = ScramCredential.of_password(ScramMechanism.SCRAM_SHA_256, PASSWORD, b"salt", 4096)
        for user in (ADMIN, *users):
            await broker.users.alter(user, (), {ScramMechanism.SCRAM_SHA_256: credential})
        guarded = GuardedHere(broker, await log_in(broker, ADMIN))
        try:
            yield guarded
        finally:
            guarded.close()
            await asyncio.sleep(0)
    finally:
        await broker.stop()


async def log_in(broker: Broker, user: str) -> Client:
    client = await Client.connect(broker)
    assert (await client.ask(SASL_HANDSHAKE, 1, mechanism="PLAIN")).error_code == 0
    answer = await client.ask(SASL_AUTHENTICATE, 2, auth_bytes=f"\0{user}\0{PASSWORD}".encode())
    assert answer.error_code == 0, answer.error_message
    return client


def _binding(user: str, operation: Operation, resource_type: ResourceType, name: str) -> AclBinding:
    return AclBinding(
        resource_type=resource_type, pattern_type=PatternType.LITERAL, name=name, principal=f"User:{user}", host="*",
        operation=operation, permission=Permission.ALLOW,
    )  # fmt: skip
