"""`headwater security`: a secured broker in two commands."""

import json
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext

import httpx
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import verification
from typer.testing import CliRunner, Result

from headwater.broker.access.bootstrap_users import FILE_NAME
from headwater.cli.client_settings import ClientKind
from headwater.cli.output import CommandFailed
from headwater.cli.security.commands import app
from headwater.cli.security.secured_directory import CLIENT_FILES, client_file
from headwater.testing.processes.broker_process import BrokerProcess
from headwater.transport.ports import free_port
from tests.support.certificates import Authority

HEADWATER = [sys.executable, "-m", "headwater.cli.main"]


def headwater(*arguments: object, input: str | None = None) -> "subprocess.CompletedProcess[str]":
    command = [*HEADWATER, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, input=input)


def init(data: Path, *more: object) -> "subprocess.CompletedProcess[str]":
    listen = ("--listen", f"127.0.0.1:{free_port()}")
    return headwater("security", "init", "--data", data, "--host", "localhost", *listen, *more)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("secured") / "data"
    done = init(directory)
    assert done.returncode == 0, done.stderr
    assert f"headwater serve --config {directory / 'headwater.toml'}" in done.stdout
    return directory


@pytest.fixture(scope="module")
def log(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], str]]:
    """Of a broker that was started with the configuration as it was written, and HTTP on a free port."""
    config = tomllib.loads((data / "headwater.toml").read_text())
    given = {"http": f"127.0.0.1:{free_port()}", "metrics": "off", "durability": "os"}
    scratch = tmp_path_factory.mktemp("scratch")
    process = BrokerProcess({**config, **given}, scratch)
    process.start()
    try:
        yield lambda: BrokerProcess.log_in(scratch)
    finally:
        process.stop()


def password_in(data: Path) -> str:
    settings: dict[str, str] = json.loads(client_file(data, "admin", ClientKind.LIBRDKAFKA).read_text())
    return settings["sasl.password"]


def test_secrets_are_for_their_owner_and_the_password_is_in_client_files_alone(data: Path) -> None:
    secret_files = [
        *(client_file(data, "admin", kind) for kind in CLIENT_FILES),
        *(data / name for name in ("http-token", FILE_NAME, "tls/ca.key", "tls/node.key")),
    ]
    assert [path for path in secret_files if stat.S_IMODE(path.stat().st_mode) != 0o600] == []
    password = password_in(data)
    assert len(password) == 24
    holders = {path for path in data.rglob("*") if path.is_file() and password in path.read_text(errors="replace")}
    assert holders == {client_file(data, "admin", kind) for kind in CLIENT_FILES}


def test_a_directory_in_use_is_left_as_it_is(data: Path) -> None:
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    again = init(data)
    assert again.returncode == 1
    assert "is there already. Nothing was written." in again.stderr
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--host", "a b"), "is no name or address of a host"),
        (("--host", "*.example.com"), "clients cannot be told *.example.com"),
        (("--admin", "__own"), "are Headwater's own"),
        (("--listen", "127.0.0.1:0"), "a port is needed"),
        (("--listen", "here"), "HOST:PORT is needed"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_written(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = headwater("security", "init", "--data", tmp_path / "data", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert not (tmp_path / "data").exists()


def test_the_admin_logs_in_and_lets_others_in(data: Path, log: Callable[[], str]) -> None:
    login = client_file(data, "admin")
    assert headwater("topic", "create", "orders", "--client", login).returncode == 0
    made = headwater("user", "create", "alice", "--password-stdin", "--client", login, input="a long password\n")
    assert made.returncode == 0, made.stderr
    assert not (data / FILE_NAME).exists(), "the first users were taken in"
    alice = json.loads(client_file(data, "admin", ClientKind.LIBRDKAFKA).read_text())
    alice |= {"sasl.username": "alice", "sasl.password": "a long password"}
    assert AdminClient(alice).list_topics(timeout=60).topics == {}, "alice may do nothing yet"
    allowed = headwater("acl", "allow", "alice", "read", "topic", "orders", "--client", login)
    assert allowed.returncode == 0, allowed.stderr
    assert set(AdminClient(alice).list_topics(timeout=60).topics) == {"orders"}
    with pytest.raises(KafkaException):
        AdminClient({**alice, "security.protocol": "PLAINTEXT"}).list_topics(timeout=3)


def test_clients_of_http_need_the_token_and_act_as_the_gateway(data: Path, log: Callable[[], str]) -> None:
    address = next(line.split()[1] for line in log().splitlines() if line.split()[:1] == ["http"])
    token = (data / "http-token").read_text().strip()
    assert httpx.get(f"{address}/v1/topics").status_code == 401
    answer = httpx.get(f"{address}/v1/topics", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200, answer.text
    assert "http_acts_as_one_user principal=User:__gateway" in log()


def test_a_certificate_for_another_node_is_signed_by_the_same_authority(data: Path) -> None:
    done = headwater(
        "security", "node-certificate", "broker-2.example.com", "*.example.org", "192.0.2.2", "--data", data
    )
    assert done.returncode == 0, done.stderr
    authority = x509.load_pem_x509_certificate((data / "tls/ca.pem").read_bytes())
    certificate = x509.load_pem_x509_certificate((data / "tls/broker-2.example.com.pem").read_bytes())
    certificate.verify_directly_issued_by(authority)
    assert isinstance(certificate.public_key(), ec.EllipticCurvePublicKey)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["broker-2.example.com", "*.example.org", "localhost"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.2", "127.0.0.1", "::1"]


def test_certificates_are_renewed_for_the_same_hosts(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert init(data).returncode == 0
    before = (data / "tls/node.pem").read_bytes(), (data / "tls/node.key").read_bytes()
    assert headwater("security", "renew", "--data", data).returncode == 0
    after = (data / "tls/node.pem").read_bytes(), (data / "tls/node.key").read_bytes()
    assert before[0] != after[0] and before[1] != after[1]
    assert stat.S_IMODE((data / "tls/node.key").stat().st_mode) == 0o600
    assert names_in(before[0]) == names_in(after[0])
    SSLContext(PROTOCOL_TLS_SERVER).load_cert_chain(data / "tls/node.pem", data / "tls/node.key")


def names_in(certificate: bytes) -> x509.SubjectAlternativeName:
    return (
        x509.load_pem_x509_certificate(certificate)
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value
    )


def believes(authorities: bytes, certificate: bytes) -> bool:
    """Whether a client with these authorities takes the certificate for localhost."""
    store = verification.Store(x509.load_pem_x509_certificates(authorities))
    verifier = verification.PolicyBuilder().store(store).build_server_verifier(x509.DNSName("localhost"))
    try:
        verifier.verify(x509.load_pem_x509_certificate(certificate), [])
    except verification.VerificationError:
        return False
    return True


def test_an_authority_is_replaced_without_a_moment_when_certificates_are_refused(tmp_path: Path) -> None:
    data, run = tmp_path / "data", CliRunner()
    assert init(data).returncode == 0
    authorities, node = data / "tls/ca.pem", data / "tls/node.pem"

    def security(*arguments: str) -> Result:
        return run.invoke(app, [*arguments, "--data", str(data)])

    first = authorities.read_bytes(), node.read_bytes()
    done = security("rotate-ca")
    assert done.exit_code == 0 and "has both authorities now" in done.stdout
    both = authorities.read_bytes()
    assert believes(both, first[1]), "clients that were told believe certificates of before"
    refused = security("rotate-ca", "--finish")
    assert isinstance(refused.exception, CommandFailed) and "node.pem: still of the authority" in str(refused.exception)
    assert security("renew").exit_code == 0
    assert believes(both, node.read_bytes()) and not believes(first[0], node.read_bytes())
    assert security("rotate-ca", "--finish").exit_code == 0
    assert believes(authorities.read_bytes(), node.read_bytes()) and not believes(authorities.read_bytes(), first[1])


def test_a_check_finds_nothing_in_what_init_wrote(data: Path, log: Callable[[], str]) -> None:
    done = headwater("security", "check", "--config", data / "headwater.toml")
    assert (done.returncode, done.stdout) == (
        0,
        "Nothing was found that is open, expires soon, or can be read by others.\n",
    )


def test_a_check_finds_what_is_open_expires_and_can_be_read(tmp_path: Path) -> None:
    soon = datetime.now(UTC) + timedelta(days=10, hours=1)
    certificate, key = Authority.create(tmp_path).issue("node", "localhost", not_after=soon)
    token = tmp_path / "token"
    token.write_text("a token")
    token.chmod(0o644)
    tables = "\n".join(
        f'[[listener]]\nname = "{name}"\nprotocol = "{protocol}"\nlisten = "0.0.0.0:{port}"{files}'
        for name, protocol, port, files in (
            ("open", "PLAINTEXT", 9092, ""),
            ("clients", "SASL_SSL", 9093, f'\ncertificate = "{certificate}"\nkey = "{key}"'),
        )
    )
    config = tmp_path / "broker.toml"
    config.write_text(
        f'data_dir = "{tmp_path}"\nhttp_token_file = "{token}"\n[security]\nauthorization = "observe"\n{tables}'
    )
    done = headwater("security", "check", "--config", config, "--json")
    assert done.returncode == 1
    findings = {each["what"]: each["finding"] for each in json.loads(done.stdout)}
    assert "asks no client who it is" in findings["listeners"]
    assert findings["authorization"] == "what bindings refuse is only logged"
    assert findings["listener clients"] == "the certificate expires in 10 days"
    assert findings[str(token)] == "others on this machine may read it"
