"""The settings of a group that say what it subscribes to and how, by the names that the cluster keeps them under."""

from typing import Final

TOPIC: Final = "headwater.subscription.topic"
KIND: Final = "headwater.subscription.kind"
RETENTION: Final = "headwater.subscription.retention.ms"
PAUSED: Final = "headwater.subscription.paused"
FILTER: Final = "headwater.filter"
SHARE_ORDER: Final = "headwater.share.order"
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
OFFSET_RESET: Final = "share.auto.offset.reset"
STREAM, QUEUE = "stream", "queue"
"""The kinds of a subscription."""
