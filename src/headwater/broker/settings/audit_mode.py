"""Whether this node records who did what, and of whom it does not: how both are written in a configuration."""

import enum

from headwater.broker.settings import setting
from headwater.broker.settings.setting import ConfigError
from headwater.security.principal import MalformedPrincipal, Principal

MAX_EXCLUDED = 1_000


class AuditMode(enum.StrEnum):
    AUTO = "auto"
    """On where clients are asked who they are."""
    ON = "on"
    OFF = "off"


def audit_mode(value: object) -> AuditMode:
    return setting.one_of(AuditMode, value)


def excluded_principals(value: object) -> tuple[Principal, ...]:
    """As super users are written: a list, or with semicolons."""
    texts = setting.words(value.split(";") if isinstance(value, str) else value)
    if len(texts) > MAX_EXCLUDED:
        raise ConfigError(f"at most {MAX_EXCLUDED} principals are excluded")
    try:
        return tuple(dict.fromkeys(Principal.parse(text.strip()) for text in texts))
    except MalformedPrincipal as problem:
        raise ConfigError(str(problem)) from None
