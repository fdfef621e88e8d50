"""Every configuration key of a share group, in one table: Kafka's names (KIP-932, KIP-1191) and Headwater's."""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from headwater.queues.settings import IsolationLevel, OffsetReset, QueueSettings, ShareOrder

GroupValue: TypeAlias = bool | int | str | tuple[int, ...] | OffsetReset | IsolationLevel | ShareOrder | None


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


GROUP_KEYS: Final[Mapping[str, GroupKey]] = {}


def parse_group_config(values: Mapping[str, str], defaults: QueueSettings = QueueSettings()) -> QueueSettings:
    """The settings of a group. Keys that are not of share groups are refused; `defaults` stand where no key is given.
    Raises RequestError(INVALID_CONFIG) that names key, value and what is allowed."""
    raise NotImplementedError
