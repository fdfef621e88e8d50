"""Whose tokens clients may log in with, as the table `[oidc]` of the configuration file:

    [oidc]
    issuer = "https://id.example.com/realms/a"
    audience = "headwater"

Without the table no token is believed, and no listener offers OAUTHBEARER.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headwater.broker.settings import setting
from headwater.broker.settings.setting import ConfigError

if TYPE_CHECKING:  # they read keys and signatures, which a broker without [oidc] does not need
    from headwater.security.jwt_rules import TokenRules


def _seconds(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError("a whole number of seconds is needed")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcConfig:
    rules: "TokenRules"
    """Which tokens are believed: all keys of the table that are not below."""
    jwks_url: str | None = None
    """Where the issuer's keys are; what its metadata says, unless given."""
    ca: Path | None = None
    """PEM: who signs the certificate of the server with the keys; the authorities of this machine, unless given."""

    @property
    def issuer(self) -> str:
        return self.rules.issuer


_READERS: Final[Mapping[str, Callable[[object], Any]]] = {
    "issuer": setting.text,
    "audience": setting.text,
    "jwks_url": setting.text,
    "ca": setting.path,
    "principal_claim": setting.text,
    "scope": setting.text,
    "clock_skew_s": _seconds,
    "allowed_algorithms": setting.words,
}
"""Of each key: from a TOML value, or ConfigError with what is allowed."""


def read_oidc(value: object) -> OidcConfig:
    """From the table `[oidc]`. Raises ConfigError."""
    if isinstance(value, OidcConfig):
        return value
    values = setting.table(value, "oidc", _READERS)
    for needed in ("issuer", "audience"):
        if needed not in values:
            raise ConfigError(f"{needed} is missing")
    return _checked(values)


def _checked(values: dict[str, Any]) -> OidcConfig:
    from headwater.security.issuer_urls import UnusableUrl, check_url, metadata_url
    from headwater.security.jwt_rules import TokenRules, UnusableTokenRules

    jwks_url, ca = values.pop("jwks_url", None), values.pop("ca", None)
    try:
        rules = TokenRules(**values)
        if jwks_url is None:
            metadata_url(rules.issuer)
        else:
            check_url(jwks_url)
    except UnusableTokenRules as error:
        raise ConfigError(str(error)) from None
    except UnusableUrl as error:
        name = "issuer" if jwks_url is None else "jwks_url"
        raise ConfigError(f"{name}: {error}") from None
    return OidcConfig(rules=rules, jwks_url=jwks_url, ca=ca)
