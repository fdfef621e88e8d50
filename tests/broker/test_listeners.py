"""A broker with several listeners: each client is sent to addresses of the listener that it came in by."""

import asyncio
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource

from headwater.broker.cluster.cluster_nodes import ClusterNodes
from headwater.metadata import keys
from headwater.model.cluster import Node, NodeListener
from headwater.testing import Broker
from headwater.transport.ports import free_ports
from tests.support.certificates import Authority


@dataclass(frozen=True, slots=True)
class Listening:
    broker: Broker
    inside: str
    clients: str
    ca: Path

    def plain(self) -> dict[str, str]:
        return {"bootstrap.servers": self.inside}

    def encrypted(self) -> dict[str, str]:
        return {"bootstrap.servers": self.clients, "security.protocol": "SSL", "ssl.ca.location": str(self.ca)}


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    authority = Authority.create(tmp_path_factory.mktemp("tls"))
    certificate, key = authority.issue("node", "localhost", "127.0.0.1")
    inside, clients = free_ports(2)
    tables = [
        {"name": "inside", "listen": f"127.0.0.1:{inside}"},
        {
            "name": "clients",
            "protocol": "SSL",
            "listen": f"127.0.0.1:{clients}",
            "advertise": f"localhost:{clients}",
            "certificate": str(certificate),
            "key": str(key),
        },
    ]
    with Broker(listener=tables) as broker:
        yield Listening(broker, f"127.0.0.1:{inside}", f"localhost:{clients}", authority.file)


def test_records_go_in_and_out_on_each_listener(listening: Listening) -> None:
    for config in (listening.plain(), listening.encrypted()):
        producer = Producer(config)
        producer.produce("parcels", value=config["bootstrap.servers"])
        assert producer.flush(60) == 0
    for config in (listening.plain(), listening.encrypted()):
        consumer = Consumer(
            {**config, "group.id": f"of {config['bootstrap.servers']}", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["parcels"])
        values: list[str] = []
        while len(values) < 2:
            message = consumer.poll(60)
            assert message is not None and message.error() is None
            values.append(message.value().decode())
        assert values == [listening.inside, listening.clients]
        consumer.close()


def test_clients_are_sent_to_addresses_of_their_listener(listening: Listening) -> None:
    for config in (listening.plain(), listening.encrypted()):
        admin = AdminClient(config)
        (node,) = admin.list_topics(timeout=60).brokers.values()
        assert f"{node.host}:{node.port}" == config["bootstrap.servers"]
        described = admin.describe_cluster().result(60)
        assert [f"{each.host}:{each.port}" for each in described.nodes] == [config["bootstrap.servers"]]


def test_the_settings_of_a_broker_name_its_listeners(listening: Listening) -> None:
    admin = AdminClient(listening.plain())
    (future,) = admin.describe_configs([ConfigResource("BROKER", "1")]).values()
    settings = {name: entry.value for name, entry in future.result(60).items()}
    assert settings["listeners"] == f"inside://{listening.inside},clients://127.0.0.1:{listening.clients[10:]}"
    assert settings["advertised.listeners"] == f"inside://{listening.inside},clients://{listening.clients}"
    assert settings["listener.security.protocol.map"] == "inside:PLAINTEXT,clients:SSL"


def test_a_certificate_is_renewed_while_clients_go_on(tmp_path: Path) -> None:
    """The broker looks at its files every few seconds."""
    authority = Authority.create(tmp_path)
    certificate, key = authority.issue("node", "localhost")
    files = {"certificate": str(certificate), "key": str(key)}
    table = {"name": "clients", "protocol": "SSL", "listen": "127.0.0.1:0", **files}
    with Broker(listener=[table], http="off") as broker:

        async def shown() -> bytes:
            context = ssl.create_default_context(cafile=authority.file)
            _, writer = await asyncio.open_connection(
                broker.host, broker.port, ssl=context, server_hostname="localhost"
            )
            der: bytes = writer.get_extra_info("ssl_object").getpeercert(True)
            writer.close()
            return der

        async def main() -> None:
            first = await shown()
            authority.issue("node", "localhost")
            async with asyncio.timeout(60):
                while await shown() == first:  # noqa: ASYNC110  another process's files
                    await asyncio.sleep(0.1)

        asyncio.run(main())


def test_a_certificate_that_cannot_be_used_stops_the_start_before_anything_is_made(tmp_path: Path) -> None:
    table = {"name": "clients", "protocol": "SSL", "listen": "127.0.0.1:0"}
    table |= {"certificate": str(tmp_path / "no.pem"), "key": str(tmp_path / "no.key")}
    data = tmp_path / "data"
    with pytest.raises(Exception, match=r"The key .*no\.key cannot be read"):
        Broker(listener=[table], http="off", data_dir=data).start()
    assert not (data / "metadata.db").exists()


def node(number: int, *listeners: NodeListener) -> Node:
    return Node(number, 1, f"node-{number}", 9092, f"node-{number}", 9192, listeners=listeners)


def test_a_node_without_the_listener_is_not_shown_to_its_clients() -> None:
    both = node(1, NodeListener("inside", "node-1", 9092), NodeListener("clients", "one.example.com", 9093))
    inside_only = node(2, NodeListener("inside", "node-2", 9092))
    of_before = node(3)
    cluster = ClusterNodes(both, {2: inside_only, 3: of_before})

    def listed(listener: str) -> list[tuple[int, str, int]]:
        return [(node.node_id, host, port) for node, host, port in cluster.listed(listener)]

    assert listed("inside") == [(1, "node-1", 9092), (2, "node-2", 9092)]
    assert listed("clients") == [(1, "one.example.com", 9093)]
    assert listed("PLAINTEXT") == [(3, "node-3", 9092)], "a node of a version that had one listener"


def test_the_listeners_of_a_node_are_part_of_its_record() -> None:
    written = node(1, NodeListener("inside", "node-1", 9092), NodeListener("clients", "one.example.com", 9093))
    assert keys.decode_node(keys.encode(written)) == written
    of_before = keys.encode(node(1)).replace(b',"listeners":[]', b"")
    assert b"listeners" not in of_before
    assert keys.decode_node(of_before) == node(1)
