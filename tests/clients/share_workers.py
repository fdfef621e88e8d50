"""Workers of share groups, by two clients that nobody here wrote: librdkafka's ShareConsumer and Java's."""

import base64
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka import AcknowledgeType, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.clients.with_java import JavaClient

ADMIN_TIMEOUT_S = 60.0
ACCEPT, RELEASE, REJECT = "ACCEPT", "RELEASE", "REJECT"
_names = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Lent:
    partition: int
    offset: int
    value: bytes


class Worker(Protocol):
    def poll(self, timeout_s: float) -> list[Lent]:
        """All records of a poll are to be acknowledged before the next."""

    def acknowledge(self, records: Sequence[Lent], kind: str) -> None: ...

    def commit(self) -> None:
        """Raises when the broker did not take an acknowledgement."""

    def close(self) -> None: ...


class ConfluentWorker:
    def __init__(self, bootstrap: str, topic: str, group: str, max_records: int = 500) -> None:
        self._consumer = ShareConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "share.acknowledgement.mode": "explicit",
                "max.poll.records": max_records,
                "log_level": 0,
            }
        )
        self._topic = topic
        self._consumer.subscribe([topic])

    def poll(self, timeout_s: float) -> list[Lent]:
        found = [message for message in self._consumer.poll(timeout_s) if message.error() is None]
        return [Lent(message.partition(), message.offset(), message.value()) for message in found]

    def acknowledge(self, records: Sequence[Lent], kind: str) -> None:
        for record in records:
            self._consumer.acknowledge_offset(
                self._topic, record.partition, record.offset, getattr(AcknowledgeType, kind)
            )

    def commit(self) -> None:
        for error in self._consumer.commit_sync(10.0).values():
            if error is not None:
                raise error

    def close(self) -> None:
        self._consumer.close()


class JavaWorker:
    def __init__(self, java: JavaClient, topic: str, group: str, max_records: int = 500) -> None:
        self._java = java
        self._name = f"worker-{next(_names)}"
        java.ask("shareJoin", member=self._name, topic=topic, group=group, mode="explicit", maxRecords=max_records)

    def poll(self, timeout_s: float) -> list[Lent]:
        rows = self._java.ask("sharePoll", member=self._name, timeoutMs=int(timeout_s * 1000))
        return [Lent(partition, offset, base64.b64decode(value)) for partition, offset, _, value in rows]

    def acknowledge(self, records: Sequence[Lent], kind: str) -> None:
        named = [[record.partition, record.offset] for record in records]
        self._java.ask("shareAcknowledge", member=self._name, records=named, type=kind)

    def commit(self) -> None:
        errors = self._java.ask("shareCommit", member=self._name)
        if errors:
            raise RuntimeError(str(errors))

    def close(self) -> None:
        self._java.ask("shareLeave", member=self._name)


def configure(bootstrap: str, group: str, **configs: str) -> None:
    """Underscores stand for dots."""
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.incremental_alter_configs([resource])[resource].result(ADMIN_TIMEOUT_S)
