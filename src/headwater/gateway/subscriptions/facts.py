"""What is known of subscriptions: groups of every kind with their settings, where they are, and what they lack."""

from dataclasses import dataclass, field

from headwater.gateway.context import Context
from headwater.gateway.groups.group_readers import group_readers
from headwater.gateway.http.problems import Problem
from headwater.gateway.kafka.brokers import Brokers
from headwater.gateway.kafka.group_configs import (
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
from headwater.gateway.kafka.groups import SHARE, ListedGroup, list_groups
from headwater.gateway.kafka.retry import patiently
from headwater.model.group_lag import Standing, TotalLag, total

UNUSED = "unused"
MAX_LISTED = 1_000


@dataclass(slots=True)
class Facts:
    name: str
    kind: str
    state: str
    """Of its group; `unused` if there is none yet."""
    config: GroupConfig
    standings: list[Standing] = field(default_factory=list)
    """In what it reads."""
    members: int = 0

    @property
    def topic(self) -> str:
        """Empty if it reads none, or several."""
        topics = {each.topic for each in self.standings}
        return self.config.values.get(TOPIC, "") or (topics.pop() if len(topics) == 1 else "")

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
    def lag(self) -> TotalLag:
        return total(self.standings)

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
    settings = {name: config.values for name, config in configs.items()}
    groups = [listed[name] for name in names if name in listed]
    readers = await patiently(lambda: group_readers(context, groups, settings))
    found = []
    for name in names:
        group, config, reader = listed.get(name), configs[name], readers.get(name)
        is_queue = group.kind == SHARE if group is not None else config.values.get(KIND) == QUEUE
        state = group.state if group is not None and reader is not None else UNUSED
        found.append(Facts(name, QUEUE if is_queue else STREAM, state, config))
        if reader is not None:
            found[-1].standings, found[-1].members = reader.standings, len(reader.members)
    return found
