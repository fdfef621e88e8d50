"""Java's KafkaAvroSerializer and KafkaAvroDeserializer against the registry.

Confluent publishes them in a repository of its own; Apache Pinot carries them, unchanged, in a jar of Maven Central."""

import fcntl
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from headwater.gateway.server import GatewayThread
from headwater.testing import Broker

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).parent / "java" / "RegistryRoundTrip.java"
JARS = Path(__file__).resolve().parents[3] / ".cache" / "maven" / "confluent-serializer"
ARTIFACT = "org.apache.pinot:pinot-confluent-avro:1.5.0:jar:shaded"
ORDER = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": null}]}"""


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    JARS.mkdir(parents=True, exist_ok=True)
    with open(JARS / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test workers ask at the same time
        if not list(JARS.glob("*.jar")):
            command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={JARS}"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode != 0:
                pytest.skip(f"{ARTIFACT} cannot be had: {done.stdout[-500:]}")
    classes = tmp_path_factory.mktemp("classes")
    command = ["javac", "-cp", f"{JARS}/*", "-d", str(classes), str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return f"{classes}:{JARS}/*"


@pytest.mark.parametrize("path", ["", "/contexts/.java"])
def test_java_and_python_read_what_the_other_wrote(
    class_path: str, gateway: GatewayThread, headwater_session: Broker, topic: str, path: str
) -> None:
    url, bootstrap = f"http://{gateway.host}:{gateway.port}{path}", headwater_session.bootstrap
    where = SerializationContext(topic, MessageField.VALUE)
    with SchemaRegistryClient({"url": url}) as registry:
        producer = Producer({"bootstrap.servers": bootstrap})
        value = AvroSerializer(registry, ORDER)({"id": 7, "note": "from Python"}, where)
        producer.produce(topic, value, partition=0)
        assert producer.flush(60) == 0
        command = [
            "java",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Xmx256m",
            "-cp",
            class_path,
            "RegistryRoundTrip",
        ]
        done = subprocess.run(
            [*command, bootstrap, url, topic, ORDER], capture_output=True, text=True, timeout=180, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        expected = [{"id": 7, "note": "from Python"}, {"id": 8, "note": "from Java"}]
        assert [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")] == expected
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        try:
            read = [consumer.poll(30) for _ in range(2)]
            assert [AvroDeserializer(registry)(message.value(), where) for message in read] == expected
        finally:
            consumer.close()
        assert registry.get_versions(f"{topic}-value") == [1], "both registered the same schema"
