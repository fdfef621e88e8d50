"""Brokers with TLS and logins to measure: Headwater and Apache Kafka with the same listener, certificate and users.

Each has a second listener, PLAINTEXT on loopback, over which the bench makes users and bindings, and which tells that
the broker has started. Certificates are made for a run and removed with it."""

import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path

import trustme
from bench import kafka
from bench.headwater import headwater_program
from bench.process import BrokerProcess, MeasuredServer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from headwater.transport.ports import free_port, free_ports

USER = "bench"
MECHANISM = "SCRAM-SHA-512"
ITERATIONS = 8192
ACLS, ACL_USERS = 10_000, 100
ACLS_AT_ONCE = 500
ADMIN_TIMEOUT_S = 120.0

HEADWATER = """\
authorization = "{authorization}"
{more}

[[listener]]
name = "inside"
listen = "{inside}"

[[listener]]
name = "clients"
protocol = "SASL_SSL"
listen = "{clients}"
certificate = "{certificate}"
key = "{key}"
mechanisms = {mechanisms}
"""
PLAIN_LISTENER = """
[[listener]]
name = "plain"
protocol = "SASL_PLAINTEXT"
listen = "{plain}"
mechanisms = {mechanisms}
"""

KAFKA = """\
listeners=PLAINTEXT://127.0.0.1:{{port}},CONTROLLER://127.0.0.1:{{controller_port}},CLIENTS://{clients}
advertised.listeners=PLAINTEXT://127.0.0.1:{{port}},CLIENTS://{clients}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL
listener.name.clients.ssl.keystore.type=PEM
listener.name.clients.ssl.keystore.location={store}
listener.name.clients.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.clients.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
"""


class Credentials:
    """The files of a certificate for this machine, and the password of the user."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
        issued = authority.issue_cert("localhost", "127.0.0.1", key_type=trustme.KeyType.ECDSA)
        self.password = secrets.token_urlsafe(18)
        self.ca, self.certificate, self.key = (folder / name for name in ("ca.pem", "node.pem", "node.key"))
        self.store = folder / "store.pem"
        """Key and certificate in one file, as Kafka has it: of the forms of keys it reads PKCS#8 alone."""
        authority.cert_pem.write_to_path(self.ca)
        issued.cert_chain_pems[0].write_to_path(self.certificate)
        self.key.touch(0o600)
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        self.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        self.store.write_bytes(self.key.read_bytes() + self.certificate.read_bytes())

    def settings(self) -> Mapping[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": USER,
            "sasl.password": self.password,
            "ssl.ca.location": str(self.ca),
        }


class SecuredServer(MeasuredServer):
    def __init__(self, name: str, process: BrokerProcess, folder: Path, clients: str, credentials: Credentials) -> None:
        super().__init__(name, process, folder)
        self.inside = process.bootstrap
        """The address that asks nobody who they are."""
        self.bootstrap = clients
        self.credentials = credentials
        self.settings = credentials.settings()

    def start(self) -> None:
        super().start()
        try:
            make_user(self.inside, USER, self.credentials.password)
        except BaseException:
            self.stop()
            raise


class SecuredHeadwater(SecuredServer):
    def __init__(
        self,
        *,
        authorization: str = "off",
        mechanisms: tuple[str, ...] = (MECHANISM,),
        has_plain: bool = False,
        log_level: str = "warning",
        **settings: int,
    ) -> None:
        """With `has_plain` there is a third listener, SASL_PLAINTEXT. `settings` are the broker's own."""
        folder = Path(tempfile.mkdtemp(prefix="headwater-bench-"))
        credentials = Credentials(folder)
        inside, clients, self.plain = (f"127.0.0.1:{port}" for port in free_ports(3))
        given: dict[str, object] = dict(settings)
        if authorization == "on":  # the inside listener makes bindings, which is refused without saying so
            given |= {"super_users": ["User:ANONYMOUS"], "insecure": "true"}
        config = folder / "headwater.toml"
        config.write_text(
            (HEADWATER + (PLAIN_LISTENER if has_plain else "")).format(
                authorization=authorization,
                more="\n".join(f"{name} = {value}" for name, value in given.items()),
                inside=inside,
                clients=clients,
                plain=self.plain,
                certificate=credentials.certificate,
                key=credentials.key,
                mechanisms=list(mechanisms),
            )
        )
        command = [headwater_program(), "serve", "--config", str(config), "--data", str(folder / "data")]
        command += ["--durability", "os", "--metrics", "off", "--http", "off", "--log-level", log_level]
        process = BrokerProcess(command, inside, folder / "output.log")
        super().__init__("headwater SASL_SSL", process, folder, clients, credentials)
        self._authorizes = authorization == "on"

    def start(self) -> None:
        super().start()
        if self._authorizes:
            try:
                make_acls(self.inside)
            except BaseException:
                self.stop()
                raise


class SecuredKafka(SecuredServer):
    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="kafka-"))
        credentials = Credentials(folder)
        clients = f"127.0.0.1:{free_port()}"
        process = kafka.new_nodes(folder, [1], KAFKA.format(clients=clients, store=credentials.store))[1]
        super().__init__("kafka SASL_SSL", process, folder, clients, credentials)


def make_user(bootstrap: str, user: str, password: str) -> None:
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
    upsertion = UserScramCredentialUpsertion(user, credential, password.encode())
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.alter_user_scram_credentials([upsertion])
    made[user].result(ADMIN_TIMEOUT_S)


def make_acls(bootstrap: str) -> None:
    """Of many users, each of whom may do something on topics of its own; the one that is measured may do all that the
    load does, by prefixes."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    bindings = [
        _allow(USER, operation, start)
        for start in ("throughput-", "latency", "warm", "connected")
        for operation in (AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE)
    ]
    bindings.append(
        AclBinding(
            ResourceType.GROUP, "load", ResourcePatternType.LITERAL, f"User:{USER}", "*", AclOperation.READ,
            AclPermissionType.ALLOW,
        )
    )  # fmt: skip
    number = 0
    while len(bindings) < ACLS:
        of_user = number % (ACL_USERS - 1)
        operation = AclOperation.WRITE if number % 2 else AclOperation.READ
        bindings.append(_allow(f"user-{of_user}", operation, f"topic-{of_user}-{number}", is_prefix=number % 10 == 0))
        number += 1
    for at in range(0, len(bindings), ACLS_AT_ONCE):
        for made in admin.create_acls(bindings[at : at + ACLS_AT_ONCE], request_timeout=ADMIN_TIMEOUT_S).values():
            made.result(ADMIN_TIMEOUT_S)


def _allow(user: str, operation: AclOperation, topic: str, *, is_prefix: bool = True) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if is_prefix else ResourcePatternType.LITERAL
    return AclBinding(ResourceType.TOPIC, topic, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
