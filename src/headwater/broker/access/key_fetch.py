"""The keys of an issuer, fetched over HTTP: little is taken, soon, and from no other host than the one configured.

    https://id.example.com/.well-known/openid-configuration      jwks_uri, unless the URL of the keys is configured
    https://id.example.com/keys                                  the JWKS document

What answers there decides who may log in, so its certificate is always verified; plain HTTP is for this machine.
"""

import asyncio
import importlib
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headwater.broker.settings.oidc_config import OidcConfig
from headwater.security.issuer_urls import (
    MalformedMetadata,
    UnusableUrl,
    check_url,
    keys_url,
    metadata_url,
    redirected,
)
from headwater.security.key_set import MAX_DOCUMENT_BYTES, KeySet, MalformedKeySet

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

FETCH_TIMEOUT_S: Final = 5.0
"""For all of it. Logins wait for it, and have twice that time."""
MAX_REDIRECTS: Final = 3
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_PIECE_BYTES: Final = 16 * 1024


class KeysUnavailable(Exception):
    """The keys could not be fetched; the message says why."""


class KeyFetch:
    def __init__(self, config: OidcConfig) -> None:
        self._config = config

    async def fetch(self) -> KeySet:
        """Raises KeysUnavailable."""
        # In threads: these take longer than the event loop may stand still.
        await asyncio.to_thread(importlib.import_module, "aiohttp")
        import aiohttp

        try:
            context = await asyncio.to_thread(_tls_context, self._config.ca)
            async with (
                asyncio.timeout(FETCH_TIMEOUT_S),
                aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(ssl=context),
                    cookie_jar=aiohttp.DummyCookieJar(),
                    auto_decompress=False,
                    headers={"Accept": "application/json", "Accept-Encoding": "identity"},
                ) as session,
            ):
                return await asyncio.to_thread(KeySet.parse, await self._document(session))
        except TimeoutError as error:
            raise KeysUnavailable(f"no answer within {FETCH_TIMEOUT_S:.0f} s") from error
        except (MalformedKeySet, MalformedMetadata, UnusableUrl) as error:
            raise KeysUnavailable(str(error)) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise KeysUnavailable(f"{type(error).__name__}: {error}"[:500]) from error

    async def _document(self, session: "ClientSession") -> bytes:
        url = self._config.jwks_url
        if url is None:
            issuer = self._config.issuer
            url = keys_url(await _get(session, metadata_url(issuer)), issuer)
        return await _get(session, url)


async def _get(session: "ClientSession", url: str) -> bytes:
    check_url(url)
    for _ in range(MAX_REDIRECTS + 1):
        async with session.get(url, allow_redirects=False) as response:
            if response.status in _REDIRECTS:
                url = redirected(url, response.headers.get("Location", ""))
            elif response.status != 200:
                raise KeysUnavailable(f"{url} answers with status {response.status}")
            else:
                return await _body(response, url)
    raise KeysUnavailable(f"more than {MAX_REDIRECTS} redirects")


async def _body(response: "ClientResponse", url: str) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_chunked(_PIECE_BYTES):
        body += piece
        if len(body) > MAX_DOCUMENT_BYTES:
            raise KeysUnavailable(f"{url} answers with more than {MAX_DOCUMENT_BYTES} bytes")
    return bytes(body)


def _tls_context(ca: Path | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca)
