"""`headwater user`, against a broker that asks who is there. The settings that it prints let their clients in."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import kafka
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka.admin import AdminClient

from headwater.cli.client_settings import ClientKind
from headwater.client.client_file import read_client_file
from headwater.security.passwords import PASSWORD_CHARS
from tests.support.secured import Secured, secured_broker

PASSWORD = 'a "b" \\c\'; é = # !'
"""With what each form of settings has to escape."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    trusted = ["User:alice", "User:ANONYMOUS"]
    config = {"authorization": "on", "super_users": trusted, "insecure": True}
    with secured_broker(tmp_path_factory.mktemp("secured"), **config) as broker:
        yield broker


@pytest.fixture
def admin(cli_at: Callable[[str], Any], secured: Secured, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Commands of alice, over TLS."""
    monkeypatch.setenv("HEADWATER_CLIENT", str(secured.client_file()))
    return cli_at(secured.addresses["SASL_SSL"])


@pytest.fixture
def password_file(tmp_path: Path) -> str:
    path = tmp_path / "password"
    path.touch(0o600)
    path.write_text(f"{PASSWORD}\n")
    return str(path)


def file_of(secured: Secured, user: str, password: str, protocol: str = "SASL_SSL", **more: str) -> str:
    return str(secured.client_file(protocol, sasl_username=user, sasl_password=password, **more))


def test_a_made_password_is_shown_once_and_lets_in_by_both_mechanisms(admin: Any, secured: Secured, name: str) -> None:
    result = admin("user", "create", name)
    assert result.exit_code == 0 and "shown only now" in result.stderr
    password = result.stdout.strip()
    assert len(password) == PASSWORD_CHARS and password not in result.stderr
    for mechanism in ("SCRAM-SHA-512", "SCRAM-SHA-256"):
        plain = file_of(secured, name, password, "SASL_PLAINTEXT", sasl_mechanism=mechanism)
        admin.ok("topic", "list", "--client", plain)
    assert admin.json("user", "list")[-1].keys() == {"name", "iterations"}
    described = admin.json("user", "describe", name)
    assert described["iterations"] == {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192} and described["bindings"] == []
    assert "SCRAM-SHA-512 (8192 iterations)" in admin.ok("user", "describe", name)
    assert name in admin.ok("user", "list")
    again = admin("user", "create", name)
    assert again.exit_code == 1 and f"`headwater user password {name}`" in again.stderr


def test_a_given_password_is_not_shown_and_another_takes_its_place(
    admin: Any, secured: Secured, name: str, password_file: str
) -> None:
    created = admin("user", "create", name, "--password-file", password_file)
    assert created.exit_code == 0 and PASSWORD not in created.output
    admin.ok("topic", "list", "--client", file_of(secured, name, PASSWORD))
    changed = admin("user", "password", name, "--password-stdin", input="another\n")
    assert changed.exit_code == 0 and "another" not in changed.stdout
    admin.ok("topic", "list", "--client", file_of(secured, name, "another"))
    assert "cannot log in" in admin("topic", "list", "--client", file_of(secured, name, PASSWORD)).stderr
    made = admin.json("user", "password", name)["password"]
    admin.ok("topic", "list", "--client", file_of(secured, name, made))


def test_a_deleted_user_cannot_log_in_and_leaves_no_bindings(admin: Any, secured: Secured, name: str) -> None:
    password = admin.ok("user", "create", name).strip()
    admin.ok("acl", "allow", name, "read", "topic", name)
    assert f"User:{name} may read topic '{name}' (from any address)" in admin.ok("user", "describe", name)
    assert admin("user", "delete", name).exit_code == 2  # no terminal to ask on
    assert "and 1 bindings" in admin("user", "delete", name, "--yes").stderr
    assert "cannot log in" in admin("topic", "list", "--client", file_of(secured, name, password)).stderr
    assert admin.json("acl", "list", "--of", name) == []
    for command in ("describe", "password"):
        assert "does not exist" in admin("user", command, name).stderr
    admin.ok("user", "create", name)
    admin.ok("acl", "allow", name, "read", "topic", name)
    admin.ok("user", "delete", name, "--yes", "--keep-acls")
    assert len(admin.json("acl", "list", "--of", name)) == 1


def test_passwords_and_names_that_do_harm_are_refused(admin: Any, name: str, tmp_path: Path) -> None:
    told = admin("user", "create", name, "--password", "hush")
    assert told.exit_code == 2 and "every user of this machine" in told.stderr and "hush" not in told.output
    for text, words in (("", "is empty"), ("a\nb", "a second line"), ("é" * 128, "255 bytes at most")):
        told = admin("user", "create", name, "--password-stdin", input=text)
        assert told.exit_code == 2 and words in told.stderr
    absent = admin("user", "create", name, "--password-file", str(tmp_path / "absent"))
    assert absent.exit_code == 2 and "No such file" in absent.stderr
    both = admin("user", "create", name, "--password-file", str(tmp_path), "--password-stdin")
    assert both.exit_code == 2 and "Use one" in both.stderr
    for taken in ("ANONYMOUS", "__gateway", "a=b"):
        assert admin("user", "create", taken).exit_code == 2
    assert not {name, "ANONYMOUS", "__gateway", "a=b"} & {each["name"] for each in admin.json("user", "list")}


def test_a_user_who_may_not_make_users_is_told_so(admin: Any, secured: Secured, name: str) -> None:
    password = admin.ok("user", "create", name).strip()
    refused = admin("user", "create", f"{name}-2", "--client", file_of(secured, name, password))
    assert refused.exit_code == 1 and f"{name} may not do that (CLUSTER_AUTHORIZATION_FAILED)" in refused.stderr


@pytest.fixture
def printed(admin: Any, name: str, password_file: str) -> Callable[[ClientKind], str]:
    """The settings of a user who may see all topics, as they are printed for a client."""
    admin.ok("user", "create", name, "--password-file", password_file)
    admin.ok("acl", "allow", name, "describe", "topic", "*")

    def print_for(kind: ClientKind) -> str:
        return str(admin.ok("user", "client-config", name, "--for", kind.value, "--password-file", password_file))

    return print_for


def test_librdkafka_and_kcat_log_in_with_what_is_printed(
    printed: Callable[[ClientKind], str], tmp_path: Path, name: str
) -> None:
    settings = json.loads(printed(ClientKind.LIBRDKAFKA))
    assert settings["sasl.password"] == PASSWORD and settings["security.protocol"] == "SASL_SSL"
    assert AdminClient(settings).list_topics(timeout=60).brokers
    lines = printed(ClientKind.KCAT)
    assert f"sasl.password={PASSWORD}\n" in lines
    if kcat := shutil.which("kcat"):
        path = tmp_path / "kcat.conf"
        path.write_text(lines)
        listed = subprocess.run([kcat, "-F", str(path), "-L", "-m", "60"], capture_output=True, timeout=120)
        assert listed.returncode == 0, listed.stderr


def test_python_clients_log_in_with_what_is_printed(printed: Callable[[ClientKind], str]) -> None:
    names: dict[str, Any] = {}
    exec(printed(ClientKind.KAFKA_PYTHON), names)
    client = kafka.KafkaAdminClient(**names["settings"])
    assert client.list_topics() is not None
    client.close()
    exec(printed(ClientKind.AIOKAFKA), names)

    async def log_in() -> None:
        producer = AIOKafkaProducer(**names["settings"])
        await producer.start()
        await producer.stop()

    asyncio.run(log_in())


def test_our_commands_take_what_is_printed_for_java(
    admin: Any, printed: Callable[[ClientKind], str], tmp_path: Path, name: str
) -> None:
    text = printed(ClientKind.JAVA)
    assert text.isascii() and "ssl.truststore.type=PEM" in text
    login = read_client_file(text, PurePosixPath("/")).security.sasl
    assert login is not None and (login.user, login.password) == (name, PASSWORD)
    path = tmp_path / "java.properties"
    path.touch(0o600)
    path.write_text(text)
    admin.ok("topic", "list", "--client", str(path))


def test_what_is_printed_for_go_has_the_login(printed: Callable[[ClientKind], str], name: str) -> None:
    text = printed(ClientKind.FRANZ_GO)
    assert f'kgo.SASL(scram.Auth{{User: "{name}", Pass: "a \\"b\\" \\\\c\'; é = # !"}}.AsSha512Mechanism()),' in text
    assert "kgo.DialTLSConfig(&tls.Config{RootCAs: pool})," in text


def test_settings_are_for_the_listener_that_is_named(
    cli_at: Callable[[str], Any], secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator on the machine needs no login where it asks; the user does, elsewhere."""
    monkeypatch.setenv("HEADWATER_CLIENT", "")
    inside = cli_at(secured.inside)
    here = inside("user", "client-config", "bob", "--for", "librdkafka")
    assert "--at HOST:PORT" in here.stderr and "PASSWORD" in here.stderr
    for protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        address = secured.addresses[protocol]
        at = ("--at", address, "--ca", str(secured.authority.file))
        settings = json.loads(inside.ok("user", "client-config", "bob", "--for", "librdkafka", *at))
        assert settings["bootstrap.servers"] == address and settings["security.protocol"] == protocol
        assert settings["sasl.mechanism"] == "SCRAM-SHA-512" and settings["sasl.password"] == "PASSWORD"
        assert ("ssl.ca.location" in settings) == (protocol == "SASL_SSL")


def test_a_created_user_is_printed_as_settings(admin: Any, name: str) -> None:
    result = admin("user", "create", name, "--client-config", "librdkafka")
    assert result.exit_code == 0 and "holds the password" in result.stderr
    assert AdminClient(json.loads(result.stdout)).list_topics(timeout=60).brokers
