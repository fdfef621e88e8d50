"""The configuration of one topic, parsed: what its overrides say, and the broker's defaults for all else.

    the topic's own value  >  what was altered for the broker, or for all  >  its file  >  the default in `TOPIC_KEYS`

An override that does not parse never becomes a TopicConfig, so code that has one need not check anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches

from headwater.broker.settings.topic_keys import ALIASES, DURABILITY, TOPIC_KEYS, TopicValue
from headwater.broker.settings.topic_name import check_topic_name as check_topic_name
from headwater.model.config_key import ConfigSource, InvalidValue, shown
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import SegmentId, random_part
from headwater.model.replica import Durability


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One attribute for each key of `TOPIC_KEYS`, named like it."""

    cleanup_policy: frozenset[str]
    retention_ms: int
    retention_bytes: int
    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    max_message_bytes: int
    min_insync_replicas: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    message_timestamp_type: str
    message_timestamp_before_max_ms: int
    message_timestamp_after_max_ms: int
    delete_retention_ms: int
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    index_interval_bytes: int
    segment_index_bytes: int
    preallocate: bool
    unclean_leader_election_enable: bool
    remote_storage_enable: bool
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    local_retention_ms: int
    local_retention_bytes: int
    leader_replication_throttled_replicas: frozenset[str]
    follower_replication_throttled_replicas: frozenset[str]
    errors_deadletterqueue_group_enable: bool
    durability: Durability
    retention: str
    subscription_retention_limit_ms: int
    schema_validation: bool
    key_schema_validation: bool

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether old segments go by age and size."""
        return "delete" in self.cleanup_policy

    @property
    def compression_level(self) -> int | None:
        """Of `compression_type`; None: the codec's default."""
        match self.compression_type:
            case "gzip":
                return self.compression_gzip_level if self.compression_gzip_level != -1 else None
            case "lz4":
                return self.compression_lz4_level
            case "zstd":
                return self.compression_zstd_level
        return None

    @property
    def least_roll_age_ms(self) -> int:
        """No segment is closed for its age before it has this one."""
        return max(self.segment_ms - self.segment_jitter_ms, 0)

    def roll_age_ms(self, segment: SegmentId) -> int:
        """The age at which the segment is closed. The jitter is drawn from the random part of its id, so that it stays
        the same for as long as the segment is open."""
        jitter_ms = min(self.segment_jitter_ms, self.segment_ms)
        return self.segment_ms - random_part(segment) % (jitter_ms + 1) if jitter_ms else self.segment_ms

    @property
    def uses_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @classmethod
    def parse(cls, overrides: Mapping[str, str | None], defaults: "BrokerDefaults") -> "TopicConfig":
        """Raises RequestError(INVALID_CONFIG), naming the key, the value and what is allowed."""
        if not overrides:
            return defaults.topic
        values = {**defaults.values, **_parse_all(canonical(overrides))}
        _check_lags(values)
        return _from_values(values)

    @classmethod
    def stored(cls, overrides: Mapping[str, str], defaults: "BrokerDefaults") -> "TopicConfig":
        """Of overrides that were accepted once. The defaults beside them may have changed since, and then what the
        topic says itself stands."""
        if not overrides:
            return defaults.topic
        values = {**defaults.values, **_parse_all(canonical(overrides))}
        least, most = _LAGS
        if values[least] > values[most]:  # type: ignore[operator] # both are numbers
            stronger = least if least in overrides else most
            values[least] = values[most] = values[stronger]
        return _from_values(values)


@dataclass(frozen=True, slots=True)
class BrokerDefaults:
    """What a topic without overrides gets. Build one per broker."""

    overrides: Mapping[str, str] = field(default_factory=dict)
    """The choices of the broker's file, under the topic's key names."""
    altered: tuple[tuple[ConfigSource, Mapping[str, str]], ...] = ()
    """What administrators chose for the broker and for all brokers, under the same names, what wins first."""
    values: Mapping[str, TopicValue] = field(init=False, repr=False)
    topic: TopicConfig = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Raises RequestError(INVALID_CONFIG), as for a topic."""
        overrides = canonical(self.overrides)
        values = {key.name: key.parse(key.default) for key in TOPIC_KEYS.values()} | _parse_all(overrides)
        for _, chosen in reversed(self.altered):
            values |= _parse_all(chosen)
        _check_lags(values)
        object.__setattr__(self, "overrides", overrides)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "topic", _from_values(values))


@dataclass(frozen=True, slots=True)
class ConfigCandidate:
    """One place where a key's value may come from."""

    name: str
    value: str | None
    """None: nothing is set."""
    source: ConfigSource


def candidates(name: str, overrides: Mapping[str, str], defaults: BrokerDefaults) -> list[ConfigCandidate]:
    """Where a topic's value comes from and what it would be without that, the one in force first."""
    key = TOPIC_KEYS[name]
    found: list[ConfigCandidate] = []
    if name in overrides:
        found.append(ConfigCandidate(name, overrides[name], ConfigSource.DYNAMIC_TOPIC_CONFIG))
    broker_name = key.broker_name or name
    found += [
        ConfigCandidate(broker_name, chosen[name], source) for source, chosen in defaults.altered if name in chosen
    ]
    if name in defaults.overrides:
        found.append(ConfigCandidate(broker_name, defaults.overrides[name], ConfigSource.STATIC_BROKER_CONFIG))
    found.append(ConfigCandidate(broker_name, key.default, ConfigSource.DEFAULT_CONFIG))
    return found


def canonical(overrides: Mapping[str, str | None]) -> dict[str, str]:
    """The same overrides under their full names. Raises INVALID_CONFIG for an unknown key, a key given twice, or one
    without a value."""
    named: dict[str, str] = {}
    for given, value in overrides.items():
        name = canonical_name(given)
        if name in named:
            raise RequestError(ErrorCode.INVALID_CONFIG, f"Topic config {name} is given twice.")
        if value is None:
            raise RequestError(ErrorCode.INVALID_CONFIG, f"Topic config {name} needs a value.")
        named[name] = value
    return named


def canonical_name(given: str) -> str:
    name = ALIASES.get(given, given)
    if name not in TOPIC_KEYS:
        near = get_close_matches(given[:100], TOPIC_KEYS, 1)
        hint = f"; did you mean {near[0]}?" if near else "."
        raise RequestError(ErrorCode.INVALID_CONFIG, f"Unknown topic config {shown(given)}{hint}")
    return name


def _parse_all(overrides: Mapping[str, str]) -> dict[str, TopicValue]:
    values: dict[str, TopicValue] = {}
    for name, text in overrides.items():
        try:
            values[name] = TOPIC_KEYS[name].parse(text)
        except InvalidValue as problem:
            raise RequestError(
                ErrorCode.INVALID_CONFIG, f"Invalid value {shown(text)} for topic config {name}: {problem}."
            ) from None
    return values


_LAGS = ("min.compaction.lag.ms", "max.compaction.lag.ms")


def _check_lags(values: Mapping[str, TopicValue]) -> None:
    lag_ms, longest_lag_ms = (values[name] for name in _LAGS)
    assert isinstance(lag_ms, int) and isinstance(longest_lag_ms, int), "both lags are numbers"
    if lag_ms > longest_lag_ms:
        raise RequestError(
            ErrorCode.INVALID_CONFIG,
            f"Invalid value '{lag_ms}' for topic config min.compaction.lag.ms: "
            f"at most max.compaction.lag.ms, which is {longest_lag_ms}, is allowed.",
        )


def _from_values(values: Mapping[str, TopicValue]) -> TopicConfig:
    typed: dict[str, object] = {**values, DURABILITY: Durability(values[DURABILITY])}
    return TopicConfig(**{attribute: typed[name] for attribute, name in _ATTRIBUTES.items()})  # type: ignore[arg-type]


def _attribute(name: str) -> str:
    return name.removeprefix("headwater.").replace(".", "_")


_ATTRIBUTES = {_attribute(name): name for name in TOPIC_KEYS}
assert set(_ATTRIBUTES) == {f.name for f in fields(TopicConfig)}, (
    "every key has its attribute, and every attribute its key"
)
