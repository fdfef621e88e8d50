"""What one client sends is seen by no other: connections of one loop share buffers, and handlers do."""

import asyncio
import random
import ssl
import struct
from pathlib import Path

import pytest
import uvloop

from headwater.testing.fakes.files import MemoryFiles
from headwater.transport.ports import free_ports
from tests.support import local_broker
from tests.support.certificates import Authority
from tests.support.effort import amount
from tests.support.local_broker import FETCH, METADATA, Client, batch_of
from tests.support.messages import nested

ROUNDS = amount(300, 40)
LARGEST_BYTES = 300_000
"""More than a slice of TLS output, a scratch buffer, and what responses are joined below."""


class Tenant(Client):
    """A client that looks at every byte it gets."""

    mark = b""
    others: tuple[bytes, ...] = ()

    async def frame(self) -> bytes:
        self._waiting.popleft()
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        data = await self._reader.readexactly(size)
        assert not any(mark in data for mark in self.others), "bytes of another tenant"
        return data

    def ask_for_something(self, chance: random.Random, topic: str) -> bool:
        """Whether the mark is in the answer."""
        kind = chance.randint(0, 2)
        if kind == 0:
            value = self.mark * (chance.choice([16, 3_000, LARGEST_BYTES]) // len(self.mark))
            self.send_batch(topic, batch_of([value]))
        elif kind == 1:
            asked = nested(partition=0, fetch_offset=0, partition_max_bytes=chance.choice([1, 2 * LARGEST_BYTES]))
            topics = [nested(topic=topic, partitions=[asked])]
            self.send(
                FETCH, 11, max_wait_ms=0, min_bytes=0, max_bytes=1 << 22, session_id=0, session_epoch=-1, topics=topics
            )
        else:  # the name of a topic that does not exist comes back
            name = self.mark.decode() * chance.randint(1, 12)
            self.send(
                METADATA, 8, topics=[nested(name=name)], allow_auto_topic_creation=False,
                include_cluster_authorized_operations=False, include_topic_authorized_operations=False,
            )  # fmt: skip
        return kind != 0


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_no_byte_of_one_tenant_is_in_an_answer_to_another(run: object, tmp_path: Path) -> None:
    async def main() -> None:
        authority = Authority.create(tmp_path)
        certificate, key = authority.issue("node", "localhost", "127.0.0.1")
        plain, encrypted = free_ports(2)
        tables = [
            {"name": "plain", "listen": f"127.0.0.1:{plain}"},
            {
                "name": "encrypted", "protocol": "SSL", "listen": f"127.0.0.1:{encrypted}",
                "certificate": str(certificate), "key": str(key),
            },
        ]  # fmt: skip
        broker = await local_broker.start(tmp_path, MemoryFiles(), listen=None, listener=tables, http="off")
        context = ssl.create_default_context(cafile=authority.file)
        marks = [f"mark-of-{number}-{random.getrandbits(64):016x}".encode() for number in range(4)]
        tenants = []
        for number, mark in enumerate(marks):
            port, tls = ((plain, None), (encrypted, context))[number % 2]
            name = "localhost" if tls is not None else None
            opened = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name, limit=1 << 26)
            tenant = Tenant(*opened)
            tenant.mark, tenant.others = mark, tuple(each for each in marks if each != mark)
            tenants.append(tenant)
            await tenant.create(f"of-{number}")
        async with asyncio.TaskGroup() as tasks:
            seen = [tasks.create_task(converse(tenant, number)) for number, tenant in enumerate(tenants)]
        assert all(each.result() for each in seen), "each has seen its own"
        for tenant in tenants:
            tenant.close()
        await broker.stop()

    run(main())  # type: ignore[operator]


async def converse(tenant: Tenant, number: int) -> int:
    """Several requests under way at a time; how often the tenant's own mark came back."""
    chance, own = random.Random(number), 0
    tenant.send_batch(f"of-{number}", batch_of([tenant.mark]))
    await tenant.frame()
    for _ in range(ROUNDS):
        asked = [tenant.ask_for_something(chance, f"of-{number}") for _ in range(chance.randint(1, 5))]
        for has_mark in asked:
            own += (tenant.mark in await tenant.frame()) and has_mark
    return own
