"""Commands with a client file: they log in, and say in words why they cannot."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headwater.cli.brokers import Brokers, brokers_of, local_brokers
from headwater.cli.main import app
from tests.support.secured import PASSWORD, Secured, secured_broker


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_broker(tmp_path_factory.mktemp("secured"), authorization="off") as broker:
        yield broker


def run(*args: str, **env: str) -> Any:
    return CliRunner().invoke(app, args, env={"HEADWATER_BOOTSTRAP": None, "HEADWATER_CLIENT": "", **env})


def ok(*args: str, **env: str) -> str:
    result = run(*args, **env)
    assert result.exit_code == 0, result.output
    return str(result.stdout)


def refused(*args: str, **env: str) -> str:
    result = run(*args, **env)
    assert result.exit_code in (1, 2), result.output
    assert PASSWORD not in result.output
    return str(result.stderr)


def test_every_kind_of_command_logs_in_over_tls(secured: Secured, name: str) -> None:
    client = str(secured.client_file())
    ok("topic", "create", name, "--client", client)
    ok("produce", name, "hello", "--client", client)
    assert ok("consume", name, "--client", client, "--max", "1", HEADWATER_CLIENT="/absent") == "hello\n"
    in_environment = {"HEADWATER_CLIENT": client}
    assert name in ok("topic", "list", **in_environment)
    assert name in ok("topic", "describe", name, **in_environment)
    assert ok("consume", name, "--from", "0", "--max", "1", **in_environment) == "hello\n"
    ok("consume", name, "--group", name, "--max", "1", **in_environment)
    assert name in ok("group", "list", **in_environment)
    ok("subscription", "create", name, f"q-{name}", "--queue", "--from", "beginning", **in_environment)
    assert f"q-{name}" in ok("queue", "list", **in_environment)
    ok("transaction", "list", **in_environment)
    ok("topic", "create", f"{name}-target", **in_environment)
    ok("queue", "redrive", name, "--to", f"{name}-target", "--dry-run", **in_environment)
    assert secured.addresses["SASL_SSL"] in ok("cluster", "status", **in_environment)
    ok("pipeline", "list", **in_environment)


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SSL"])
def test_commands_log_in_by_the_other_protocols(secured: Secured, protocol: str) -> None:
    more = {}
    if protocol == "SSL":
        certificate, key = secured.authority.issue("alice", common_name="alice")
        more = {"ssl_certificate_location": str(certificate), "ssl_key_location": str(key)}
    client = secured.client_file(protocol, **more)
    ok("topic", "list", "--client", str(client))
    ok("transaction", "list", "--client", str(client))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"sasl_password": "wrong"},
            ("alice cannot log in by SCRAM-SHA-512 at", "invalid credentials", "are in ", ".properties"),
        ),
        (
            {"sasl_mechanism": "SCRAM-SHA-256"},
            ("alice cannot log in by SCRAM-SHA-256", "does not offer SCRAM-SHA-256; it offers 'SCRAM-SHA-512'"),
        ),
        ({"ssl_ca_location": ""}, ("certificate is not trusted", "ssl.ca.location")),
        ({"ssl_ca_location": "/absent.pem"}, ("The PEM files that", "No such file")),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("command", [("topic", "list"), ("transaction", "list")], ids=" ".join)
def test_a_login_that_fails_is_told_in_words(
    secured: Secured, command: tuple[str, ...], options: dict[str, str], words: tuple[str, ...]
) -> None:
    told = refused(*command, "--client", str(secured.client_file(**options)))
    assert all(each in told for each in words), told


def test_a_protocol_that_the_listener_does_not_have_is_told(secured: Secured) -> None:
    address = secured.addresses
    plain = "PLAINTEXT"
    assert "speaks TLS. Name a client file" in refused("topic", "list", "--bootstrap", address["SASL_SSL"])
    told = refused("topic", "list", "--bootstrap", address["SASL_PLAINTEXT"])
    assert "wants a login, by SCRAM-SHA-512 or SCRAM-SHA-256. Name a client file" in told
    login = str(secured.client_file("SASL_PLAINTEXT"))
    assert "The listener takes no login" in refused("topic", "list", "--client", login, "-b", secured.inside)
    tls = str(secured.client_file("SASL_SSL"))
    told = refused("topic", "list", "--client", tls, "--bootstrap", address["SASL_PLAINTEXT"])
    assert "No connection by SASL_SSL" in told and "perhaps it does not speak TLS there" in told
    no_certificate = str(secured.client_file("SSL"))
    assert "wants a certificate of the client" in refused("topic", "list", "--client", no_certificate)
    no_login = secured.client_file("SSL", bootstrap_servers=address["SASL_SSL"])
    told = refused("topic", "list", "--client", str(no_login))
    assert "wants a login, by SCRAM-SHA-512, and" in told and "has security.protocol=SSL" in told
    file = secured.client_file("SASL_PLAINTEXT", security_protocol=plain, sasl_mechanism="", sasl_username="")
    file.write_text(f"security.protocol={plain}\nbootstrap.servers={address['SASL_PLAINTEXT']}\n")
    assert "has security.protocol=PLAINTEXT" in refused("topic", "list", "--client", str(file))


def test_a_client_file_that_cannot_be_used_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    assert f"The client file {path} cannot be read: No such file" in refused("topic", "list", "--client", str(path))
    path.write_text("security.protocol=SSL\nssl.kestore.location=x\n")
    told = refused("topic", "list", "--client", str(path))
    assert f"The client file {path} cannot be used: line 2: ssl.kestore.location is not understood" in told
    path.write_bytes(b"client.id=\xff\n")
    assert "is not UTF-8" in refused("topic", "list", "--client", str(path))
    path.write_bytes(b"#" * 1_000_000)
    assert "has more than" in refused("topic", "list", "--client", str(path))


def test_a_password_that_others_may_read_is_refused(secured: Secured) -> None:
    path = secured.client_file()
    path.chmod(0o604)
    assert f"(mode 0604). Run: chmod 600 {path}" in refused("topic", "list", "--client", str(path))
    path.chmod(0o640)
    ok("topic", "list", "--client", str(path))


def test_the_default_file_is_read_unless_another_or_none_is_named(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADWATER_CLIENT", raising=False)
    monkeypatch.delenv("HEADWATER_BOOTSTRAP", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert brokers_of(None, None) == Brokers("127.0.0.1:9092")
    default = tmp_path / "headwater" / "client.properties"
    default.parent.mkdir()
    default.write_bytes(secured.client_file().read_bytes())
    default.chmod(0o600)
    found = brokers_of(None, None)
    assert found.security is not None and found.bootstrap == secured.addresses["SASL_SSL"]
    assert brokers_of(None, "") == Brokers("127.0.0.1:9092")
    assert local_brokers(None, None, "local:1") == Brokers("local:1")
    assert local_brokers(None, str(default), "local:1").security is not None
    monkeypatch.setenv("HEADWATER_CLIENT", "")
    assert brokers_of(None, None) == Brokers("127.0.0.1:9092")


def test_what_is_typed_wins_over_the_environment_and_that_over_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=file:1\nclient.id=me\n")
    monkeypatch.setenv("HEADWATER_BOOTSTRAP", "environment:1")
    assert brokers_of("typed:1", str(path)).bootstrap == "typed:1"
    assert brokers_of(None, str(path)).bootstrap == "file:1"
    assert brokers_of(None, str(path)).client_id == "me"
    monkeypatch.setenv("HEADWATER_CLIENT", str(path))
    assert brokers_of(None, None).bootstrap == "environment:1"
    monkeypatch.delenv("HEADWATER_BOOTSTRAP")
    assert brokers_of(None, None, "pipeline:1").bootstrap == "pipeline:1"
    assert brokers_of(None, None).bootstrap == "file:1"
