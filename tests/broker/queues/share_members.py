"""A member of a share group that speaks bytes: for what no client library sends, shows or waits for."""

import asyncio
import functools
import uuid
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec

from headwater.broker.server import Broker
from headwater.model.errors import ErrorCode
from headwater.records.batch import split
from headwater.records.record import Record, records
from tests.support.eventually import until
from tests.support.local_broker import Client
from tests.support.messages import nested

HEARTBEAT, DESCRIBE, FETCH, ACKNOWLEDGE = 76, 77, 78, 79
DESCRIBE_OFFSETS, ALTER_OFFSETS, DELETE_OFFSETS = 90, 91, 92
CONFIGURE = 44
GROUP_RESOURCE = 32
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4

P = ParamSpec("P")
_connected: list[Client] = []


def on_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that runs on an event loop of its own, and whose members hang up at its end."""

    async def run_and_hang_up(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            await test(*args, **kwargs)
        finally:
            while _connected:
                _connected.pop().close()
            await asyncio.sleep(0)

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(run_and_hang_up(*args, **kwargs))

    return run


@dataclass(slots=True)
class Fetched:
    error_code: int
    acknowledge_errors: dict[int, int] = field(default_factory=dict)
    errors: dict[int, int] = field(default_factory=dict)
    ranges: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    records: dict[int, list[Record]] = field(default_factory=dict)
    """By partition: the records that are the member's."""
    sent: dict[int, list[Record]] = field(default_factory=dict)
    """All that came along."""

    @property
    def offsets(self) -> list[int]:
        return [record.offset for found in self.records.values() for record in found]

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for found in self.records.values() for record in found]


class Member:
    """Follows the session's epochs by itself, unless told otherwise."""

    def __init__(self, client: Client, topic_id: uuid.UUID, group: str = "g", partitions: Sequence[int] = (0,)) -> None:
        self.client = client
        self.group = group
        self.member_id = str(uuid.uuid4())
        self.topic_id = topic_id
        self.partitions = partitions
        self.epoch = 0
        self.session_epoch = 0

    @classmethod
    async def joined(
        cls, broker: Broker, topic: str, group: str = "g", partitions: Sequence[int] = (0,), *, opens: bool = True
    ) -> "Member":
        """With a connection of its own, and a session, unless the first fetch is to be the test's."""
        _connected.append(await Client.connect(broker))
        member = cls(_connected[-1], broker.catalog.topic(topic).topic_id, group, partitions)

        async def is_answered() -> bool:
            answer = await member.heartbeat(0, topic)
            assert answer.error_code in (0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), answer.error_message
            return bool(answer.error_code == 0)

        await until(is_answered, "the coordinator is loaded")
        if opens:
            await member.fetch()
        return member

    async def heartbeat(self, epoch: int, *topics: str) -> Any:
        answer = await self.client.ask(
            HEARTBEAT, 1, group_id=self.group, member_id=self.member_id, member_epoch=epoch, rack_id=None,
            subscribed_topic_names=list(topics) or None,
        )  # fmt: skip
        self.epoch = answer.member_epoch
        return answer

    async def fetch(
        self,
        *,
        wait_ms: int = 0,
        max_records: int = 500,
        min_bytes: int = 1,
        acks: Sequence[tuple[int, int, int]] = (),
        ack_partition: int = 0,
        session_epoch: int | None = None,
        version: int = 2,
        mode: int = 1,
        max_bytes: int = 1 << 20,
        batch_size: int = 500,
        is_renewal: bool = False,
        forgets: Sequence[int] = (),
    ) -> Fetched:
        epoch = self.session_epoch if session_epoch is None else session_epoch
        if acks:
            named = [nested(partition_index=ack_partition, acknowledgement_batches=_batches(acks))]
        else:
            named = [nested(partition_index=each, acknowledgement_batches=[]) for each in self.partitions]
        answer = await self.client.ask(
            FETCH, version, group_id=self.group, member_id=self.member_id, share_session_epoch=epoch,
            max_wait_ms=0 if is_renewal else wait_ms, min_bytes=0 if is_renewal else min_bytes,
            max_bytes=0 if is_renewal else max_bytes, max_records=0 if is_renewal else max_records,
            batch_size=batch_size, share_acquire_mode=mode, is_renew_ack=is_renewal,
            topics=[nested(topic_id=self.topic_id, partitions=named)] if acks or epoch == 0 else [],
            forgotten_topics_data=[nested(topic_id=self.topic_id, partitions=list(forgets))] if forgets else [],
        )  # fmt: skip
        if answer.error_code == 0 and session_epoch is None:
            self.session_epoch += 1
        return _fetched(answer)

    async def acknowledge(
        self,
        *acks: tuple[int, int, int],
        partition: int = 0,
        session_epoch: int | None = None,
        is_renewal: bool = False,
        version: int = 2,
    ) -> int:
        """The error of the request, or of its partition."""
        epoch = self.session_epoch if session_epoch is None else session_epoch
        named = [nested(partition_index=partition, acknowledgement_batches=_batches(acks))] if acks else []
        answer = await self.client.ask(
            ACKNOWLEDGE, version, group_id=self.group, member_id=self.member_id, share_session_epoch=epoch,
            is_renew_ack=is_renewal, topics=[nested(topic_id=self.topic_id, partitions=named)] if named else [],
        )  # fmt: skip
        if answer.error_code == 0 and session_epoch is None:
            self.session_epoch += 1
        if answer.error_code or not answer.responses:
            return int(answer.error_code)
        return int(answer.responses[0].partitions[0].error_code)

    async def accept_all(self, fetched: Fetched) -> None:
        for partition, ranges in fetched.ranges.items():
            for first, last, _ in ranges:
                assert await self.acknowledge((first, last, ACCEPT), partition=partition) == 0

    def vanish(self) -> None:
        """The connection is lost."""
        self.client.close()


async def configure(client: Client, group: str = "g", **configs: str) -> None:
    named = [
        nested(name=name.replace("__", "-").replace("_", "."), config_operation=0, value=value)
        for name, value in configs.items()
    ]
    asked = nested(resource_type=GROUP_RESOURCE, resource_name=group, configs=named)
    answer = await client.ask(CONFIGURE, 1, resources=[asked], validate_only=False)
    assert answer.responses[0].error_code == 0, answer.responses[0].error_message


def _batches(acks: Sequence[tuple[int, int, int]]) -> list[dict[str, Any]]:
    return [nested(first_offset=first, last_offset=last, acknowledge_types=[kind]) for first, last, kind in acks]


def _fetched(answer: Any) -> Fetched:
    fetched = Fetched(answer.error_code)
    for topic in answer.responses:
        for each in topic.partitions:
            index = each.partition_index
            fetched.errors[index] = each.error_code
            fetched.acknowledge_errors[index] = each.acknowledge_error_code
            if not each.acquired_records:
                continue
            ranges = [(held.first_offset, held.last_offset, held.delivery_count) for held in each.acquired_records]
            sent = [record for header, batch in split(each.records) for record in records(batch, header)]
            fetched.ranges[index], fetched.sent[index] = ranges, sent
            fetched.records[index] = [
                record for record in sent if any(first <= record.offset <= last for first, last, _ in ranges)
            ]
    return fetched
