"""The subscriptions that there are: groups of every kind with their settings, positions and lag."""

from dataclasses import dataclass, field

from headwater.client.admin.configs import GroupConfig
from headwater.client.admin.groups import GroupListing
from headwater.client.asyncio_cluster import AsyncioCluster
from headwater.gateway.groups.group_readers import GroupReader, group_readers
from headwater.gateway.groups.setting_keys import DEAD_LETTER_TOPIC, KIND, PAUSED, QUEUE, STREAM, TOPIC
from headwater.gateway.http.problems import Problem
from headwater.gateway.kafka.admin import Admin
from headwater.gateway.kafka.group_configs import configured_groups, group_configs
from headwater.gateway.kafka.groups import list_groups
from headwater.gateway.kafka.until_ready import retry_until_ready
from headwater.model.group_lag import PartitionLag, TotalLag, total

UNUSED = "unused"
MAX_LISTED = 1_000


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    name: str
    kind: str
    state: str
    """Of its group; `unused` if the group does not exist yet."""
    config: GroupConfig
    standings: list[PartitionLag] = field(default_factory=list)
    """How far it is in each partition that it reads."""
    members: int = 0

    @property
    def topic(self) -> str:
        """Empty if it reads no topic, or several."""
        topics = {each.topic for each in self.standings}
        return self.config.values.get(TOPIC, "") or (topics.pop() if len(topics) == 1 else "")

    @property
    def is_explicit(self) -> bool:
        """It was created with a topic, and is not merely a group that consumers made."""
        return bool(self.config.values.get(TOPIC, ""))

    @property
    def is_known(self) -> bool:
        """Settings alone, such as settings that outlive a group, are not a subscription."""
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


class SubscriptionCatalog:
    """Every request asks the cluster anew. Everything raises KafkaFailure, ClientError."""

    def __init__(self, admin: Admin, cluster: AsyncioCluster) -> None:
        self._admin = admin
        self._cluster = cluster

    async def all(self) -> list[SubscriptionInfo]:
        """Groups that exist, and subscriptions that were created, by name; no more than MAX_LISTED."""
        listed = {group.name: group for group in await self._list_groups()}
        names = sorted(listed.keys() | set(await configured_groups(self._cluster)))[:MAX_LISTED]
        return [info for info in await self._describe(names, listed) if info.is_known]

    async def find(self, name: str) -> SubscriptionInfo | None:
        listed = {group.name: group for group in await self._list_groups() if group.name == name}
        (info,) = await self._describe([name], listed)
        return info if info.is_known else None

    async def get(self, name: str) -> SubscriptionInfo:
        """Raises Problem if there is no such subscription."""
        info = await self.find(name)
        if info is None:
            raise Problem(
                404, "Unknown subscription", f"There is no subscription {name}. POST /v1/subscriptions makes one."
            )
        return info

    async def _list_groups(self) -> list[GroupListing]:
        return await retry_until_ready(lambda: list_groups(self._admin))

    async def _describe(self, names: list[str], listed: dict[str, GroupListing]) -> list[SubscriptionInfo]:
        configs = await group_configs(self._cluster, names)
        settings = {name: config.values for name, config in configs.items()}
        groups = [listed[name] for name in names if name in listed]
        readers = await retry_until_ready(lambda: group_readers(self._admin, groups, settings))
        return [_info(name, listed.get(name), configs[name], readers.get(name)) for name in names]


def _info(name: str, group: GroupListing | None, config: GroupConfig, reader: GroupReader | None) -> SubscriptionInfo:
    is_queue = group.is_share if group is not None else config.values.get(KIND) == QUEUE
    return SubscriptionInfo(
        name=name,
        kind=QUEUE if is_queue else STREAM,
        state=group.state if group is not None and reader is not None else UNUSED,
        config=config,
        standings=reader.standings if reader is not None else [],
        members=len(reader.members) if reader is not None else 0,
    )
