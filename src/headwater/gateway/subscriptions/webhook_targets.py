"""Where webhooks may be: public addresses, unless the operator allows others.

A name is looked up by us, every address that it has is checked, and the connection is made to one of the checked
addresses: changing the name's address in between gains an attacker nothing.
"""

import asyncio
import ipaddress
import socket
from typing import TypeAlias

from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_ADDRESSES = 16
LOOK_UP_S = 5.0
HOW_TO_ALLOW = (
    "Private ones are allowed by http_private_webhooks = true in the broker's configuration, "
    "or `headwater gateway --private-webhooks`"
)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class RefusedTarget(Exception):
    """Nothing is sent there. The message says why."""


def check_url(text: str, *, allows_private: bool) -> URL:
    """What can be said without asking anybody. Raises RefusedTarget."""
    try:
        url = URL(text)
        host, port = url.host, url.port
    except ValueError as error:
        raise RefusedTarget(f"it is no URL: {error}") from None
    if url.scheme not in ("http", "https") or not host or not port:
        raise RefusedTarget("an http or https URL with a host is needed")
    if url.user is not None or url.password is not None:
        raise RefusedTarget("a name or password in a URL is not sent; sign requests with a secret instead")
    if url.raw_fragment:
        raise RefusedTarget("a URL with a fragment names a place in a page, not a receiver")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return url
    if not allows_private:
        _check_public(address)
    return url


class PublicResolver(AbstractResolver):
    """Raises RefusedTarget, an OSError for the client of HTTP, if any address of a name is not public."""

    def __init__(self, *, allows_private: bool) -> None:
        self._allows_private = allows_private

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(LOOK_UP_S):
            found = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
        results = []
        for found_family, _, protocol, _, where in found[:MAX_ADDRESSES]:
            address = ipaddress.ip_address(str(where[0]).partition("%")[0])
            if not self._allows_private:
                try:
                    _check_public(address)
                except RefusedTarget as error:
                    raise OSError(f"{host}: {error}") from None
            results.append(
                ResolveResult(
                    hostname=host,
                    host=str(where[0]),
                    port=port,
                    family=found_family,
                    proto=protocol,
                    flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                )
            )
        return results

    async def close(self) -> None:
        """Nothing is kept."""


def _check_public(address: IpAddress) -> None:
    for each in _meant(address):
        if not each.is_global or each.is_multicast or each.is_reserved:
            raise RefusedTarget(f"{address} is not a public address. {HOW_TO_ALLOW}")


def _meant(address: IpAddress) -> list[IpAddress]:
    """The address itself, and the one of version 4 that it stands for."""
    meant: list[IpAddress] = [address]
    if isinstance(address, ipaddress.IPv6Address):
        inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        if address in _NAT64:
            inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        meant = [each for each in inner if each is not None] or meant
    return meant
