"""Which requests are let in, decided before any route is looked for.

- A page of another site must not reach us through the browser of a user who can. The Host header must name us (a name
  that an attacker points at this address does not), requests that change something must not come from another origin,
  and there are no CORS headers, so that answers cannot be read there.
- With a token, every request bears it, as `Authorization: Bearer`, or as the cookie that logging in sets. Only paths
  that a part declares public are open, such as /healthz.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from http.cookies import CookieError, SimpleCookie

from headwater.gateway.config import GatewayConfig
from headwater.gateway.http.problems import Problem, bad_request
from headwater.transport.token_file import bears, read_token

COOKIE = "headwater_session"
SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
SAME_SITE = frozenset(("same-origin", "none"))
"""`none` is a person who typed the address."""
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class Guard:
    def __init__(self, config: GatewayConfig, public: Iterable[str] = ()) -> None:
        self._token = read_token(config.token_file) if config.token_file is not None else None
        self._hosts = _names(config)
        self._public = frozenset(path for path in public if not path.endswith("*"))
        self._public_prefixes = tuple(path[:-1] for path in public if path.endswith("*"))

    def check(self, method: str, path: str, headers: Mapping[str, str]) -> None:
        """Raises Problem (400, 401, 403)."""
        self._check_host(headers.get("host"))
        if method not in SAFE_METHODS or "upgrade" in headers:
            self._check_origin(headers)
        if self._token is not None and not self._is_public(path) and not self._bears_token(headers):
            raise Problem(
                401, "Unauthorized", "Send Authorization: Bearer with the gateway's token.",
                headers={"WWW-Authenticate": "Bearer"},
            )  # fmt: skip

    def session(self, token: str) -> str | None:
        """The value of the cookie, if this is the gateway's token; None if it is not, or if the gateway has no
        token."""
        if self._token is None or not hmac.compare_digest(token.encode(), self._token):
            return None
        return _session_of(self._token)

    @property
    def asks_for_token(self) -> bool:
        return self._token is not None

    def _check_host(self, host: str | None) -> None:
        if self._hosts is None:
            return
        if host is None:
            raise bad_request("The request has no Host header.")
        name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
        # An address is no name that an attacker could point elsewhere.
        if name.lower().rstrip(".") not in self._hosts and not _is_address(name):
            raise Problem(
                403,
                "Forbidden",
                f"This gateway is not known as {name[:100]!r}. Add the name to its allowed hosts if it should be.",
            )

    def _check_origin(self, headers: Mapping[str, str]) -> None:
        site = headers.get("sec-fetch-site")
        if site is not None and site not in SAME_SITE:
            raise _foreign()
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != headers.get("host"):
            raise _foreign()

    def _is_public(self, path: str) -> bool:
        return path in self._public or (bool(self._public_prefixes) and path.startswith(self._public_prefixes))

    def _bears_token(self, headers: Mapping[str, str]) -> bool:
        assert self._token is not None, "asked only with a token"
        authorization = headers.get("authorization", "")
        if authorization.lower().startswith("bearer "):
            return bears(authorization.encode("latin-1", "replace"), self._token)
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        if cookie is None:
            return False
        return hmac.compare_digest(cookie.value.encode("latin-1", "replace"), _session_of(self._token).encode())


def _names(config: GatewayConfig) -> frozenset[str] | None:
    """What the Host header may say; None if anything."""
    if "*" in config.allowed_hosts:
        return None
    listened = config.host.lower().strip("[]")
    return frozenset((listened, *LOOPBACK_NAMES, *(name.lower() for name in config.allowed_hosts)))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _session_of(token: bytes) -> str:
    return hmac.new(token, b"headwater session", hashlib.sha256).hexdigest()


def _foreign() -> Problem:
    return Problem(403, "Forbidden", "A page of another origin may not do this here.")
