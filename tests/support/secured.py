"""A broker that asks who is there: listeners with and without TLS and logins, and client files for them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from headwater.client.properties import property_line
from headwater.testing import Broker
from headwater.transport.ports import free_ports
from tests.support.certificates import Authority

PASSWORD = "correct horse, battery=staple é"
"""Of the user alice."""


@dataclass(frozen=True, slots=True)
class Secured:
    inside: str
    """PLAINTEXT."""
    addresses: dict[str, str]
    """Of the others, by protocol."""
    authority: Authority
    directory: Path

    def client_file(self, protocol: str = "SASL_SSL", **options: str) -> Path:
        """For alice; underscores in the names of options are dots, and an empty value leaves an option out."""
        login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice", "sasl.password": PASSWORD}
        tls = {"ssl.ca.location": str(self.authority.file)}
        given = {
            "bootstrap.servers": self.addresses[protocol],
            "security.protocol": protocol,
            **(login if protocol.startswith("SASL") else {}),
            **(tls if protocol.endswith("SSL") else {}),
            **{name.replace("_", "."): value for name, value in options.items()},
        }
        lines = [property_line(name, value) for name, value in given.items() if value]
        path = self.directory / f"client-{abs(hash(tuple(lines)))}.properties"
        path.touch(0o600)
        path.write_text("\n".join(lines) + "\n")
        return path


@contextmanager
def secured_broker(directory: Path, **config: Any) -> Iterator[Secured]:
    """With the user alice, who has both mechanisms of SCRAM."""
    authority = Authority.create(directory)
    certificate, key = authority.issue("node", "localhost", "127.0.0.1")
    files = {"certificate": str(certificate), "key": str(key)}
    inside, plain, encrypted, mutual = (f"127.0.0.1:{port}" for port in free_ports(4))
    tables: list[dict[str, Any]] = [
        {"name": "inside", "listen": inside},
        {"name": "plain", "protocol": "SASL_PLAINTEXT", "listen": plain},
        {"name": "encrypted", "protocol": "SASL_SSL", "listen": encrypted, "mechanisms": ["SCRAM-SHA-512"], **files},
        {
            "name": "mutual",
            "protocol": "SSL",
            "listen": mutual,
            "client_certificates": "require",
            "client_ca": str(authority.file),
            **files,
        },
    ]
    with Broker(listener=tables, **config):
        secured = Secured(inside, {"SASL_PLAINTEXT": plain, "SASL_SSL": encrypted, "SSL": mutual}, authority, directory)
        admin = AdminClient({"bootstrap.servers": inside})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            credential = ScramCredentialInfo(mechanism, 4096)
            made = admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion("alice", credential, PASSWORD.encode())]
            )
            made["alice"].result(60)
        yield secured
