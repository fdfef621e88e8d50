"""What requests name: topics with records, groups with members and offsets, an open transaction. A part is made when a
request first wants it, by the administrator, and has names that no other scene has.

A request may name two resources of one type, of which the first is allowed and the other is not, in either order.
"""

import base64
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from headwater.model.errors import ErrorCode
from headwater.security.access_codes import ResourceType
from headwater.security.principal import CLUSTER_NAME
from headwater.wire.schema import NULL_UUID
from tests.broker.access.matrix.places import error_codes
from tests.broker.access.matrix.world import VALUE, World
from tests.support.eventually import until
from tests.support.local_broker import batch_of
from tests.support.messages import nested

PRODUCE, OFFSET_COMMIT, JOIN, SYNC, CREATE_TOPICS = 0, 8, 11, 14, 19
INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, CONSUMER_HEARTBEAT, SHARE_HEARTBEAT = 22, 24, 25, 68, 76
DESCRIBE_CONFIGS, ALTER_CONFIGS, SHARE_FETCH, ALTER_SHARE_OFFSETS = 32, 44, 78, 91
GROUP_CONFIG = 32
LONG_MS = 900_000
SESSION_MS = 300_000
COMMITTED_OFFSET = 1
TRANSACTIONAL = 1 << 4
"""The bit of a batch's attributes."""
PASSING = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    )
)
"""What an administrator may be told while a server makes what it needs at first use."""


@dataclass(frozen=True, slots=True)
class Named:
    name: str
    id: uuid.UUID = NULL_UUID


@dataclass(frozen=True, slots=True)
class Member:
    group: str
    member_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Transaction:
    transactional_id: str
    producer_id: int
    producer_epoch: int


class Scene:
    def __init__(self, world: World, doubled: ResourceType | None = None, *, is_reversed: bool = False) -> None:
        """There are two resources of the type `doubled`, and of each other one."""
        self.world = world
        self.prefix = world.next_name()
        self._doubled = doubled
        self._is_reversed = is_reversed
        self._topics: list[Named] = []
        self._members: list[Member] = []
        self._transactions: list[Transaction] = []
        self._names: dict[ResourceType, list[Named]] = {ResourceType.CLUSTER: [Named(CLUSTER_NAME)]}

    def names(self, resource_type: ResourceType) -> list[Named]:
        """Those that the request has, the allowed one first."""
        return self._names.get(resource_type, [])

    async def topics(self) -> list[Named]:
        """With two records each, of one partition."""
        if not self._topics:
            self._topics = [await self._topic(name) for name in self._new_names(ResourceType.TOPIC, "topic")]
            self._names[ResourceType.TOPIC] = self._topics
        return self._in_order(self._topics)

    def new_topics(self) -> list[str]:
        """Names of topics that are not there."""
        return self._named(ResourceType.TOPIC, "new")

    def groups(self, kind: str = "group") -> list[str]:
        """Names of groups that need not be there."""
        return self._named(ResourceType.GROUP, kind)

    def transactional_ids(self) -> list[str]:
        return self._named(ResourceType.TRANSACTIONAL_ID, "id")

    async def committed(self) -> list[str]:
        """Groups without members, that have committed an offset of every topic."""
        topics = await self.topics()
        partition = nested(
            partition_index=0, committed_offset=COMMITTED_OFFSET, committed_metadata="", committed_leader_epoch=-1
        )
        for group in self.groups():
            await self._admin(
                OFFSET_COMMIT, 8, group_id=group, generation_id_or_member_epoch=-1, member_id="",
                group_instance_id=None,
                topics=[nested(name=topic.name, partitions=[partition]) for topic in topics],
            )  # fmt: skip
        return self.groups()

    async def classic_members(self) -> list[Member]:
        topics = await self.topics()
        if not self._members:
            self._members = [await self._classic_member(group, topics) for group in self.groups()]
        return self._members

    async def consumers(self) -> list[Member]:
        """Members of the newer protocol, to whom partitions are assigned."""
        if not self._members:
            topics = await self.topics()
            self._members = [await self._consumer(group, topics) for group in self.groups()]
        return self._members

    async def share_members(self) -> list[Member]:
        """Of groups that begin with the first record."""
        if not self._members:
            topics = await self.topics()
            for group in self.groups("share"):
                await self._from_the_first_record(group)
            self._members = [await self._heartbeats(SHARE_HEARTBEAT, each, topics) for each in self.groups("share")]
        return self._members

    async def acquired(self) -> tuple[Member, int]:
        """A member who has acquired the records, and the next epoch of the session of that."""
        (member,), topics = await self.share_members(), await self.topics()
        partition = nested(partition_index=0, acknowledgement_batches=[])
        wanted = [nested(topic_id=each.id, partitions=[partition]) for each in topics]
        waiting, epoch = {each.id for each in topics}, 0

        async def has_all() -> bool:
            nonlocal epoch
            answer = await self._admin(
                SHARE_FETCH, 1, group_id=member.group, member_id=member.member_id, share_session_epoch=epoch,
                max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, max_records=10, batch_size=10,
                topics=[] if epoch else wanted, forgotten_topics_data=[],
            )  # fmt: skip
            epoch += 1
            for topic in answer.responses:
                if any(each.acquired_records for each in topic.partitions):
                    waiting.discard(topic.topic_id)
            return not waiting

        await until(has_all, f"{member.group} has the records")
        return member, epoch

    async def share_groups(self) -> list[str]:
        """Without members, which were there, and with an offset of every topic."""
        for member in await self.share_members():
            await self._admin(
                SHARE_HEARTBEAT, 1, group_id=member.group, member_id=member.member_id, member_epoch=-1, rack_id=None,
                subscribed_topic_names=None,
            )  # fmt: skip
            partition = nested(partition_index=0, start_offset=COMMITTED_OFFSET)
            topics = [nested(topic_name=each.name, partitions=[partition]) for each in await self.topics()]
            await self._admin(ALTER_SHARE_OFFSETS, 0, group_id=member.group, topics=topics)
        return self.groups()

    async def producers(self) -> list[Transaction]:
        """Without a transaction."""
        if not self._transactions:
            self._transactions = [await self._producer(each) for each in self.transactional_ids()]
        return self._transactions

    async def transactions(self) -> list[Transaction]:
        """Open ones, with every topic."""
        if not self._transactions:
            topics = await self.topics()
            for producer in await self.producers():
                await self._begin(producer, topics)
        return self._transactions

    async def add_group(self, transaction: Transaction, group: str) -> None:
        """What comes before offsets of a transaction."""
        await self._admin(
            ADD_OFFSETS, 3, transactional_id=transaction.transactional_id, producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch, group_id=group,
        )  # fmt: skip

    def _named(self, resource_type: ResourceType, kind: str) -> list[str]:
        if resource_type not in self._names:
            self._names[resource_type] = [Named(name) for name in self._new_names(resource_type, kind)]
        return [each.name for each in self._in_order(self._names[resource_type])]

    def _new_names(self, resource_type: ResourceType, kind: str) -> list[str]:
        return [f"{self.prefix}-{kind}-{index}" for index in range(2 if resource_type is self._doubled else 1)]

    def _in_order(self, names: list[Named]) -> list[Named]:
        return names[::-1] if self._is_reversed else names

    async def _topic(self, name: str) -> Named:
        wanted = nested(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        created = await self._admin(CREATE_TOPICS, 7, topics=[wanted], timeout_ms=LONG_MS, validate_only=False)
        topic_id = created.topics[0].topic_id
        self.world.hidden[topic_id.bytes] = (ResourceType.TOPIC, name)
        batch = batch_of([f"{name}{VALUE}".encode()] * 2)
        data = nested(name=name, partition_data=[nested(index=0, records=bytes(batch))])
        await self._admin(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=LONG_MS, topic_data=[data])
        return Named(name, topic_id)

    async def _classic_member(self, group: str, topics: list[Named]) -> Member:
        names = b"".join(len(each.name).to_bytes(2) + each.name.encode() for each in topics)
        subscription = b"\x00\x00" + len(topics).to_bytes(4) + names + b"\xff\xff\xff\xff"
        joined = await self._admin(
            JOIN, 3, group_id=group, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=SESSION_MS, member_id="",
            protocol_type="consumer", protocols=[nested(name="range", metadata=subscription)],
        )  # fmt: skip
        self.world.hidden[joined.member_id.encode()] = (ResourceType.GROUP, group)
        member = Member(group, joined.member_id, joined.generation_id)
        await self._admin(
            SYNC, 3, group_id=group, generation_id=member.epoch, member_id=member.member_id, group_instance_id=None,
            assignments=[nested(member_id=member.member_id, assignment=b"")],
        )  # fmt: skip
        return member

    async def _consumer(self, group: str, topics: list[Named]) -> Member:
        return await self._heartbeats(
            CONSUMER_HEARTBEAT, group, topics, instance_id=None, rebalance_timeout_ms=SESSION_MS, server_assignor=None,
            topic_partitions=[], subscribed_topic_regex=None,
        )  # fmt: skip

    async def _from_the_first_record(self, group: str) -> None:
        config = nested(name="share.auto.offset.reset", config_operation=0, value="earliest")
        resource = nested(resource_type=GROUP_CONFIG, resource_name=group, configs=[config])
        await self._admin(ALTER_CONFIGS, 1, resources=[resource], validate_only=False)

        async def is_known() -> bool:
            """Kafka's broker hears of it from its controller."""
            named = nested(resource_type=GROUP_CONFIG, resource_name=group, configuration_keys=[config["name"]])
            answer = await self._admin(DESCRIBE_CONFIGS, 4, resources=[named])
            return [each.value for each in answer.results[0].configs] == [config["value"]]

        await until(is_known, f"{group} begins with the first record")

    async def _heartbeats(self, api_key: int, group: str, topics: list[Named], **fields: Any) -> Member:
        """Of a member, until it has been assigned something."""
        member_id = share_member_id(uuid.uuid4())
        self.world.hidden[member_id.encode()] = (ResourceType.GROUP, group)
        epoch = 0

        async def is_assigned() -> bool:
            nonlocal epoch
            answer = await self._admin(
                api_key, 1, group_id=group, member_id=member_id, member_epoch=epoch, rack_id=None,
                subscribed_topic_names=[each.name for each in topics], **fields,
            )  # fmt: skip
            epoch = answer.member_epoch
            return answer.assignment is not None and bool(answer.assignment.topic_partitions)

        await until(is_assigned, f"a member of {group} has partitions")
        return Member(group, member_id, epoch)

    async def _producer(self, transactional_id: str) -> Transaction:
        producer = await self._admin(
            INIT_PRODUCER_ID, 4, transactional_id=transactional_id, transaction_timeout_ms=LONG_MS, producer_id=-1,
            producer_epoch=-1,
        )  # fmt: skip
        return Transaction(transactional_id, producer.producer_id, producer.producer_epoch)

    async def _begin(self, producer: Transaction, topics: list[Named]) -> None:
        await self._admin(
            ADD_PARTITIONS, 3, v3_and_below_transactional_id=producer.transactional_id,
            v3_and_below_producer_id=producer.producer_id, v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[nested(name=each.name, partitions=[0]) for each in topics],
        )  # fmt: skip

    async def _admin(self, api_key: int, version: int, **fields: Any) -> Any:
        return await settled(lambda: self.world.admin.ask(api_key, version, **fields))


def share_member_id(number: uuid.UUID) -> str:
    """As Java's clients write theirs, which Kafka wants of members of share groups."""
    return base64.urlsafe_b64encode(number.bytes).rstrip(b"=").decode().replace("-", "a").replace("_", "b")


async def settled(ask: Callable[[], Awaitable[Any]]) -> Any:
    """The answer that is no error of a server's first moments. Any other error fails."""
    answer: Any = None

    async def is_settled() -> bool:
        nonlocal answer
        answer = await ask()
        errors = {code for _, code, _ in error_codes(answer)} - {ErrorCode.NONE}
        assert errors <= PASSING, answer
        return not errors

    await until(is_settled, lambda: f"the answer is no error: {answer}")
    return answer
