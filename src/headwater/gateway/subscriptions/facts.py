"""What is known of subscriptions: groups of every kind with their settings, where they are, and what they lack."""

from dataclasses import dataclass, field

from headwater.gateway.context import Context
from headwater.gateway.kafka.brokers import Brokers, Patience, Refused, check
from headwater.gateway.kafka.connection import BrokerGone
from headwater.gateway.kafka.groups import SHARE, ListedGroup, committed, end_offsets, list_groups
from headwater.gateway.kafka.patience import patiently
from headwater.gateway.problems import Problem
from headwater.gateway.subscriptions.group_settings import (
    DEAD_LETTER_TOPIC,
    KIND,
    PAUSED,
    QUEUE,
    STREAM,
    TOPIC,
    GroupConfig,
    configured_groups,
    group_configs,
)
from headwater.wire.codec import Message

DESCRIBE_SHARE_GROUP_OFFSETS = 90
UNUSED = "unused"
MAX_LISTED = 1_000


@dataclass(slots=True)
class Facts:
    name: str
    kind: str
    state: str
    """Of its group; `unused` if there is none yet."""
    config: GroupConfig
    lags: dict[str, int] = field(default_factory=dict)
    """By topic, of what it has a position in."""

    @property
    def topic(self) -> str:
        """Empty if it reads none, or several."""
        named = self.config.values.get(TOPIC, "")
        return named or (next(iter(self.lags)) if len(self.lags) == 1 else "")

    @property
    def is_explicit(self) -> bool:
        return bool(self.config.values.get(TOPIC, ""))

    @property
    def is_known(self) -> bool:
        """Settings alone, such as those that outlive a group, make none."""
        return self.state != UNUSED or self.is_explicit

    @property
    def is_queue(self) -> bool:
        return self.kind == QUEUE

    @property
    def lag(self) -> int:
        return sum(self.lags.values())

    @property
    def shown_state(self) -> str:
        return "paused" if self.config.values.get(PAUSED) == "true" else self.state

    @property
    def dead_letter_topic(self) -> str:
        return self.config.values.get(DEAD_LETTER_TOPIC, "") if self.is_queue else ""


async def all_facts(context: Context, brokers: Brokers) -> list[Facts]:
    """Groups that there are, and explicit subscriptions, by name; no more than MAX_LISTED."""
    listed = {group.name: group for group in await patiently(lambda: list_groups(context))}
    names = sorted(listed.keys() | set(await configured_groups(brokers)))[:MAX_LISTED]
    found = await _facts(context, brokers, names, listed)
    return [facts for facts in found if facts.is_known]


async def find(context: Context, brokers: Brokers, name: str) -> Facts | None:
    groups = await patiently(lambda: list_groups(context))
    listed = {group.name: group for group in groups if group.name == name}
    (facts,) = await _facts(context, brokers, [name], listed)
    return facts if facts.is_known else None


async def known(context: Context, brokers: Brokers, name: str) -> Facts:
    facts = await find(context, brokers, name)
    if facts is None:
        raise Problem(
            404, "Unknown subscription", f"There is no subscription {name}. POST /v1/subscriptions makes one."
        )
    return facts


async def _facts(context: Context, brokers: Brokers, names: list[str], listed: dict[str, ListedGroup]) -> list[Facts]:
    configs = await group_configs(brokers, names)
    found = []
    for name in names:
        group, config = listed.get(name), configs[name]
        is_queue = group.kind == SHARE if group is not None else config.values.get(KIND) == QUEUE
        found.append(Facts(name, QUEUE if is_queue else STREAM, group.state if group else UNUSED, config))
    streams = [facts.name for facts in found if not facts.is_queue and facts.state != UNUSED]
    positions = await patiently(lambda: committed(context, streams)) if streams else {}
    ends = await end_offsets(context, {place for places in positions.values() for place in places})
    patience = Patience()
    for facts in found:
        if facts.is_queue and facts.state != UNUSED:
            facts.lags = await _queue_lags(brokers, facts.name, patience)
        for place, offset in positions.get(facts.name, {}).items():
            if place in ends:
                facts.lags[place[0]] = facts.lags.get(place[0], 0) + max(ends[place] - offset, 0)
    return found


async def _queue_lags(brokers: Brokers, name: str, patience: Patience) -> dict[str, int]:
    asked = [Message(group_id=name, topics=None)]
    while True:
        try:
            (described,) = (await brokers.ask_coordinator(name, DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=asked)).groups
            check(described.error_code, described.error_message, f"Group {name}")
            break
        except (Refused, BrokerGone) as error:
            await patience.pause(error)
    return {
        topic.topic_name: sum(max(each.lag, 0) for each in topic.partitions if each.error_code == 0)
        for topic in described.topics
    }
