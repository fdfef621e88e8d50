"""Every configuration key of a share group, in one table: Kafka's names (KIP-932, KIP-1191) and Headwater's.

Values travel as text. Where a group says nothing, the broker's defaults stand.
"""

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from headwater.model.errors import ErrorCode, RequestError
from headwater.queues.settings import Backoff, IsolationLevel, OffsetReset, QueueSettings, ResetTo, ShareOrder
from headwater.records.filter import MAX_FILTER_CHARS, FilterError, compile_filter

GroupValue: TypeAlias = bool | int | str | tuple[int, ...] | OffsetReset | IsolationLevel | ShareOrder | None

MAX_REST_MS: Final = 7 * 24 * 3_600_000
MAX_BACKOFF_STEPS: Final = 100
MAX_TTL_MS: Final = 10 * 366 * 24 * 3_600_000
MAX_TOPIC_CHARS: Final = 249
_MAX_VALUE_CHARS: Final = 4_096
_MAX_SHOWN_CHARS: Final = 80

_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
_DURATION = re.compile(r"P(?:(\d{1,5})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,8})M)?(?:(\d{1,10})(?:\.(\d{1,3})\d{0,6})?S)?)?")


class ValueType(enum.IntEnum):
    """The numbers of the protocol (DescribeConfigs)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    LIST = 7


class InvalidGroupValue(Exception):
    """The text is no value of the key. The message says what is allowed."""


@dataclass(frozen=True, slots=True)
class GroupKey:
    name: str
    type: ValueType
    default: str
    doc: str
    read: Callable[[str], GroupValue]
    """Raises InvalidGroupValue."""
    field: str
    """Of QueueSettings, or of its Backoff."""

    def parse(self, text: str | None) -> GroupValue:
        if text is None:
            raise InvalidGroupValue("a value is needed")
        if len(text) > _MAX_VALUE_CHARS:
            raise InvalidGroupValue(f"at most {_MAX_VALUE_CHARS} characters are allowed")
        return self.read(text.strip())


def parse_group_config(
    values: Mapping[str, str], defaults: QueueSettings = QueueSettings(), *, is_stored: bool = False
) -> QueueSettings:
    """The settings of a group. Keys that are not of share groups are refused; `defaults` stand where no key is given.
    Values that are stored were accepted once: if the defaults beside them have changed since, they stand.
    Raises RequestError(INVALID_CONFIG) that names key, value and what is allowed."""
    fields: dict[str, Any] = {name: getattr(defaults, name) for name in QueueSettings.__dataclass_fields__}
    rests: dict[str, Any] = {name: getattr(defaults.backoff, name) for name in Backoff.__dataclass_fields__}
    for name, text in values.items():
        key = GROUP_KEYS.get(name)
        if key is None:
            raise RequestError(ErrorCode.INVALID_CONFIG, f"{_shown(name)} is no configuration of a share group")
        try:
            value = key.parse(text)
        except InvalidGroupValue as error:
            raise RequestError(ErrorCode.INVALID_CONFIG, f"{name}={_shown(text)}: {error}") from error
        (rests if key.field in rests else fields)[key.field] = value
    if rests["min_ms"] > rests["max_ms"]:
        if "headwater.retry.backoff.max.ms" in values:
            raise RequestError(
                ErrorCode.INVALID_CONFIG,
                "headwater.retry.backoff.max.ms: no less than headwater.retry.backoff.ms is allowed",
            )
        rests["max_ms"] = rests["min_ms"]
    if is_stored:
        fields["heartbeat_interval_ms"] = min(fields["heartbeat_interval_ms"], fields["session_timeout_ms"] - 1)
    if fields["heartbeat_interval_ms"] >= fields["session_timeout_ms"]:
        raise RequestError(
            ErrorCode.INVALID_CONFIG, "share.heartbeat.interval.ms: less than share.session.timeout.ms is allowed"
        )
    fields["backoff"] = Backoff(**rests)
    return QueueSettings(**fields)


def _integer(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        digits = text.removeprefix("-")
        # int() alone would also take "1_000" and the digits of other scripts.
        if digits.isascii() and digits.isdigit() and len(text) <= 20 and least <= int(text) <= most:
            return int(text)
        raise InvalidGroupValue(f"whole numbers from {least} to {most} are allowed")

    return read


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidGroupValue("true or false is allowed")
    return text.lower() == "true"


def _isolation(text: str) -> IsolationLevel:
    try:
        return IsolationLevel(text)
    except ValueError:
        raise InvalidGroupValue("read_uncommitted and read_committed are allowed") from None


def _order(text: str) -> ShareOrder:
    try:
        return ShareOrder(text)
    except ValueError:
        raise InvalidGroupValue("none and key are allowed") from None


def _offset_reset(text: str) -> OffsetReset:
    match text.split(":", 1):
        case ["earliest"]:
            return OffsetReset(ResetTo.EARLIEST)
        case ["latest"]:
            return OffsetReset(ResetTo.LATEST)
        case ["by_duration", duration]:
            return OffsetReset(ResetTo.DURATION, _duration_ms(duration))
    raise InvalidGroupValue("earliest, latest and by_duration:<ISO 8601 duration> are allowed")


def _duration_ms(text: str) -> int:
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()) or text.endswith("T"):
        raise InvalidGroupValue("an ISO 8601 duration of days, hours, minutes and seconds is allowed, such as P1DT12H")
    days, hours, minutes, seconds, thousandths = (int(each or 0) for each in found.groups())
    if found.group(5) is not None:
        thousandths = int(found.group(5).ljust(3, "0"))
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000 + thousandths


def _steps(text: str) -> tuple[int, ...]:
    if not text:
        return ()
    words = text.split(",")
    if len(words) > MAX_BACKOFF_STEPS:
        raise InvalidGroupValue(f"at most {MAX_BACKOFF_STEPS} steps are allowed")
    step = _integer(0, MAX_REST_MS)
    return tuple(step(word.strip()) for word in words)


def _ttl(text: str) -> int | None:
    ttl_ms = _integer(-1, MAX_TTL_MS)(text)
    if ttl_ms == 0:
        raise InvalidGroupValue(f"whole numbers from 1 to {MAX_TTL_MS}, and -1, are allowed")
    return None if ttl_ms == -1 else ttl_ms


def _topic(text: str) -> str:
    is_name = _TOPIC.fullmatch(text) is not None and len(text) <= MAX_TOPIC_CHARS and text not in (".", "..")
    if text and not (is_name and not text.startswith("__")):
        raise InvalidGroupValue("the name of a topic that is not internal, or nothing, is allowed")
    return text


def _filter(text: str) -> str:
    if text:
        try:
            compile_filter(text)
        except FilterError as error:
            raise InvalidGroupValue(str(error)) from error
    return text


def _shown(value: str | None) -> str:
    if value is None:
        return "null"
    return repr(value if len(value) <= _MAX_SHOWN_CHARS else value[:_MAX_SHOWN_CHARS] + "…")


_KEYS: Final = (
    GroupKey(
        "share.auto.offset.reset",
        ValueType.STRING,
        "latest",
        "Where the group begins on a partition it never read: earliest, latest, or by_duration: and an ISO 8601 "
        "duration, such as by_duration:PT1H.",
        _offset_reset,
        "offset_reset",
    ),
    GroupKey(
        "share.record.lock.duration.ms",
        ValueType.INT,
        "30000",
        "How long a member may hold a record before it is given to another.",
        _integer(1_000, 3_600_000),
        "record_lock_duration_ms",
    ),
    GroupKey(
        "share.delivery.count.limit",
        ValueType.INT,
        "5",
        "How often a record is delivered at most.",
        _integer(1, 100),
        "delivery_count_limit",
    ),
    GroupKey(
        "share.partition.max.record.locks",
        ValueType.INT,
        "2000",
        "How many records of one partition may be held by members at a time.",
        _integer(100, 10_000),
        "max_record_locks",
    ),
    GroupKey(
        "share.isolation.level",
        ValueType.STRING,
        "read_uncommitted",
        "Whether records of transactions are delivered before they are committed.",
        _isolation,
        "isolation",
    ),
    GroupKey(
        "share.heartbeat.interval.ms",
        ValueType.INT,
        "5000",
        "How often members send a heartbeat.",
        _integer(100, 60_000),
        "heartbeat_interval_ms",
    ),
    GroupKey(
        "share.session.timeout.ms",
        ValueType.INT,
        "45000",
        "How long a member may be silent before it is taken for gone.",
        _integer(200, 3_600_000),
        "session_timeout_ms",
    ),
    GroupKey(
        "errors.deadletterqueue.topic.name",
        ValueType.STRING,
        "",
        "The topic for records that are rejected, delivered too often, or expired. Nothing: they are dropped.",
        _topic,
        "dead_letter_topic",
    ),
    GroupKey(
        "errors.deadletterqueue.copy.record.enable",
        ValueType.BOOLEAN,
        "true",
        "Whether a dead letter has key, value and headers of the record, or says only where it was.",
        _flag,
        "copies_dead_letters",
    ),
    GroupKey(
        "headwater.share.order",
        ValueType.STRING,
        "none",
        "key: records of one key go to one member at a time, and come again in their order.",
        _order,
        "order",
    ),
    GroupKey(
        "headwater.share.fair",
        ValueType.BOOLEAN,
        "true",
        "true: while other members of the group want records, each is lent its part of what is ready, and no more than "
        "it asked for. false: whole batches, to whoever comes first.",
        _flag,
        "is_fair",
    ),
    GroupKey(
        "headwater.retry.backoff.ms",
        ValueType.LONG,
        "0",
        "How long a released record rests after its first failure; twice that after the second, and so on.",
        _integer(0, MAX_REST_MS),
        "min_ms",
    ),
    GroupKey(
        "headwater.retry.backoff.max.ms",
        ValueType.LONG,
        "0",
        "How long a released record rests at most. Without it, every rest is headwater.retry.backoff.ms.",
        _integer(0, MAX_REST_MS),
        "max_ms",
    ),
    GroupKey(
        "headwater.retry.backoff.list",
        ValueType.LIST,
        "",
        "The rests after the first, second, third failure in ms, instead of the two keys above; the last one repeats.",
        _steps,
        "steps_ms",
    ),
    GroupKey(
        "headwater.filter",
        ValueType.STRING,
        "",
        f"An expression on key and headers, at most {MAX_FILTER_CHARS} characters; other records are passed over.",
        _filter,
        "filter",
    ),
    GroupKey(
        "headwater.record.ttl.ms",
        ValueType.LONG,
        "-1",
        "How old a record may become before it is not delivered any more, unless its header headwater.ttl says "
        "otherwise. -1: any age.",
        _ttl,
        "record_ttl_ms",
    ),
)

GROUP_KEYS: Final[Mapping[str, GroupKey]] = {key.name: key for key in _KEYS}
