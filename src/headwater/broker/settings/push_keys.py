"""The configuration keys that have a subscription pushed to a webhook. The broker keeps and checks them one by one;
gateways read them and do the work.

They are settings of the group, so that any gateway of the cluster can serve it. The secret is shown to gateways alone.
"""

from collections.abc import Callable, Mapping
from typing import Final

from headwater.model.config_key import ConfigKey, ConfigType, InvalidValue, integer, one_of, parse_group_values

MAX_URL_CHARS: Final = 2_048
MAX_SECRET_CHARS: Final = 256
MAX_REASON_CHARS: Final = 500
_DAY_MS = 86_400_000


def check_push(values: Mapping[str, str]) -> None:
    """Of a group's overrides, of which other keys are left alone. Raises RequestError(INVALID_CONFIG)."""
    parse_group_values(PUSH_KEYS, values)


def _url(text: str) -> str:
    is_url = text.startswith(("http://", "https://")) and text.isascii() and text.isprintable() and " " not in text
    if text and not (is_url and len(text) <= MAX_URL_CHARS):
        raise InvalidValue(f"an http or https URL of at most {MAX_URL_CHARS} characters, or nothing, is allowed")
    return text


def _text(most_chars: int) -> Callable[[str], str]:
    def read(text: str) -> str:
        if len(text) > most_chars:
            raise InvalidValue(f"at most {most_chars} characters are allowed")
        return text

    return read


_KEYS: Final[tuple[ConfigKey[object], ...]] = (
    ConfigKey("headwater.push.url", ConfigType.STRING, "", "Where records are sent by POST; nothing: nowhere.", _url),
    ConfigKey(
        "headwater.push.secret",
        ConfigType.PASSWORD,
        "",
        "What requests are signed with (HMAC-SHA256); nothing: they are not signed.",
        _text(MAX_SECRET_CHARS),
    ),
    ConfigKey(
        "headwater.push.format",
        ConfigType.STRING,
        "plain",
        "The shape of a request: plain, or CloudEvents 1.0 (binary or structured).",
        one_of("plain", "cloudevents-binary", "cloudevents-structured"),
    ),
    ConfigKey(
        "headwater.push.order",
        ConfigType.STRING,
        "none",
        "key, partition: a record is sent when the one before it of its key or partition has been taken. A queue is "
        "ordered by key if headwater.share.order is; by partition only streams are.",
        one_of("none", "key", "partition"),
    ),
    ConfigKey(
        "headwater.push.batch.records",
        ConfigType.INT,
        "1",
        "How many records a request has at most; with more than one it is a JSON array.",
        integer(1, 1_000),
    ),
    ConfigKey(
        "headwater.push.concurrency",
        ConfigType.INT,
        "32",
        "How many requests are under way at most. It begins with less, grows while they succeed and shrinks when they "
        "fail.",
        integer(1, 256),
    ),
    ConfigKey(
        "headwater.push.timeout.ms",
        ConfigType.INT,
        "10000",
        "How long a receiver has to answer.",
        integer(100, 300_000),
    ),
    ConfigKey(
        "headwater.push.attempts",
        ConfigType.INT,
        "10",
        "How often a record of a queue is sent before it is a dead letter. Those of a stream are sent until they are "
        "taken.",
        integer(1, 1_000),
    ),
    ConfigKey(
        "headwater.push.backoff.ms",
        ConfigType.INT,
        "500",
        "How long a record rests after its first failure; twice that after the second, and so on.",
        integer(1, _DAY_MS),
    ),
    ConfigKey(
        "headwater.push.backoff.max.ms",
        ConfigType.INT,
        "60000",
        "How long a record rests at most between two attempts.",
        integer(1, _DAY_MS),
    ),
    ConfigKey(
        "headwater.push.stopped",
        ConfigType.STRING,
        "",
        "Why nothing is sent any more, such as that the receiver answered 410. Nothing: it is.",
        _text(MAX_REASON_CHARS),
    ),
)
PUSH_KEYS: Final = {key.name: key for key in _KEYS}
