"""What this node does when other nodes call (broker.nodes.node_messages): each kind of call in one place.

The caller has proven that it belongs to the cluster. It may be wrong about which node leads a partition, so that is
checked, and no call is passed on to a third node. Up to the first await the calls of one connection class are taken in
their order.
"""

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias

from headwater.broker.coordinators import Coordinators
from headwater.broker.log.partition import Partition
from headwater.broker.nodes import node_messages
from headwater.broker.nodes.node_messages import NodeCallKind
from headwater.broker.settings.broker_settings import BrokerSettings
from headwater.broker.topics.catalog import Catalog
from headwater.metadata.store import Unavailable, Unknown
from headwater.model.cluster import AUDIT_TOPIC
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import Offset, PartitionId
from headwater.records.batch import CorruptBatch, InvalidBatch, validate
from headwater.records.byte_reader import ByteReader, MalformedBytes
from headwater.transactions.effects import AddAnswer
from headwater.wire.cursor import Cursor, MalformedRequest

ADMISSION_WAIT_S: Final = 0.2
"""How long an admission may wait for the end of the transaction before it. Those behind it wait, too."""
MAX_READ_BYTES: Final = 8 * 1024 * 1024

Answer: TypeAlias = Callable[[ByteReader], Coroutine[Any, Any, bytes]]


class NodeAnswers:
    def __init__(self, catalog: Catalog, settings: BrokerSettings, coordinators: Coordinators) -> None:
        self._catalog = catalog
        self._settings = settings
        self._coordinators = coordinators
        self._answers: dict[int, Answer] = {
            NodeCallKind.MARK: self._mark,
            NodeCallKind.ADMIT: self._admit,
            NodeCallKind.APPEND: self._append,
            NodeCallKind.READ: self._read,
            NodeCallKind.POSITIONS: self._positions,
            NodeCallKind.CLAIM: self._claim,
            NodeCallKind.CLAIM_ALL: self._claim_all,
            NodeCallKind.WRITE_STATE: self._write_state,
            NodeCallKind.FORGET_STATE: self._forget_state,
            NodeCallKind.SHARE_GROUP: self._share_group,
            NodeCallKind.DOUBT_MEMBER: self._doubt_member,
            NodeCallKind.SHARE_OFFSETS: self._share_offsets,
            NodeCallKind.RESET_SHARE: self._reset_share,
            NodeCallKind.FORGET_SHARES: self._forget_shares,
            NodeCallKind.FOLLOW_TOPIC: self._follow_topic,
            NodeCallKind.FOLLOW_SETTINGS: self._follow_settings,
        }

    async def answer(self, kind: int, body: Cursor) -> bytes:
        """Raises RequestError, MalformedRequest."""
        answer = self._answers.get(kind)
        if answer is None:
            raise MalformedRequest(f"there is no call of kind {kind}")
        try:
            return await answer(ByteReader(body.take(body.end - body.position)))
        except MalformedBytes as error:
            raise MalformedRequest(str(error)) from error
        except (Unavailable, Unknown) as error:
            raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"The metadata cannot be had: {error}") from error

    # Transactions

    async def _mark(self, body: ByteReader) -> bytes:
        committed = self._coordinators.transactions.markers.receive(node_messages.read_marker(body))
        if committed is not None:
            await committed
        return b""

    async def _admit(self, body: ByteReader) -> bytes:
        answer = self._coordinators.transactions.add_partitions(node_messages.read_admission(body))
        await asyncio.wait([answer], timeout=ADMISSION_WAIT_S)
        if answer.done():
            return node_messages.admitted(answer.result())
        return node_messages.admitted(AddAnswer(ErrorCode.CONCURRENT_TRANSACTIONS))

    # Records

    async def _append(self, body: ByteReader) -> bytes:
        partition = self._led(node_messages.read_partition(body))
        if partition.topic_name != AUDIT_TOPIC and self._catalog.topic_by_id(partition.id.topic_id).is_internal:
            raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, "Internal topics are written by their keepers.")
        batch = bytearray(body.rest())
        try:
            header = validate(batch)
        except (CorruptBatch, InvalidBatch) as error:
            raise RequestError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        appended = partition.append(batch, header)
        if appended.committed is not None:
            await appended.committed
        return b""

    async def _read(self, body: ByteReader) -> bytes:
        partition_id, offset, max_bytes = node_messages.read_read_request(body)
        partition = self._led(partition_id)
        found = await partition.read(max(offset, partition.log_start), min(max_bytes, MAX_READ_BYTES))
        return node_messages.batches(partition.log_start, partition.high_watermark, bytes(found))

    async def _positions(self, body: ByteReader) -> bytes:
        index = body.int64()
        body.check_end()
        return node_messages.positions(self._coordinators.groups.views.positions_at(index))

    # The state of share groups

    async def _claim(self, body: ByteReader) -> bytes:
        key, epoch = node_messages.read_claim(body)
        return node_messages.claimed(await self._coordinators.shares.states.keeper(key).claim(key, epoch))

    async def _claim_all(self, body: ByteReader) -> bytes:
        index, leaders = node_messages.read_claims(body)
        return node_messages.all_claimed(await self._coordinators.shares.states.keeper_at(index).claim_all(leaders))

    async def _write_state(self, body: ByteReader) -> bytes:
        write = node_messages.read_state_write(body)
        await self._coordinators.shares.states.keeper(write.key).write(write)
        return b""

    async def _forget_state(self, body: ByteReader) -> bytes:
        key, ticket = node_messages.read_key(body), body.int64()
        body.check_end()
        await self._coordinators.shares.states.keeper(key).forget(key, ticket)
        return b""

    # Share groups

    async def _share_group(self, body: ByteReader) -> bytes:
        group_id = node_messages.read_text(body)
        body.check_end()
        self._coordinators.groups.share_group(group_id)
        return b""

    async def _doubt_member(self, body: ByteReader) -> bytes:
        group_id, member_id = node_messages.read_text(body), node_messages.read_text(body)
        body.check_end()
        settings = self._coordinators.group_configs.membership(group_id)
        self._coordinators.groups.doubt_share_member(group_id, member_id, settings)
        return b""

    async def _share_offsets(self, body: ByteReader) -> bytes:
        group_id = node_messages.read_text(body)
        body.check_end()
        return node_messages.share_offsets(await self._coordinators.share_admin.offsets_here(group_id))

    async def _reset_share(self, body: ByteReader) -> bytes:
        group_id, partition = node_messages.read_text(body), node_messages.read_partition(body)
        offset = Offset(body.int64())
        body.check_end()
        await self._coordinators.share_admin.reset_here(group_id, partition, offset)
        return b""

    async def _forget_shares(self, body: ByteReader) -> bytes:
        group_id, topic = node_messages.read_text(body), node_messages.read_text(body)
        body.check_end()
        try:
            topic_id = uuid.UUID(hex=topic) if topic else None
        except ValueError:
            raise MalformedBytes(f"{topic[:40]} is no id of a topic") from None
        await self._coordinators.share_admin.forget_here(group_id, topic_id)
        return b""

    # Topics

    async def _follow_topic(self, body: ByteReader) -> bytes:
        """Another node has changed a topic, and wants to say so."""
        topic_id = body.uuid()
        body.check_end()
        await self._catalog.reread([topic_id])
        return b""

    async def _follow_settings(self, body: ByteReader) -> bytes:
        """Another node has altered what holds for all brokers, and wants to say so."""
        body.check_end()
        await self._settings.refresh()
        return b""

    def _led(self, partition: PartitionId) -> Partition:
        topic = self._catalog.find_id(partition.topic_id)
        if topic is None:
            raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The topic is not known here.")
        return topic.partition(partition.index)
