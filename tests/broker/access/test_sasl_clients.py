"""Clients that others wrote log in: by every mechanism that they and the broker have."""

import asyncio
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.errors
import kafka
import kafka.errors
import pytest
from aiokafka.helpers import create_ssl_context
from bench import maven
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from headwater.testing import Broker
from headwater.transport.ports import free_ports
from tests.support.certificates import Authority
from tests.support.effort import only_long
from tests.support.eventually import eventually, gathered

PASSWORD = "correct horse, battery=staple é"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
SHORT_SESSION_MS = 2_000
RECORDS_OVER_SESSIONS = 450
"""One every 10 ms at the most: they last for more than two sessions."""


@dataclass(frozen=True, slots=True)
class Secured:
    inside: str
    addresses: dict[str, str]
    """By protocol."""
    short: str
    """SASL_PLAINTEXT, with sessions that end soon."""
    ca: Path

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.inside})

    def librdkafka(self, protocol: str, mechanism: str, user: str, password: str = PASSWORD) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.addresses[protocol],
            "security.protocol": protocol,
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": str(self.ca),
            "log_level": 0,
        }

    def python(self, protocol: str, mechanism: str, user: str, password: str = PASSWORD) -> dict[str, Any]:
        """For kafka-python and aiokafka."""
        return {
            "bootstrap_servers": self.addresses[protocol],
            "security_protocol": protocol,
            "sasl_mechanism": mechanism,
            "sasl_plain_username": user,
            "sasl_plain_password": password,
            "ssl_context": create_ssl_context(cafile=str(self.ca)),
        }


def give(secured: Secured, user: str, password: str = PASSWORD, *mechanisms: str) -> None:
    """A credential for each mechanism; all, if none is given."""
    for mechanism in mechanisms or SCRAM:
        upsertion = UserScramCredentialUpsertion(
            user, ScramCredentialInfo(SCRAM[mechanism], 4096), password.encode(), b"salt"
        )
        alter(secured, upsertion)


def take_away(secured: Secured, user: str) -> None:
    for mechanism in SCRAM.values():
        alter(secured, UserScramCredentialDeletion(user, mechanism))


def alter(secured: Secured, alteration: UserScramCredentialUpsertion | UserScramCredentialDeletion) -> None:
    admin = secured.admin()
    (done,) = admin.alter_user_scram_credentials([alteration]).values()
    done.result(60)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    authority = Authority.create(tmp_path_factory.mktemp("tls"))
    certificate, key = authority.issue("node", "localhost", "127.0.0.1")
    inside, plain, encrypted, short = (f"127.0.0.1:{port}" for port in free_ports(4))
    files = {"certificate": str(certificate), "key": str(key)}
    tables: list[dict[str, Any]] = [
        {"name": "inside", "listen": inside},
        {"name": "plain", "protocol": "SASL_PLAINTEXT", "listen": plain, "mechanisms": list(MECHANISMS)},
        {"name": "encrypted", "protocol": "SASL_SSL", "listen": encrypted, "mechanisms": list(MECHANISMS), **files},
        {"name": "short", "protocol": "SASL_PLAINTEXT", "listen": short, "reauth_ms": SHORT_SESSION_MS},
    ]
    with Broker(listener=tables, authorization="off"):
        secured = Secured(inside, dict(zip(PROTOCOLS, (plain, encrypted), strict=True)), short, authority.file)
        give(secured, "alice")
        yield secured


def ask_librdkafka(config: dict[str, Any]) -> None:
    """Raises PermissionError if the login is refused."""
    failures: list[KafkaError] = []
    admin = AdminClient({**config, "error_cb": failures.append})

    def has_answer() -> bool:
        with suppress(KafkaException):
            return admin.list_topics(timeout=0.5) is not None
        admin.poll(0)
        refused = [failure for failure in failures if failure.code() == KafkaError._AUTHENTICATION]
        if refused:
            raise PermissionError(refused[0].str())
        return False

    eventually(has_answer, "the broker answers")


def ask_kafka_python(config: dict[str, Any]) -> None:
    client = kafka.KafkaAdminClient(**config)
    try:
        client.list_topics()
    finally:
        client.close()


def ask_aiokafka(config: dict[str, Any]) -> None:
    async def main() -> None:
        client = aiokafka.AIOKafkaProducer(**config)
        try:
            await client.start()
        finally:
            await client.stop()

    asyncio.run(main())


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_user_logs_in_with_each_client(secured: Secured, protocol: str, mechanism: str) -> None:
    ask_librdkafka(secured.librdkafka(protocol, mechanism, "alice"))
    ask_kafka_python(secured.python(protocol, mechanism, "alice"))
    ask_aiokafka(secured.python(protocol, mechanism, "alice"))


def test_records_go_in_and_out_after_a_login(secured: Secured) -> None:
    config = secured.librdkafka("SASL_SSL", "SCRAM-SHA-512", "alice")
    producer = Producer(config)
    for number in range(1_000):
        producer.produce("behind-a-login", value=str(number))
    assert producer.flush(60) == 0
    consumer = Consumer({**config, "group.id": "reading", "auto.offset.reset": "earliest"})
    consumer.subscribe(["behind-a-login"])
    seen: list[int] = []
    while len(seen) < 1_000:
        for message in consumer.consume(1_000, 60):
            assert message.error() is None
            seen.append(int(message.value()))
    assert seen == list(range(1_000))
    consumer.close()


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat_logs_in(secured: Secured) -> None:
    give(secured, "erin", "without-a-comma")
    config = secured.librdkafka("SASL_SSL", "SCRAM-SHA-256", "erin", "without-a-comma")
    del config["bootstrap.servers"], config["log_level"]
    options = [word for name, value in config.items() for word in ("-X", f"{name}={value}")]
    listed = subprocess.run(
        ["kcat", "-L", "-b", secured.addresses["SASL_SSL"], *options], capture_output=True, text=True, timeout=120
    )
    assert listed.returncode == 0, listed.stderr
    assert secured.addresses["SASL_SSL"] in listed.stdout


@pytest.mark.parametrize("mechanism", MECHANISMS[1:])
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nemo", PASSWORD)])
def test_a_login_that_is_wrong_is_refused_in_the_same_words(
    secured: Secured, mechanism: str, user: str, password: str
) -> None:
    words = f"invalid credentials with SASL mechanism {mechanism}"
    with pytest.raises(PermissionError, match=words):
        ask_librdkafka(secured.librdkafka("SASL_PLAINTEXT", mechanism, user, password))
    with pytest.raises(kafka.errors.KafkaError):
        ask_kafka_python(secured.python("SASL_PLAINTEXT", mechanism, user, password) | {"bootstrap_timeout_ms": 1_000})
    with pytest.raises(aiokafka.errors.KafkaError):
        ask_aiokafka(secured.python("SASL_PLAINTEXT", mechanism, user, password))


def test_a_mechanism_that_is_not_offered_is_refused_with_those_that_are(secured: Secured) -> None:
    config = secured.librdkafka("SASL_PLAINTEXT", "PLAIN", "alice") | {"bootstrap.servers": secured.short}
    with pytest.raises(PermissionError, match=r"SCRAM-SHA-512, ?SCRAM-SHA-256"):
        ask_librdkafka(config)


def test_a_client_without_a_login_gets_nothing(secured: Secured) -> None:
    admin = AdminClient({"bootstrap.servers": secured.addresses["SASL_PLAINTEXT"], "log_level": 0})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)


def test_users_are_described_without_what_they_log_in_with(secured: Secured) -> None:
    give(secured, "bob", "a password", "SCRAM-SHA-256")
    admin = secured.admin()
    described = admin.describe_user_scram_credentials(["bob"])["bob"].result(60)
    assert [(each.mechanism, each.iterations) for each in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 4096)
    ]
    everyone = admin.describe_user_scram_credentials().result(60)
    assert {"alice", "bob"} <= everyone.keys()
    with pytest.raises(KafkaException) as refused:
        admin.describe_user_scram_credentials(["nemo"])["nemo"].result(60)
    assert refused.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND


def test_a_user_who_is_removed_is_cut_off_at_once(secured: Secured) -> None:
    give(secured, "carol")
    producer = Producer(secured.librdkafka("SASL_PLAINTEXT", "SCRAM-SHA-256", "carol"))
    producer.produce("of-carol", value="one")
    assert producer.flush(60) == 0
    take_away(secured, "carol")
    producer.produce("of-carol", value="two")
    assert producer.flush(3) == 1, "the connection was closed, and no login succeeds"
    producer.purge()
    producer.flush(60)


def test_a_new_password_takes_the_place_of_the_old_one(secured: Secured) -> None:
    give(secured, "dave", "first")
    ask_librdkafka(secured.librdkafka("SASL_PLAINTEXT", "PLAIN", "dave", "first"))
    give(secured, "dave", "second")
    ask_librdkafka(secured.librdkafka("SASL_PLAINTEXT", "PLAIN", "dave", "second"))
    with pytest.raises(PermissionError):
        ask_librdkafka(secured.librdkafka("SASL_PLAINTEXT", "PLAIN", "dave", "first"))


def test_a_client_logs_in_again_before_its_session_ends_and_loses_nothing(secured: Secured) -> None:
    config = secured.librdkafka("SASL_PLAINTEXT", "SCRAM-SHA-256", "alice") | {"bootstrap.servers": secured.short}
    failures: list[KafkaError] = []
    delivered: list[int] = []
    producer = Producer({**config, "error_cb": failures.append, "linger.ms": 5})

    def on_delivery(number: int) -> Callable[[Any, Any], None]:
        return lambda error, message: delivered.append(number) if error is None else None

    for number in range(RECORDS_OVER_SESSIONS):
        producer.produce("over-several-sessions", value=str(number), on_delivery=on_delivery(number))
        producer.poll(0.01)
    assert producer.flush(60) == 0
    assert delivered == list(range(RECORDS_OVER_SESSIONS)), "in order, each once"
    assert failures == []


def test_consumers_and_producers_log_in_again_under_load_and_lose_nothing(secured: Secured) -> None:
    """With librdkafka and kafka-python: nothing is lost or doubled, and no error reaches the program."""
    topic, config = "read-over-several-sessions", secured.librdkafka("SASL_PLAINTEXT", "SCRAM-SHA-512", "alice")
    config["bootstrap.servers"] = secured.short
    python = secured.python("SASL_PLAINTEXT", "SCRAM-SHA-512", "alice") | {"bootstrap_servers": secured.short}
    failures: list[object] = []
    by_python = kafka.KafkaProducer(**python, acks="all")
    by_librdkafka = Producer({**config, "error_cb": failures.append})
    consumer = Consumer(
        {**config, "error_cb": failures.append, "group.id": "over-sessions", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    futures, seen = [], list[str]()
    for number in range(RECORDS_OVER_SESSIONS):
        by_librdkafka.produce(topic, value=f"c{number}")
        futures.append(by_python.send(topic, f"p{number}".encode()))
        by_librdkafka.poll(0)
        seen += values_of(consumer, 0.01)
    by_python.flush(60)
    assert by_librdkafka.flush(60) == 0
    assert all(future.succeeded() for future in futures)
    while len(seen) < 2 * RECORDS_OVER_SESSIONS:
        seen += values_of(consumer, 60)
    consumer.close()
    by_python.close()
    for kind in "cp":
        assert [each for each in seen if each[0] == kind] == [
            f"{kind}{number}" for number in range(RECORDS_OVER_SESSIONS)
        ]
    assert failures == []


def values_of(consumer: Consumer, patience_s: float) -> list[str]:
    messages = consumer.consume(1_000, patience_s)
    assert [message.error() for message in messages if message.error() is not None] == []
    return [message.value().decode() for message in messages]


@only_long
def test_kafkas_own_client_logs_in_again_under_load_and_loses_nothing(secured: Secured, tmp_path: Path) -> None:
    """Java's client, and a JVM of its own."""
    try:
        jars = maven.class_path("tools", maven.KAFKA_TOOLS)
    except maven.JarsUnavailable as reason:
        pytest.skip(f"Kafka's tools are not here: {reason}")
    records, properties = 1_500, tmp_path / "client.properties"
    give(secured, "java", "secret")
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    properties.write_text(
        f"bootstrap.servers={secured.short}\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nacks=all\n"
        f'sasl.jaas.config={module} required username="java" password="secret";\n'
    )
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", jars, "org.apache.kafka.tools.ProducerPerformance"]
    command += ["--topic", "of-java", "--num-records", str(records), "--record-size", "100", "--throughput", "200"]
    command += ["--command-config", str(properties)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{records} records sent" in done.stdout, done.stdout
    consumer = Consumer({"bootstrap.servers": secured.inside, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["of-java"])
    assert len(gathered(lambda: values_of(consumer, 1), records)) == records
    consumer.close()
