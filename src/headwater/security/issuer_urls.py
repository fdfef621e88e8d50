"""Where the keys of an issuer of tokens are: URLs that an administrator, or the issuer's own metadata, gives.

    issuer                            https://id.example.com/realms/a
    its metadata                      https://id.example.com/realms/a/.well-known/openid-configuration
    its keys                          what the metadata says as jwks_uri, or what is configured

Keys that others could replace on the way are worth nothing: every URL is https, except on this machine. A redirect must
not lead to another host, which could be any in the network of the broker; what is fetched there decides who may log in.
"""

import ipaddress
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

from headwater.security.strict_json import MalformedJson, parse_object

MAX_URL_CHARS: Final = 2_000
_METADATA_PATH: Final = "/.well-known/openid-configuration"
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class UnusableUrl(ValueError):
    """Keys are not fetched from there; the message says why."""


class MalformedMetadata(ValueError):
    """Not the metadata of the issuer, or without a place of its keys."""


def check_url(url: str) -> None:
    """Raises UnusableUrl."""
    parts = _split(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname)):
        raise UnusableUrl(f"{url[:200]!r} is not an https URL, which all are but those of 127.0.0.1 and localhost.")


def metadata_url(issuer: str) -> str:
    """Raises UnusableUrl."""
    check_url(issuer)
    if urlsplit(issuer).query:
        raise UnusableUrl(f"The issuer {issuer[:200]!r} has a query; give the URL of its keys.")
    return issuer.rstrip("/") + _METADATA_PATH


def keys_url(metadata: bytes, issuer: str) -> str:
    """What the document says that the issuer has at `metadata_url`. Raises MalformedMetadata, UnusableUrl."""
    try:
        values = parse_object(metadata)
    except MalformedJson as error:
        raise MalformedMetadata(f"The metadata of the issuer: {error}") from error
    if values.get("issuer") != issuer:
        raise MalformedMetadata(f"The metadata is not that of the issuer {issuer[:200]!r}: it has another name in it.")
    url = values.get("jwks_uri")
    if not isinstance(url, str):
        raise MalformedMetadata("The metadata of the issuer has no text as jwks_uri.")
    check_url(url)
    if urlsplit(issuer).scheme == "https" != urlsplit(url).scheme:
        raise UnusableUrl("The issuer has https, and its keys do not.")
    return url


def redirected(url: str, location: str) -> str:
    """Where a redirect leads. Raises UnusableUrl, unless that is the same host and port in the same way."""
    if len(location) > MAX_URL_CHARS:
        raise UnusableUrl("A redirect is too long.")
    try:
        target = urljoin(url, location)
    except ValueError as error:
        raise UnusableUrl("A redirect leads to what is no URL.") from error
    check_url(target)
    if _origin(_split(target)) != _origin(_split(url)):
        raise UnusableUrl(f"A redirect leads to another host, {target[:200]!r}; give the URL of the keys themselves.")
    return target


def _split(url: str) -> SplitResult:
    if len(url) > MAX_URL_CHARS or not url.isascii() or not url.isprintable() or " " in url:
        raise UnusableUrl(f"A URL has at most {MAX_URL_CHARS} characters, of ASCII, and no spaces: {url[:200]!r}.")
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise UnusableUrl(f"{url[:200]!r} is not a URL: {error}.") from error
    if not has_host or "@" in parts.netloc or parts.fragment or "\\" in url:
        raise UnusableUrl(f"{url[:200]!r} is not a URL with a host, and without a user and a fragment.")
    return parts


def _is_loopback(host: str | None) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)
