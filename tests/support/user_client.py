"""A connection of a user who logs in, on the event loop of the test, with the bytes that went over it."""

import asyncio
from dataclasses import dataclass
from typing import Any, Self

from tests.support.eventually import PATIENCE_S
from tests.support.first_users import PASSWORD
from tests.support.wire import AsyncWireClient

SASL_HANDSHAKE, SASL_AUTHENTICATE, API_VERSIONS = 17, 36, 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    request: bytes
    response: bytes
    message: Any
    """None if there is no response."""
    is_closed: bool = False
    """Whether the connection was closed, instead of an answer."""


class UserClient(AsyncWireClient):
    @classmethod
    async def log_in(cls, address: tuple[str, int], user: str, password: str = PASSWORD) -> Self:
        client = await cls.open(address)
        offered = await client.ask(SASL_HANDSHAKE, 1, mechanism="PLAIN")
        assert offered.error_code == 0, f"PLAIN is not among {offered.mechanisms}"
        answer = await client.ask(SASL_AUTHENTICATE, 1, auth_bytes=b"\0".join((b"", user.encode(), password.encode())))
        assert answer.error_code == 0, answer.error_message
        return client

    async def exchange(self, api_key: int, version: int, fields: dict[str, Any]) -> Exchange:
        request = bytes(self.send(api_key, version, **fields))
        try:
            async with asyncio.timeout(PATIENCE_S):
                data = await self.receive()
        except (asyncio.IncompleteReadError, ConnectionError):
            return Exchange(request=request, response=b"", message=None, is_closed=True)
        return Exchange(request=request, response=data, message=self.read(data, api_key, version))

    async def tell(self, api_key: int, version: int, fields: dict[str, Any]) -> Exchange:
        """A request without a response, which is done when the next request has its own."""
        request = bytes(self.send(api_key, version, **fields))
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self.ask(API_VERSIONS, 0)
        except (asyncio.IncompleteReadError, ConnectionError):
            return Exchange(request=request, response=b"", message=None, is_closed=True)
        return Exchange(request=request, response=b"", message=None)
