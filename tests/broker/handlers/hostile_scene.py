"""A broker with a topic and with members of all kinds, and the values that requests have which make sense to it."""

from typing import Any

from headwater.broker.server import Broker
from headwater.wire.schema import StructField
from tests.broker.queues.share_members import Member
from tests.support.local_broker import Client, batch_of
from tests.support.messages import nested

TOPIC = "orders"
JOIN, SYNC, CONSUMER_HEARTBEAT, INIT_PRODUCER_ID = 11, 14, 68, 22
CLASSIC = {
    "OffsetCommit", "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup", "TxnOffsetCommit", "OffsetDelete",
    "OffsetFetch", "DescribeGroups", "DeleteGroups", "AddOffsetsToTxn",
}  # fmt: skip
LONG_MS = 300_000


class Scene:
    """Groups, members and producers of one API's requests. They are new for each, because hostile requests end them."""

    def __init__(self, broker: Broker, values: dict[str, Any]) -> None:
        self._topic_id = broker.catalog.topic(TOPIC).topic_id
        self._values = {**_PLAIN, "topic_id": self._topic_id, **values}

    @classmethod
    async def bare(cls, broker: Broker, client: Client) -> "Scene":
        """With a topic, and nothing else that is there."""
        if broker.catalog.find(TOPIC) is None:
            await client.create(TOPIC, 2)
        return cls(broker, {})

    @classmethod
    async def arranged(cls, broker: Broker, client: Client, api_name: str) -> "Scene":
        await cls.bare(broker, client)
        await client.produce(TOPIC, batch_of([b"one", b"two"]))
        group, transactional_id = f"group-{api_name}", f"id-{api_name}"
        producer = await client.ask(
            INIT_PRODUCER_ID, 4, transactional_id=transactional_id, transaction_timeout_ms=LONG_MS,
            producer_id=-1, producer_epoch=-1,
        )  # fmt: skip
        values: dict[str, Any] = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "v3_and_below_producer_id": producer.producer_id,
            "v3_and_below_producer_epoch": producer.producer_epoch,
            "v3_and_below_transactional_id": transactional_id,
            "transactional_ids": transactional_id,
        }
        if api_name != "Produce":  # whose batch is of no producer
            values["transactional_id"] = transactional_id
        if api_name in CLASSIC:
            values |= await _classic_member(client, group)
        elif "Share" in api_name:
            member = await Member.joined(broker, TOPIC, group, (0, 1))
            values |= {"member_id": member.member_id, "member_epoch": member.epoch}
            values["share_session_epoch"] = member.session_epoch
        else:
            values |= await _consumer(client, group)
        for name in ("group_id", "groups", "groups_names", "group_ids", "coordinator_keys", "key"):
            values[name] = group
        return cls(broker, values)

    def good(self, field: StructField) -> Any:
        kinds = {"bool": False, "string": "g", "bytes": b"", "records": b"", "float64": 0.0}
        return self._values.get(field.name, kinds.get(str(field.type), 0))


async def _classic_member(client: Client, group: str) -> dict[str, Any]:
    protocols = [nested(name="range", metadata=b"")]
    joined = await client.ask(
        JOIN, 3, group_id=group, session_timeout_ms=LONG_MS, rebalance_timeout_ms=LONG_MS, member_id="",
        protocol_type="consumer", protocols=protocols,
    )  # fmt: skip
    assignments = [nested(member_id=joined.member_id, assignment=b"")]
    await client.ask(
        SYNC, 3, group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=assignments
    )
    return {
        "member_id": joined.member_id,
        "generation_id": joined.generation_id,
        "generation_id_or_member_epoch": joined.generation_id,
        "protocol_name": "range",
    }


async def _consumer(client: Client, group: str) -> dict[str, Any]:
    joined = await client.ask(
        CONSUMER_HEARTBEAT, 1, group_id=group, member_id="member-1", member_epoch=0, rebalance_timeout_ms=LONG_MS,
        subscribed_topic_names=[TOPIC], topic_partitions=[], instance_id=None, rack_id=None, server_assignor=None,
        subscribed_topic_regex=None,
    )  # fmt: skip
    return {"member_id": "member-1", "member_epoch": joined.member_epoch}


_PLAIN: dict[str, Any] = {
    "topic": TOPIC,
    "name": TOPIC,
    "topic_name": TOPIC,
    "topic_names": TOPIC,
    "subscribed_topic_names": TOPIC,
    "subscribed_topic_regex": "o.*",
    "resource_name": TOPIC,
    "resource_type": 2,
    "resource_types": 2,
    "replication_factor": 1,
    "num_partitions": 1,
    "count": 3,
    "broker_ids": 1,
    "replicas": 1,
    "acks": -1,
    "replica_id": -1,
    "records": bytes(batch_of([b"value"])),
    "protocol_type": "consumer",
    "max_wait_ms": 0,
    "timeout_ms": 1000,
    "session_timeout_ms": LONG_MS,
    "rebalance_timeout_ms": LONG_MS,
    "transaction_timeout_ms": LONG_MS,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
    "max_records": 10,
    "batch_size": 10,
    "transactional_id": None,
    "group_instance_id": None,
    "instance_id": None,
    "server_assignor": "uniform",
    "state_filters": "Empty",
    "states_filter": "Stable",
    "types_filter": "classic",
    "client_software_name": "test",
    "client_software_version": "1",
    "session_epoch": -1,
    "current_leader_epoch": -1,
    "committed_leader_epoch": -1,
    "transaction_version": 2,
    "acknowledge_types": 1,
    "response_partition_limit": 10,
    "endpoint_type": 1,
}
