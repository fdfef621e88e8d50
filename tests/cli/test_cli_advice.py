"""What commands say when they cannot do their work: what is wrong, and what to do. What they advise exists."""

import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer

import headwater
from headwater.broker.settings.broker_config import SETTINGS
from headwater.cli.listener_probe import ListenerKind, probe
from headwater.cli.main import app
from headwater.client.address import parse_bootstrap

SOURCES = Path(headwater.__file__).parent
ADDRESS_OF_A_BROKER = "`listening on`"


@contextmanager
def answering(answer: Callable[[bytes], bytes]) -> Iterator[str]:
    """A server that says something to the first bytes of each connection, if there is anything to say."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(10)
                    said = answer(connection.recv(1000))
                    connection.sendall(said) if said else connection.recv(1000)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(20)


def an_http_server(question: bytes) -> bytes:
    return b"HTTP/1.1 400 Bad Request\r\n\r\n"


def one_that_waits_for_a_whole_request(question: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\n\r\n" if b"\r\n\r\n" in question else b""


COMMANDS = (
    "topic list", "topic create x", "group list", "transaction list", "subscription list", "queue list",
    "produce x y", "consume x", "pipeline list", "queue redrive x",
)  # fmt: skip


@pytest.mark.parametrize("server", [an_http_server, one_that_waits_for_a_whole_request])
def test_a_port_that_speaks_http_is_known_for_one(cli_at: Any, server: Callable[[bytes], bytes]) -> None:
    with answering(server) as address:
        for command in COMMANDS if server is an_http_server else COMMANDS[:1]:
            refused = cli_at(address)(*command.split())
            assert refused.exit_code == 1, command
            assert refused.stderr.startswith(f"headwater: The server at {address} speaks HTTP"), command
            assert ADDRESS_OF_A_BROKER in refused.stderr, command
        gateway = cli_at(address)("gateway", "--http", "127.0.0.1:0")
        assert gateway.exit_code == 1 and "speaks HTTP" in gateway.stderr


def handshake_answer(mechanisms: bytes, count: int = 1) -> bytes:
    """Of a broker that asks for a login: to ApiVersions, and to SaslHandshake."""
    body = struct.pack(">ihi", 1, 33, count) + mechanisms
    return struct.pack(">ii", 4, 0) + struct.pack(">i", len(body)) + body


@pytest.mark.parametrize(
    ("said", "listener"),
    [
        (handshake_answer(b"\0\5PLAIN"), ("PLAIN",)),
        (handshake_answer(b"\0\5PLAIN", count=2**31 - 1), ListenerKind.BROKER),
        (handshake_answer(b"\0\5PLAIN", count=2), ListenerKind.BROKER),
        (handshake_answer(b"\0\2\xff\xff"), ListenerKind.BROKER),
        (handshake_answer(b"\xff\xff"), ("",)),
        (handshake_answer(b"")[:-6], ListenerKind.BROKER),
        (struct.pack(">i", -1) * 4, ListenerKind.BROKER),
        (b"\0" * 40_000, ListenerKind.BROKER),
        (b"\x15\x03\x03\0\2\2\x46", ListenerKind.TLS),
        (b"HTTP/1.1 400\r\n", ListenerKind.HTTP),
    ],
)
def test_whatever_a_server_says_it_is_taken_for_something(said: bytes, listener: ListenerKind | tuple[str]) -> None:
    with answering(lambda question: said) as address:
        (broker,) = parse_bootstrap(address)
        assert probe(broker, connect_timeout_s=60) == listener


def test_a_broker_among_the_addresses_is_enough(cli_at: Any, bootstrap: str, free_port: int) -> None:
    with answering(an_http_server) as address:
        assert cli_at(f"127.0.0.1:{free_port},{address},{bootstrap}").ok("topic", "list")


@pytest.mark.parametrize("command", COMMANDS)
def test_where_nothing_listens_it_is_said(cli_at: Any, free_port: int, command: str) -> None:
    address = f"127.0.0.1:{free_port}"
    refused = cli_at(address)(*command.split())
    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"headwater: No broker answers at {address}. Start one with `headwater serve`")


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:", ":9092", "127.0.0.1:99999", "127.0.0.1:kafka", ""])
def test_an_address_that_is_none_is_a_usage_mistake(cli: Any, address: str) -> None:
    refused = cli("topic", "list", "--bootstrap", address)
    assert refused.exit_code == 2 and "HOST:PORT" in refused.stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("transaction describe NAME", "Transactional id NAME does not exist. `headwater transaction list`"),
        ("transaction open NAME", "Topic NAME does not exist."),
        ("transaction abort NAME 0 0 --yes", "Topic NAME does not exist."),
        ("group describe NAME", "Group NAME does not exist. `headwater group list`"),
        ("group delete NAME --yes", "Group NAME does not exist. `headwater group list`"),
        ("group reset-offsets NAME --to end", "Group NAME does not exist."),
        ("group reset-offsets NAME --topic NAME --to end", "Topic NAME does not exist."),
        ("queue describe NAME", "Queue NAME does not exist. `headwater queue list`"),
        ("queue list NAME", "Topic NAME does not exist."),
        ("queue redrive NAME", "Topic NAME does not exist."),
        ("subscription describe NAME", "Subscription NAME does not exist. `headwater subscription list`"),
        ("subscription create NAME x", "Topic NAME does not exist."),
        ("subscription delete NAME --yes", "Subscription NAME does not exist."),
        ("pipeline status NAME", "Pipeline NAME has not run. `headwater pipeline list`"),
        ("topic describe NAME", "Topic NAME does not exist. `headwater topic list`"),
        ("topic alter NAME --partitions 3", "Topic NAME does not exist."),
        ("topic alter NAME --config retention.ms=1", "Topic NAME does not exist."),
        ("topic trim NAME --before end --yes", "Topic NAME does not exist."),
        ("topic delete NAME --yes", "Topic NAME does not exist."),
        ("consume NAME", "Topic NAME does not exist."),
        ("produce a/NAME x", "1 record not acknowledged. Topic name 'a/NAME' has characters other than ASCII letters"),
    ],
)
def test_what_does_not_exist_is_named_with_where_to_look(cli: Any, name: str, command: str, words: str) -> None:
    refused = cli(*command.replace("NAME", name).split())
    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"headwater: {words.replace('NAME', name)}"), refused.stderr


def test_a_partition_that_a_topic_lacks_is_named(cli: Any, name: str) -> None:
    cli.ok("topic", "create", name, "--partitions", "2")
    for refused in (cli("produce", name, "-p", "9", "x"), cli("produce", name, "-p", "9", input="x\ny\n")):
        assert refused.exit_code == 1
        assert f"Topic {name} has no partition 9. `headwater topic describe {name}`" in refused.stderr
    assert cli("produce", name, "-p", "-2", "x").exit_code == 2


def test_a_queue_is_listed_with_the_groups_and_says_where_it_is_described(cli: Any, name: str) -> None:
    queue, group = f"{name}-queue", f"{name}-group"
    cli.ok("topic", "create", name)
    cli.ok("produce", name, "a")
    cli.ok("subscription", "create", name, queue, "--queue", "--from", "beginning")
    cli.ok("consume", name, "--group", group, "--exit-at-end")
    rows = {row["group"]: row for row in cli.json("group", "list")}
    assert rows[queue] == {"group": queue, "state": "empty", "type": "share"}
    assert rows[group] == {"group": group, "state": "empty", "type": "classic"}
    described = cli("group", "describe", queue)
    assert described.stderr == f"headwater: Group {queue} is a queue. `headwater queue describe {queue}` shows it.\n"
    assert "is a queue" in cli("group", "reset-offsets", queue, "--topic", name, "--to", "end").stderr
    assert f"`headwater subscription describe {group}`" in cli("queue", "describe", group).stderr
    joined = cli("consume", name, "--group", queue, "--exit-at-end")
    assert joined.exit_code == 1 and f"Group {queue} is of another kind" in joined.stderr


def advised() -> Iterator[tuple[str, str]]:
    """Every command that the program and the console tell people to run, and where."""
    for file in sorted(SOURCES.rglob("*.py")):
        for command in re.findall(r"`(headwater [a-z][^`{]*)", file.read_text()):
            yield file.name, command
    for file in sorted(SOURCES.rglob("*.js")):
        for command in re.findall(r'"(headwater [^"]+)"', file.read_text()):
            yield file.name, command


def test_commands_that_are_advised_exist() -> None:
    found = list(advised())
    assert len(found) > 50
    for file, command in found:
        _, *words = command.split()
        place: Any = typer.main.get_command(app)
        while words and hasattr(place, "get_command"):
            place = place.get_command(None, words.pop(0))
            assert place is not None, f"{file}: {command}"
        options = {option for parameter in place.params for option in parameter.opts + parameter.secondary_opts}
        for word in words:
            assert not word.startswith("--") or word.partition("=")[0] in options, f"{file}: {command}"
            assert not word.endswith((".yaml", ".yml")), f"{file}: {command}: pipelines are TOML, SQL or Python"


def test_settings_that_are_advised_exist() -> None:
    for file in sorted(SOURCES.rglob("*.py")):
        for name in re.findall(r"\b(\w+) = (?:true|false|\\?\"[^\"]*\") in the broker's config", file.read_text()):
            assert name in SETTINGS, f"{file.name}: {name}"
