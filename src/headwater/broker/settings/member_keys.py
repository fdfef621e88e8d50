"""The configuration keys of a group that concern its members, beside those of share groups (`queues.group_keys`), and
what a broker allows groups to ask for.

Where a group says nothing, the broker's own setting stands (BROKER_DEFAULTS). What a group asks for lies between two
settings of the broker (BOUNDS) when it is altered; if they are narrowed afterwards, the nearest value that they allow
stands.

Kafka's keys for the groups of its Streams protocol (KIP-1071) are not here, because that protocol is not: Kafka Streams
uses the classic one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headwater.broker.settings.broker_config import BY_KAFKA_NAME, BrokerConfig
from headwater.groups.settings import ConsumerTimes
from headwater.model.config_key import (
    MAX_INT,
    ConfigKey,
    ConfigType,
    always_false,
    integer,
    parse_group_values,
    shown,
)
from headwater.model.errors import ErrorCode, RequestError

CONSUMER_SESSION: Final = "consumer.session.timeout.ms"
CONSUMER_HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
STREAMS_PREFIX: Final = "streams."
_MOST_INTERVAL_MS: Final = 15_000
_AT_ONCE: Final = "Accepted for Kafka's tools; assignments are made as soon as members or topics change."

_KEYS: Final[tuple[ConfigKey[int], ...]] = (
    ConfigKey(
        CONSUMER_SESSION,
        ConfigType.INT,
        "45000",
        "How long a member of the new consumer protocol may be silent before it is taken for gone.",
        integer(1, MAX_INT),
    ),
    ConfigKey(
        CONSUMER_HEARTBEAT,
        ConfigType.INT,
        "1000",
        "How often members of the new consumer protocol send a heartbeat.",
        integer(1, MAX_INT),
    ),
    ConfigKey("consumer.assignment.interval.ms", ConfigType.INT, "0", _AT_ONCE, integer(0, _MOST_INTERVAL_MS)),
    ConfigKey("share.assignment.interval.ms", ConfigType.INT, "0", _AT_ONCE, integer(0, _MOST_INTERVAL_MS)),
    ConfigKey(
        "share.renew.acknowledge.enable",
        ConfigType.BOOLEAN,
        "false",
        "Whether members may prolong the time for which they hold a record (KIP-1222), which Headwater does not offer.",
        always_false,
    ),
)
MEMBER_KEYS: Final = {key.name: key for key in _KEYS}

BROKER_DEFAULTS: Final = {
    name: f"group.{name}"
    for name in (
        CONSUMER_SESSION,
        CONSUMER_HEARTBEAT,
        "share.session.timeout.ms",
        "share.heartbeat.interval.ms",
        "share.record.lock.duration.ms",
        "share.delivery.count.limit",
        "share.partition.max.record.locks",
    )
}
"""From a group's key to the setting of the broker that stands where the group says nothing."""


def _bounds(name: str) -> tuple[str, str]:
    """The fields of the configuration that say how little and how much a group may ask for."""
    kind, _, rest = name.partition(".")
    return BY_KAFKA_NAME[f"group.{kind}.min.{rest}"], BY_KAFKA_NAME[f"group.{kind}.max.{rest}"]


BOUNDS: Final = {name: _bounds(name) for name in BROKER_DEFAULTS}
assert all(name in BY_KAFKA_NAME for name in BROKER_DEFAULTS.values()), "every default has its setting"


@dataclass(frozen=True, slots=True)
class ConsumerOverrides:
    """What a group says of the members of the new consumer protocol; None: nothing."""

    session_timeout_ms: int | None = None
    heartbeat_interval_ms: int | None = None

    def times(self, config: BrokerConfig) -> ConsumerTimes:
        """What holds, as far as the broker allows it."""
        session_ms = _within(config, CONSUMER_SESSION, self.session_timeout_ms)
        heartbeat_ms = _within(config, CONSUMER_HEARTBEAT, self.heartbeat_interval_ms)
        if session_ms is None:
            session_ms = config.group_consumer_session_timeout_ms
        if heartbeat_ms is None:
            heartbeat_ms = config.group_consumer_heartbeat_interval_ms
        return ConsumerTimes(session_ms, min(heartbeat_ms, max(session_ms - 1, 1)))


def parse_members(overrides: Mapping[str, str]) -> ConsumerOverrides:
    """From a group's overrides, of which other keys are left alone. Raises RequestError(INVALID_CONFIG)."""
    values = parse_group_values(MEMBER_KEYS, overrides)
    return ConsumerOverrides(values.get(CONSUMER_SESSION), values.get(CONSUMER_HEARTBEAT))


def check_members(overrides: Mapping[str, str], config: BrokerConfig) -> None:
    """What a group asks for, against what the broker allows. Raises RequestError(INVALID_CONFIG)."""
    for name, (least_field, most_field) in BOUNDS.items():
        if name in overrides and overrides[name].strip().isdecimal():
            least, most = getattr(config, least_field), getattr(config, most_field)
            if not least <= int(overrides[name]) <= most:
                raise RequestError(
                    ErrorCode.INVALID_CONFIG,
                    f"Group config {name}={shown(overrides[name])} is not valid: this broker allows {least} to {most}.",
                )
    said = parse_members(overrides)
    session_ms = said.session_timeout_ms or config.group_consumer_session_timeout_ms
    if (said.heartbeat_interval_ms or config.group_consumer_heartbeat_interval_ms) >= session_ms:
        raise RequestError(
            ErrorCode.INVALID_CONFIG, f"{CONSUMER_HEARTBEAT}: less than {CONSUMER_SESSION}, {session_ms}, is allowed."
        )


def _within(config: BrokerConfig, name: str, value: int | None) -> int | None:
    if value is None:
        return None
    least, most = (getattr(config, field) for field in BOUNDS[name])
    return int(min(max(value, least), most))
