"""Every configuration key of a share group, in one table: Kafka's names (KIP-932, KIP-1191) and Headwater's.

Values travel as text. Where a group says nothing, the broker's defaults stand.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from headwater.model.config_key import ConfigKey, ConfigType, InvalidValue, flag, integer, parse_group_values, shown
from headwater.model.errors import ErrorCode, RequestError
from headwater.queues.settings import IsolationLevel, OffsetReset, QueueSettings, RedeliveryBackoff, ResetTo, ShareOrder
from headwater.records.filter import MAX_FILTER_CHARS, FilterError, compile_filter

MAX_BACKOFF_MS: Final = 7 * 24 * 3_600_000
MAX_BACKOFF_STEPS: Final = 100
MAX_TTL_MS: Final = 10 * 366 * 24 * 3_600_000
MAX_TOPIC_CHARS: Final = 249

_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
_DURATION = re.compile(r"P(?:(\d{1,5})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,8})M)?(?:(\d{1,10})(?:\.(\d{1,3})\d{0,6})?S)?)?")


def parse_queue_settings(
    values: Mapping[str, str], defaults: QueueSettings = QueueSettings(), *, is_stored: bool = False
) -> QueueSettings:
    """The settings of a group. Keys that are not of share groups are refused; `defaults` stand where no key is given.
    Values that are stored were accepted once: if the defaults beside them have changed since, they stand.
    Raises RequestError(INVALID_CONFIG) that names key, value and what is allowed."""
    fields: dict[str, Any] = {name: getattr(defaults, name) for name in QueueSettings.__dataclass_fields__}
    backoff: dict[str, Any] = {name: getattr(defaults.backoff, name) for name in RedeliveryBackoff.__dataclass_fields__}
    for name in values:
        if name not in QUEUE_KEYS:
            raise RequestError(ErrorCode.INVALID_CONFIG, f"{shown(name)} is no configuration of a share group")
    for name, value in parse_group_values(QUEUE_KEYS, values).items():
        field = _FIELDS[name]
        (backoff if field in backoff else fields)[field] = value
    if backoff["min_ms"] > backoff["max_ms"]:
        if "headwater.retry.backoff.max.ms" in values:
            raise RequestError(
                ErrorCode.INVALID_CONFIG,
                "headwater.retry.backoff.max.ms: no less than headwater.retry.backoff.ms is allowed",
            )
        backoff["max_ms"] = backoff["min_ms"]
    if is_stored:
        fields["heartbeat_interval_ms"] = min(fields["heartbeat_interval_ms"], fields["session_timeout_ms"] - 1)
    if fields["heartbeat_interval_ms"] >= fields["session_timeout_ms"]:
        raise RequestError(
            ErrorCode.INVALID_CONFIG, "share.heartbeat.interval.ms: less than share.session.timeout.ms is allowed"
        )
    fields["backoff"] = RedeliveryBackoff(**backoff)
    return QueueSettings(**fields)


def _isolation(text: str) -> IsolationLevel:
    try:
        return IsolationLevel(text)
    except ValueError:
        raise InvalidValue("read_uncommitted and read_committed are allowed") from None


def _order(text: str) -> ShareOrder:
    try:
        return ShareOrder(text)
    except ValueError:
        raise InvalidValue("none and key are allowed") from None


def _offset_reset(text: str) -> OffsetReset:
    match text.split(":", 1):
        case ["earliest"]:
            return OffsetReset(ResetTo.EARLIEST)
        case ["latest"]:
            return OffsetReset(ResetTo.LATEST)
        case ["by_duration", duration]:
            return OffsetReset(ResetTo.DURATION, _duration_ms(duration))
    raise InvalidValue("earliest, latest and by_duration:<ISO 8601 duration> are allowed")


def _duration_ms(text: str) -> int:
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()) or text.endswith("T"):
        raise InvalidValue("an ISO 8601 duration of days, hours, minutes and seconds is allowed, such as P1DT12H")
    days, hours, minutes, seconds, thousandths = (int(each or 0) for each in found.groups())
    if found.group(5) is not None:
        thousandths = int(found.group(5).ljust(3, "0"))
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000 + thousandths


def _steps(text: str) -> tuple[int, ...]:
    if not text:
        return ()
    words = text.split(",")
    if len(words) > MAX_BACKOFF_STEPS:
        raise InvalidValue(f"at most {MAX_BACKOFF_STEPS} steps are allowed")
    step = integer(0, MAX_BACKOFF_MS)
    return tuple(step(word.strip()) for word in words)


def _ttl(text: str) -> int | None:
    ttl_ms = integer(-1, MAX_TTL_MS)(text)
    if ttl_ms == 0:
        raise InvalidValue(f"whole numbers from 1 to {MAX_TTL_MS}, and -1, are allowed")
    return None if ttl_ms == -1 else ttl_ms


def _topic(text: str) -> str:
    is_name = _TOPIC.fullmatch(text) is not None and len(text) <= MAX_TOPIC_CHARS and text not in (".", "..")
    if text and not (is_name and not text.startswith("__")):
        raise InvalidValue("the name of a topic that is not internal, or nothing, is allowed")
    return text


def _filter(text: str) -> str:
    if text:
        try:
            compile_filter(text)
        except FilterError as error:
            raise InvalidValue(str(error)) from error
    return text


_BY_FIELD: Final[Mapping[str, ConfigKey[object]]] = {
    "offset_reset": ConfigKey(
        "share.auto.offset.reset",
        ConfigType.STRING,
        "latest",
        "Where the group begins on a partition it never read: earliest, latest, or by_duration: and an ISO 8601 "
        "duration, such as by_duration:PT1H.",
        _offset_reset,
    ),
    "record_lock_duration_ms": ConfigKey(
        "share.record.lock.duration.ms",
        ConfigType.INT,
        "30000",
        "How long a member may hold a record before it is given to another.",
        integer(1_000, 3_600_000),
    ),
    "delivery_count_limit": ConfigKey(
        "share.delivery.count.limit",
        ConfigType.INT,
        "5",
        "How often a record is delivered at most.",
        integer(1, 100),
    ),
    "max_record_locks": ConfigKey(
        "share.partition.max.record.locks",
        ConfigType.INT,
        "2000",
        "How many records of one partition may be held by members at a time.",
        integer(100, 10_000),
    ),
    "isolation": ConfigKey(
        "share.isolation.level",
        ConfigType.STRING,
        "read_uncommitted",
        "Whether records of transactions are delivered before they are committed.",
        _isolation,
    ),
    "heartbeat_interval_ms": ConfigKey(
        "share.heartbeat.interval.ms",
        ConfigType.INT,
        "5000",
        "How often members send a heartbeat.",
        integer(100, 60_000),
    ),
    "session_timeout_ms": ConfigKey(
        "share.session.timeout.ms",
        ConfigType.INT,
        "45000",
        "How long a member may be silent before it is taken for gone.",
        integer(200, 3_600_000),
    ),
    "dead_letter_topic": ConfigKey(
        "errors.deadletterqueue.topic.name",
        ConfigType.STRING,
        "",
        "The topic for records that are rejected, delivered too often, or expired. Nothing: they are dropped.",
        _topic,
    ),
    "copies_dead_letters": ConfigKey(
        "errors.deadletterqueue.copy.record.enable",
        ConfigType.BOOLEAN,
        "true",
        "Whether a dead letter has key, value and headers of the record, or says only where it was.",
        flag,
    ),
    "order": ConfigKey(
        "headwater.share.order",
        ConfigType.STRING,
        "none",
        "key: records of one key go to one member at a time, and come again in their order.",
        _order,
    ),
    "is_fair": ConfigKey(
        "headwater.share.fair",
        ConfigType.BOOLEAN,
        "true",
        "true: while other members of the group want records, each is lent its part of what is ready, and no more than "
        "it asked for. false: whole batches, to the member that asks first.",
        flag,
    ),
    "min_ms": ConfigKey(
        "headwater.retry.backoff.ms",
        ConfigType.LONG,
        "0",
        "How long a released record rests after its first failure; twice that after the second, and so on.",
        integer(0, MAX_BACKOFF_MS),
    ),
    "max_ms": ConfigKey(
        "headwater.retry.backoff.max.ms",
        ConfigType.LONG,
        "0",
        "How long a released record rests at most. Without it, every rest is headwater.retry.backoff.ms.",
        integer(0, MAX_BACKOFF_MS),
    ),
    "steps_ms": ConfigKey(
        "headwater.retry.backoff.list",
        ConfigType.LIST,
        "",
        "The rests after the first, second, third failure in ms, instead of the two keys above; the last one repeats.",
        _steps,
    ),
    "filter": ConfigKey(
        "headwater.filter",
        ConfigType.STRING,
        "",
        f"An expression on key and headers, at most {MAX_FILTER_CHARS} characters; other records are passed over.",
        _filter,
    ),
    "record_ttl_ms": ConfigKey(
        "headwater.record.ttl.ms",
        ConfigType.LONG,
        "-1",
        "How old a record may become before it is not delivered any more, unless its header headwater.ttl says "
        "otherwise. -1: any age.",
        _ttl,
    ),
}
"""By the field of QueueSettings, or of its RedeliveryBackoff, that a key sets."""

QUEUE_KEYS: Final = {key.name: key for key in _BY_FIELD.values()}
_FIELDS: Final = {key.name: field for field, key in _BY_FIELD.items()}
