"""`headwater serve`: how it starts, how it stops, and how it says no."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headwater.broker.settings.broker_config import SETTINGS, BrokerConfig

SERVE = [sys.executable, "-m", "headwater.cli.main", "serve"]
SERVE_ON_A_DISK_THAT_FAILS = """
import os, sys
from pathlib import Path

broken, flush = Path(sys.argv.pop()), os.fdatasync

def fdatasync(fd):
    if broken.exists():
        raise OSError(5, "Input/output error")
    flush(fd)

os.fdatasync = fdatasync
from headwater.cli.main import app
app()
"""


@contextmanager
def serving(
    data: Path, *options: str, command: list[str] = SERVE
) -> Iterator[tuple["subprocess.Popen[str]", dict[str, str]]]:
    """A broker process and the facts on its banner."""
    command = [*command, "--data", str(data), "--listen", "127.0.0.1:0", "--metrics", "off", "--http", "off", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        banner: dict[str, str] = {}
        for line in process.stdout:
            name, value = re.fullmatch(r"\s*(.*?)(?:\s{2,}(.*))?", line.rstrip()).groups()  # type: ignore[union-attr]
            banner[name] = value
            if name == "try":
                break
        yield process, banner
    finally:
        process.kill()
        process.communicate()


def refused(*options: str) -> "subprocess.CompletedProcess[str]":
    # A port of its own: the usual one may be taken.
    options = options if "--http" in options else (*options, "--http", "off")
    return subprocess.run([*SERVE, *options], capture_output=True, text=True, timeout=60)


def produce(address: str) -> None:
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": False})
    outcome = []
    producer.produce("greetings", b"hello", on_delivery=lambda error, _: outcome.append(error))
    assert producer.flush(60) == 0
    assert outcome == [None]


def test_the_banner_says_what_runs_where(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--durability", "os", "--advertise", "127.0.0.1:19092") as (_, banner):
        assert any(name.startswith("Headwater 0.") for name in banner)
        assert re.fullmatch(r"127\.0\.0\.1:\d+", banner["listening on"])
        assert banner["advertised as"] == "127.0.0.1:19092"
        assert banner["data"] == str(tmp_path / "data")
        assert banner["durability"] == "os"
        assert banner["metrics"] == "off"
        assert banner["cluster"]
        assert banner["try"] == f"headwater produce --bootstrap {banner['listening on']} greetings hello"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path / "data") as (process, banner):
        produce(banner["listening on"])
        process.send_signal(number)
        assert process.wait(60) == 0


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as (process, banner):
        address = banner["listening on"].rsplit(":", 1)
        with socket.create_connection((address[0], int(address[1]))):
            process.send_signal(signal.SIGSTOP)
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGCONT)
            assert process.wait(60) in (0, 130)


def test_the_metrics_page_is_served(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--metrics", "127.0.0.1:0") as (_, banner):
        produce(banner["listening on"])
        with urllib.request.urlopen(banner["metrics"], timeout=10) as response:
            page = response.read().decode()
        assert 'headwater_requests_total{api="Produce"' in page
        assert 'headwater_produced_records_total{topic="greetings"} 1.0' in page
        assert "headwater_connections " in page


def test_events_are_logged_as_lines_or_as_json(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--log-json") as (process, _):
        process.terminate()
        _, log = process.communicate(timeout=60)
        events = [json.loads(line) for line in log.splitlines()]
        assert any(event.get("event") == "started" and event["address"].startswith("127.0.0.1:") for event in events)


def test_a_disk_that_fails_to_flush_ends_the_broker_with_a_reason(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    command = [sys.executable, "-c", SERVE_ON_A_DISK_THAT_FAILS, "serve"]
    with serving(tmp_path / "data", str(broken), command=command) as (process, banner):
        produce(banner["listening on"])
        broken.touch()
        settings = {"bootstrap.servers": banner["listening on"], "message.timeout.ms": 2000, "log_level": 0}
        producer = Producer(settings)
        outcome = []
        producer.produce("greetings", b"lost", on_delivery=lambda error, _: outcome.append(error))
        _, log = process.communicate(timeout=60)
        producer.flush(60)
    assert process.returncode == 1
    assert f"headwater: The disk under {tmp_path / 'data'} failed" in log and "Traceback" not in log
    assert outcome and outcome[0] is not None, "what was not flushed is not acknowledged"
    with serving(tmp_path / "data") as (_, banner):
        produce(banner["listening on"])


def test_a_data_directory_has_one_broker(tmp_path: Path) -> None:
    with serving(tmp_path / "data"):
        second = refused("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--metrics", "off")
    assert second.returncode == 1
    assert second.stderr.endswith(
        f"headwater: Another broker uses the data in {tmp_path / 'data'}. "
        "Stop it, or choose another directory with --data.\n"
    )
    assert "Traceback" not in second.stderr


@pytest.mark.parametrize("option", ["--listen", "--http"])
def test_a_port_in_use_is_named(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        others = ("--listen", "127.0.0.1:0") if option != "--listen" else ()
        result = refused("--data", str(tmp_path), option, address, "--metrics", "off", *others)
    assert result.returncode == 1
    assert f"headwater: Another program listens on {address}." in result.stderr
    assert option in result.stderr and "Traceback" not in result.stderr
    assert result.stdout == "", "there is no banner of a broker that does not serve"


def test_an_http_address_of_another_machine_is_named(tmp_path: Path) -> None:
    listen = ("--data", str(tmp_path), "--listen", "127.0.0.1:0", "--metrics", "off")
    result = refused(*listen, "--http", "192.0.2.1:8080", "--insecure")
    assert result.returncode == 1
    assert "headwater: 192.0.2.1:8080 is not an address of this machine. Choose one with --http" in result.stderr


def test_a_token_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text('http_token_file = "/does/not/exist"\n')
    listen = ("--data", str(tmp_path), "--listen", "127.0.0.1:0", "--metrics", "off", "--http", "127.0.0.1:0")
    result = refused("--config", str(config), *listen)
    assert result.returncode == 2
    assert "headwater: http_token_file: /does/not/exist: cannot be read" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_data_directory_that_cannot_be_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    for path in (tmp_path / "file", tmp_path / "file" / "data"):
        result = refused("--data", str(path), "--listen", "127.0.0.1:0", "--metrics", "off")
        assert result.returncode == 1
        assert f"headwater: Cannot use {path}" in result.stderr and "Traceback" not in result.stderr


def test_an_unknown_key_in_the_config_file_stops_the_start(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text('listne = "127.0.0.1:0"\n')
    result = refused("--config", str(config))
    assert result.returncode == 2
    assert "listne" in result.stderr and str(config) in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "options",
    [("--listen", "nowhere"), ("--durability", "perhaps"), ("--config", "/does/not/exist"), ("--log-level", "loud")],
)
def test_a_bad_option_is_a_usage_mistake(options: tuple[str, ...]) -> None:
    result = refused(*options)
    assert result.returncode == 2
    assert options[1] in result.stderr and "Traceback" not in result.stderr


def test_starting_a_broker_does_not_load_a_kafka_client_or_draw_tables() -> None:
    code = (
        "import sys; from headwater.cli.main import app; import headwater.broker.server; "
        "print([name for name in ('confluent_kafka', 'rich.console', 'prometheus_client') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


def test_the_printed_configuration_names_every_setting_and_is_its_default(tmp_path: Path) -> None:
    printed = subprocess.run([*SERVE, "--print-config"], capture_output=True, text=True, check=True).stdout
    template = tmp_path / "broker.toml"
    template.write_text(printed)
    assert BrokerConfig.load(template) == BrokerConfig(), "as printed it changes nothing"
    edited = re.sub(r"^# ", "", printed, flags=re.MULTILINE)
    for name in SETTINGS:
        assert re.search(rf"^({name} = |\[+{name}\]+$)", edited, re.MULTILINE), name
    addresses, start, listener = edited.partition("[[listener]]")
    template.write_text(start + listener)
    assert [each.name for each in BrokerConfig.load(template, http="off").client_listeners] == ["clients"]
    template.write_text(addresses)
    given = {
        "advertise": "broker.example.com:9092",
        "authorization": "on",
        "metrics_token_file": "/etc/headwater/metrics-token",
        "http_token_file": "/etc/headwater/http-token",
        "metadata": "sqlite:headwater-data/metadata.db",
        "http_ca": "/etc/headwater/tls/ca.pem",
        "peer_listen": "0.0.0.0:9192",
        "peer_advertise": "broker.example.com:9192",
        "cluster_secret_file": "/etc/headwater/cluster-secret",
        "rack": "room-1",
    }
    assert BrokerConfig.load(template) == BrokerConfig.load(None, topic={"retention.ms": 604800000}, **given)
