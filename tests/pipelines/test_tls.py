"""The client over TLS: a proxy in front of a broker takes the part of a TLS listener."""

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from headwater.pipelines.client import cluster_client
from headwater.pipelines.client.cluster_client import ClusterClient
from headwater.pipelines.client.config import client_config
from headwater.pipelines.errors import BrokerUnreachable, InvalidOption
from headwater.testing import Broker

PUMP_BYTES = 65_536


@dataclass(frozen=True)
class TlsBroker:
    bootstrap: str
    authority: Path
    client_pem: Path


@pytest.fixture(scope="module")
def tls_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    """A broker that is reached with a client certificate only."""
    if shutil.which("openssl") is None:
        pytest.skip("certificates are made with openssl, which is not installed")
    folder = tmp_path_factory.mktemp("tls")
    server, client = _certificate(folder, "server"), _certificate(folder, "client")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server)
    context.load_verify_locations(client)
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with Broker(advertise=address) as broker:
            threading.Thread(target=_accept, args=(listener, context, broker), daemon=True).start()
            yield TlsBroker(address, server, client)
            listener.shutdown(socket.SHUT_RDWR)


def _certificate(folder: Path, name: str) -> Path:
    """A key and a certificate that it signed itself, for this machine, in one PEM file."""
    pem = folder / f"{name}.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    command += ["-keyout", str(pem), "-out", str(folder / f"{name}.crt")]
    subprocess.run(command, check=True, capture_output=True)
    pem.write_text(pem.read_text() + (folder / f"{name}.crt").read_text())
    return pem


def _accept(listener: socket.socket, context: ssl.SSLContext, broker: Broker) -> None:
    while True:
        try:
            plain, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_serve, args=(plain, context, broker), daemon=True).start()


def _serve(plain: socket.socket, context: ssl.SSLContext, broker: Broker) -> None:
    """One request at a time is all that the client sends on a connection, so the two directions take turns."""
    with suppress(OSError), plain, context.wrap_socket(plain, server_side=True) as outside:
        inside = socket.create_connection((broker.host, broker.port))
        threading.Thread(target=_pump, args=(inside, outside), daemon=True).start()
        with inside:
            _pump(outside, inside)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(PUMP_BYTES):
            target.sendall(data)


@pytest.fixture(autouse=True)
def one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_client, "FIRST_CONTACT_MS", 0)


def reach(broker: TlsBroker, **more: str) -> None:
    options = {name.replace("_", "."): value for name, value in more.items()}
    given = {"bootstrap.servers": broker.bootstrap, "default.api.timeout.ms": "0", "request.timeout.ms": "3000"}
    cluster = ClusterClient(client_config({**given, **options}))
    cluster.reach()
    assert cluster.topics() == {}
    cluster.close()


def test_a_broker_is_reached_with_the_names_of_both_clients(tls_broker: TlsBroker) -> None:
    authority, client = str(tls_broker.authority), str(tls_broker.client_pem)
    reach(
        tls_broker,
        security_protocol="SSL",
        ssl_ca_location=authority,
        ssl_certificate_location=client,
        ssl_key_location=client,
    )
    reach(
        tls_broker,
        security_protocol="ssl",
        ssl_truststore_location=authority,
        ssl_truststore_type="PEM",
        ssl_keystore_location=client,
        ssl_keystore_type="PEM",
    )


def test_a_broker_that_nobody_vouches_for_is_not_trusted(tls_broker: TlsBroker) -> None:
    with pytest.raises(BrokerUnreachable, match="its certificate is not trusted"):
        reach(tls_broker, security_protocol="SSL", ssl_ca_location=str(tls_broker.client_pem))


def test_a_client_without_tls_is_told_what_may_be_wrong(tls_broker: TlsBroker) -> None:
    with pytest.raises(BrokerUnreachable, match=r"needs TLS|closed the connection|reset"):
        reach(tls_broker)


def test_files_that_are_no_pem_are_named(tls_broker: TlsBroker, tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    with pytest.raises(InvalidOption, match=r"nonsense\.pem"):
        reach(tls_broker, security_protocol="SSL", ssl_ca_location=str(nonsense))
