"""Requests of producers with an identity, and about transactions."""

from headwater.broker.access.declared_access import AccessCheck
from headwater.model.errors import ErrorCode
from headwater.security.access_codes import ResourceType
from headwater.wire.api_keys import ApiKey
from tests.broker.access.matrix.case import Case, Fields
from tests.broker.access.matrix.scene import COMMITTED_OFFSET, LONG_MS, Scene
from tests.support.messages import nested


async def initialized(scene: Scene, version: int) -> Fields:
    (transactional_id,) = scene.transactional_ids()
    return {
        "transactional_id": transactional_id, "transaction_timeout_ms": LONG_MS, "producer_id": -1,
        "producer_epoch": -1,
    }  # fmt: skip


async def initialized_without_id(scene: Scene, version: int) -> Fields:
    await scene.topics()
    return {"transactional_id": None, "transaction_timeout_ms": 0, "producer_id": -1, "producer_epoch": -1}


async def partitions_added(scene: Scene, version: int) -> Fields:
    (transaction,) = await scene.producers()
    topics = [nested(name=each.name, partitions=[0]) for each in await scene.topics()]
    of_broker = nested(
        transactional_id=transaction.transactional_id, producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch, verify_only=False, topics=topics,
    )  # fmt: skip
    return {
        "v3_and_below_transactional_id": transaction.transactional_id,
        "v3_and_below_producer_id": transaction.producer_id,
        "v3_and_below_producer_epoch": transaction.producer_epoch,
        "v3_and_below_topics": topics,
        "transactions": [of_broker],
    }


async def offsets_added(scene: Scene, version: int) -> Fields:
    (transaction,), (group,) = await scene.transactions(), scene.groups()
    return {
        "transactional_id": transaction.transactional_id, "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch, "group_id": group,
    }  # fmt: skip


async def ended(scene: Scene, version: int) -> Fields:
    (transaction,) = await scene.transactions()
    return {
        "transactional_id": transaction.transactional_id, "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch, "committed": True,
    }  # fmt: skip


async def markers_written(scene: Scene, version: int) -> Fields:
    """Of a producer that has no transaction: an abort of nothing."""
    topics = [nested(name=each.name, partition_indexes=[0]) for each in await scene.topics()]
    marker = nested(
        producer_id=1_000_000, producer_epoch=0, transaction_result=False, topics=topics, coordinator_epoch=0,
        transaction_version=1,
    )  # fmt: skip
    return {"markers": [marker]}


async def offsets_committed(scene: Scene, version: int) -> Fields:
    partition = nested(
        partition_index=0, committed_offset=COMMITTED_OFFSET, committed_metadata="", committed_leader_epoch=-1
    )
    (transaction,), (group,) = await scene.transactions(), scene.groups()
    await scene.add_group(transaction, group)
    return {
        "transactional_id": transaction.transactional_id, "group_id": group, "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch, "generation_id": -1, "member_id": "", "group_instance_id": None,
        "topics": [nested(name=each.name, partitions=[partition]) for each in await scene.topics()],
    }  # fmt: skip


async def described(scene: Scene, version: int) -> Fields:
    return {"transactional_ids": [each.transactional_id for each in await scene.transactions()]}


async def listed(scene: Scene, version: int) -> Fields:
    await scene.transactions()
    return {"state_filters": [], "producer_id_filters": [], "duration_filter": -1, "transactional_id_pattern": None}


def _is_of_id(check: AccessCheck) -> bool:
    return check.resource_type is ResourceType.TRANSACTIONAL_ID


CASES = (
    Case(api_key=ApiKey.INIT_PRODUCER_ID, title="of a transactional id", build=initialized, picks=_is_of_id),
    Case(
        api_key=ApiKey.INIT_PRODUCER_ID, title="of an idempotent producer", build=initialized_without_id,
        picks=lambda check: not _is_of_id(check),
    ),
    Case(api_key=ApiKey.ADD_PARTITIONS_TO_TXN, title="", build=partitions_added, spoils=True),
    Case(api_key=ApiKey.ADD_OFFSETS_TO_TXN, title="", build=offsets_added),
    Case(api_key=ApiKey.END_TXN, title="", build=ended, spoils=True),
    Case(
        api_key=ApiKey.WRITE_TXN_MARKERS, title="", build=markers_written,
        also=frozenset((ErrorCode.INVALID_PRODUCER_ID_MAPPING,)),
    ),
    Case(api_key=ApiKey.TXN_OFFSET_COMMIT, title="", build=offsets_committed),
    Case(api_key=ApiKey.DESCRIBE_TRANSACTIONS, title="", build=described),
    Case(api_key=ApiKey.LIST_TRANSACTIONS, title="", build=listed),
)  # fmt: skip
