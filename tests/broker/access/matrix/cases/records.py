"""Requests for records and their offsets."""

from headwater.broker.access.declared_access import AccessCheck
from headwater.security.access_codes import ResourceType
from headwater.wire.api_keys import ApiKey
from tests.broker.access.matrix.case import Case, Fields
from tests.broker.access.matrix.scene import LONG_MS, TRANSACTIONAL, Scene
from tests.support.local_broker import batch_of
from tests.support.messages import nested

NO_EPOCH = -1
SESSIONLESS = {"session_id": 0, "session_epoch": -1}


async def produced(scene: Scene, version: int) -> Fields:
    records = bytes(batch_of([b"of the stranger"]))
    topics = [
        nested(name=each.name, topic_id=each.id, partition_data=[nested(index=0, records=records)])
        for each in await scene.topics()
    ]
    return {"transactional_id": None, "acks": -1, "timeout_ms": LONG_MS, "topic_data": topics}


async def produced_without_response(scene: Scene, version: int) -> Fields:
    return {**await produced(scene, version), "acks": 0}


async def produced_in_transaction(scene: Scene, version: int) -> Fields:
    (transaction,) = await scene.transactions()
    batch = batch_of(
        [b"of a transaction"], producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch,
        base_sequence=0, attributes=TRANSACTIONAL,
    )  # fmt: skip
    fields = await produced(scene, version)
    for topic in fields["topic_data"]:
        topic["partition_data"] = [nested(index=0, records=bytes(batch))]
    return {**fields, "transactional_id": transaction.transactional_id}


async def fetched(scene: Scene, version: int) -> Fields:
    partition = nested(
        partition=0, fetch_offset=0, partition_max_bytes=1 << 20, current_leader_epoch=NO_EPOCH,
        last_fetched_epoch=NO_EPOCH,
    )  # fmt: skip
    topics = [nested(topic=each.name, topic_id=each.id, partitions=[partition]) for each in await scene.topics()]
    return {
        "replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "isolation_level": 0, **SESSIONLESS,
        "topics": topics, "forgotten_topics_data": [], "rack_id": "", "cluster_id": None,
    }  # fmt: skip


async def offsets_listed(scene: Scene, version: int) -> Fields:
    partition = nested(partition_index=0, timestamp=-1, current_leader_epoch=NO_EPOCH)
    topics = [nested(name=each.name, partitions=[partition]) for each in await scene.topics()]
    return {"replica_id": -1, "topics": topics, "isolation_level": 0, "timeout_ms": LONG_MS}


async def records_deleted(scene: Scene, version: int) -> Fields:
    partition = nested(partition_index=0, offset=1)
    topics = [nested(name=each.name, partitions=[partition]) for each in await scene.topics()]
    return {"topics": topics, "timeout_ms": LONG_MS}


async def epochs_ended(scene: Scene, version: int) -> Fields:
    partition = nested(partition=0, current_leader_epoch=NO_EPOCH, leader_epoch=0)
    topics = [nested(topic=each.name, partitions=[partition]) for each in await scene.topics()]
    return {"replica_id": -1, "topics": topics}


async def producers_described(scene: Scene, version: int) -> Fields:
    return {"topics": [nested(name=each.name, partition_indexes=[0]) for each in await scene.topics()]}


def _is_of_topic(check: AccessCheck) -> bool:
    return check.resource_type is ResourceType.TOPIC


CASES = (
    Case(api_key=ApiKey.PRODUCE, title="", build=produced, picks=_is_of_topic),
    Case(
        api_key=ApiKey.PRODUCE, title="without a response", build=produced_without_response, picks=_is_of_topic,
        closes=True,
    ),
    Case(api_key=ApiKey.PRODUCE, title="in a transaction", build=produced_in_transaction),
    Case(api_key=ApiKey.FETCH, title="", build=fetched),
    Case(api_key=ApiKey.LIST_OFFSETS, title="", build=offsets_listed),
    Case(api_key=ApiKey.DELETE_RECORDS, title="", build=records_deleted),
    Case(api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH, title="", build=epochs_ended),
    Case(api_key=ApiKey.DESCRIBE_PRODUCERS, title="", build=producers_described),
)  # fmt: skip
