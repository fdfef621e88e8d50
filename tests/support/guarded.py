"""A broker that holds its users to bindings, and clients that log in and speak bytes: `admin` may do everything, each
other user what a test allows.

With HEADWATER_TEST_GUARDED=<host>:<port> tests judge another broker, such as Apache Kafka with its StandardAuthorizer:
its listener takes PLAIN, and has `admin`, a super user, and `alice`, both with the password `secret`."""

import asyncio
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from headwater.broker.access.user_record import UserRecord
from headwater.metadata import keys
from headwater.metadata.connect import open_metadata
from headwater.metadata.store import Put
from headwater.records.build import build_batch
from headwater.records.record import Record
from headwater.security.access_codes import Operation, PatternType, Permission, ResourceType
from headwater.security.principal import CLUSTER_NAME
from headwater.security.scram import ScramCredential, ScramMechanism
from headwater.testing import Broker
from headwater.transport.ports import free_ports
from headwater.wire.message import Message
from tests.support.eventually import eventually
from tests.support.messages import nested
from tests.support.wire import WireClient

ADMIN = "admin"
PASSWORD = "secret"
PRODUCE, METADATA, SASL_HANDSHAKE, CREATE_TOPICS, CREATE_ACLS, DELETE_ACLS, SASL_AUTHENTICATE = 0, 3, 17, 19, 30, 31, 36
ANY = 1
OTHER_GUARDED = os.environ.get("HEADWATER_TEST_GUARDED")


class LoggedIn(WireClient):
    @classmethod
    def as_user(cls, address: tuple[str, int], user: str) -> Self:
        client = cls(address)
        assert client.ask(SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == 0
        token = f"\0{user}\0{PASSWORD}".encode()
        assert client.ask(SASL_AUTHENTICATE, 2, auth_bytes=token).error_code == 0
        return client


@dataclass(frozen=True, slots=True)
class Guarded:
    address: tuple[str, int]
    open_address: tuple[str, int]
    """Of a listener that asks no client who it is."""
    admin: LoggedIn

    @contextmanager
    def client(self, user: str = "alice") -> Iterator[LoggedIn]:
        with LoggedIn.as_user(self.address, user) as client:
            yield client

    def librdkafka(self, user: str = "alice") -> dict[str, Any]:
        return {
            "bootstrap.servers": f"{self.address[0]}:{self.address[1]}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": PASSWORD,
        }

    def allow(
        self,
        operation: Operation,
        resource_type: ResourceType = ResourceType.TOPIC,
        name: str = CLUSTER_NAME,
        *,
        user: str = "alice",
        pattern: PatternType = PatternType.LITERAL,
        permission: Permission = Permission.ALLOW,
    ) -> None:
        binding = nested(
            resource_type=resource_type, resource_name=name, resource_pattern_type=pattern, principal=f"User:{user}",
            host="*", operation=operation, permission_type=permission,
        )  # fmt: skip
        (made,) = self.admin.ask(CREATE_ACLS, 3, creations=[binding]).results
        assert made.error_code == 0, made.error_message

    def allow_on_cluster(self, operation: Operation, *, user: str = "alice") -> None:
        self.allow(operation, ResourceType.CLUSTER, user=user)

    def forget_bindings(self) -> None:
        everything = nested(
            resource_type_filter=ANY, resource_name_filter=None, pattern_type_filter=ANY, principal_filter=None,
            host_filter=None, operation=ANY, permission_type=ANY,
        )  # fmt: skip
        (deleted,) = self.admin.ask(DELETE_ACLS, 3, filters=[everything]).filter_results
        assert deleted.error_code == 0, deleted.error_message

    def create(self, *topics: str, partitions: int = 1) -> dict[str, Any]:
        """The ids of the new topics."""
        asked = [
            nested(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
            for name in topics
        ]
        answer = self.admin.ask(CREATE_TOPICS, 7, topics=asked, timeout_ms=10_000, validate_only=False)
        assert all(each.error_code == 0 for each in answer.topics), answer
        eventually(lambda: self.topics().issuperset(topics), "the new topics are known")
        return {each.name: each.topic_id for each in answer.topics}

    def topics(self) -> set[str]:
        return {topic.name for topic in self.admin.ask(METADATA, 12, topics=None).topics}

    def write(self, topic: str, value: bytes, *, partition: int = 0) -> None:
        eventually(
            lambda: produced(self.admin, [(topic, partition, value)])[0].error_code == 0, "the partition has a leader"
        )


@contextmanager
def guarded_broker(directory: Path, *, users: Sequence[str] = ("alice",), **config: Any) -> Iterator[Guarded]:
    if OTHER_GUARDED:
        host, _, port = OTHER_GUARDED.partition(":")
        other = host, int(port)
        with LoggedIn.as_user(other, ADMIN) as admin:
            yield Guarded(other, other, admin)
        return

    async def prepare() -> None:
        credential = ScramCredential.of_password(ScramMechanism.SCRAM_SHA_256, PASSWORD, b"salt", 4096)
        record = UserRecord(credentials={ScramMechanism.SCRAM_SHA_256: credential}).to_json()
        metadata = await open_metadata(f"sqlite:{directory / 'metadata.db'}")
        await metadata.txn([], [Put(keys.user_key(user), record) for user in (ADMIN, *users)])
        await metadata.close()

    asyncio.run(prepare())
    guarded, unguarded = (("127.0.0.1", port) for port in free_ports(2))
    tables = [
        {
            "name": "guarded",
            "protocol": "SASL_PLAINTEXT",
            "listen": f"127.0.0.1:{guarded[1]}",
            "mechanisms": ["PLAIN", "SCRAM-SHA-256"],
        },
        {"name": "open", "listen": f"127.0.0.1:{unguarded[1]}"},
    ]
    settings: dict[str, Any] = {"authorization": "on", "super_users": [f"User:{ADMIN}"], **config}
    with Broker(listener=tables, data_dir=directory, **settings), LoggedIn.as_user(guarded, ADMIN) as admin:
        yield Guarded(guarded, unguarded, admin)


def produced(
    client: WireClient,
    values: Sequence[tuple[Any, int, bytes]],
    *,
    version: int = 9,
    acks: int = -1,
    transactional_id: str | None = None,
    **batch: Any,
) -> list[Any]:
    """The results, in the order of the values, which go to topics by name, or by id from version 13 on."""
    named = "topic_id" if version >= 13 else "name"
    data = [
        nested(
            **{named: topic},
            partition_data=[
                nested(index=index, records=bytes(build_batch([Record(None, value, timestamp=1_000)], **batch)))
            ],
        )
        for topic, index, value in values
    ]
    fields = {"transactional_id": transactional_id, "acks": acks, "timeout_ms": 10_000, "topic_data": data}
    if acks == 0:
        client.send(PRODUCE, version, **fields)
        return []
    answer = client.ask(PRODUCE, version, **fields)
    found = {
        (getattr(topic, named), each.index): each for topic in answer.responses for each in topic.partition_responses
    }
    return [found[topic, index] for topic, index, _ in values]


def assert_says(message: str | None, expected: str) -> None:
    """The message names the grant that is missing. That of Kafka does not."""
    assert OTHER_GUARDED or message == expected


def assert_hides(answer: Message, *secrets: str) -> None:
    """What a client may not know is nowhere in the response, in no message either."""
    said = repr(answer)
    for secret in secrets:
        assert secret not in said, f"{secret} is in {json.dumps(said)}"
