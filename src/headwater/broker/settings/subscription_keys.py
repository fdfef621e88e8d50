"""The configuration keys that make a group an explicit subscription, in one table, and what they say together.

A group without configuration is a subscription too, by having committed: it gets what it has not read yet for as long
as the topic keeps it, and nothing beyond that.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headwater.broker.settings.topic_name import check_topic_name
from headwater.model.config_key import (
    MAX_LONG,
    ConfigKey,
    ConfigType,
    InvalidValue,
    flag,
    integer,
    one_of,
    parse_group_values,
)
from headwater.model.errors import ErrorCode, RequestError

TOPIC: Final = "headwater.subscription.topic"
KIND: Final = "headwater.subscription.kind"
RETENTION: Final = "headwater.subscription.retention.ms"
PAUSED: Final = "headwater.subscription.paused"


class SubscriptionKind(enum.Enum):
    STREAM = "stream"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True)
class SubscriptionSettings:
    topic: str = ""
    """Empty: what the group reads is known by what it has read."""
    kind: SubscriptionKind = SubscriptionKind.STREAM
    retention_ms: int = 0
    """How long what it has not consumed is to be kept; -1: as long as the topic's limit allows."""
    is_paused: bool = False

    @property
    def is_explicit(self) -> bool:
        return self.topic != ""

    @property
    def is_queue(self) -> bool:
        return self.is_explicit and self.kind is SubscriptionKind.QUEUE


def parse_subscription(values: Mapping[str, str]) -> SubscriptionSettings:
    """From a group's overrides, of which other keys are left alone. Raises RequestError(INVALID_CONFIG)."""
    read = parse_group_values(SUBSCRIPTION_KEYS, values, with_defaults=True)
    kind = SubscriptionKind(read[KIND])
    if read[PAUSED] and kind is not SubscriptionKind.QUEUE:
        raise RequestError(
            ErrorCode.INVALID_CONFIG,
            f"Only queues can be paused ({KIND}=queue): who reads a stream does not say for which group.",
        )
    return SubscriptionSettings(str(read[TOPIC]), kind, int(str(read[RETENTION])), bool(read[PAUSED]))


def _topic_or_none(text: str) -> str:
    if text:
        try:
            check_topic_name(text)
        except RequestError:
            raise InvalidValue("the name of a topic is allowed") from None
    return text


_KEYS: Final[tuple[ConfigKey[object], ...]] = (
    ConfigKey(
        TOPIC,
        ConfigType.STRING,
        "",
        "The topic that the group subscribes to. Its position there does not expire, and where it has none yet it "
        "counts as having read nothing.",
        _topic_or_none,
    ),
    ConfigKey(
        KIND,
        ConfigType.STRING,
        SubscriptionKind.STREAM.value,
        "How the subscription is delivered: stream, to a consumer group; queue, to a share group.",
        one_of(*(kind.value for kind in SubscriptionKind)),
    ),
    ConfigKey(
        RETENTION,
        ConfigType.LONG,
        "0",
        "How long records that the group has not consumed are kept, where the topic alone would keep them for less; "
        "-1: as long as the topic's headwater.subscription.retention.limit.ms allows.",
        integer(-1, MAX_LONG),
    ),
    ConfigKey(PAUSED, ConfigType.BOOLEAN, "false", "Whether a queue holds back its records for now.", flag),
)
SUBSCRIPTION_KEYS: Final = {key.name: key for key in _KEYS}
