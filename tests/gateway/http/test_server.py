"""The gateway as a process beside a broker, and inside of one."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from headwater.testing import Broker
from headwater.transport.ports import free_port
from tests.support.secured import secured_broker

COMMAND = [sys.executable, "-m", "headwater.cli.main"]


@contextmanager
def running(*arguments: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A process that serves HTTP, and the address it says."""
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if found := re.fullmatch(r"\s+http\s+(\S+)\s*", line):
                yield process, found[1]
                break
        else:
            raise AssertionError(process.communicate()[1])
    finally:
        process.kill()
        process.communicate()


def get(url: str) -> httpx.Response:
    return httpx.get(url, timeout=60, trust_env=False)


def test_a_gateway_runs_alone_and_stops_when_asked(headwater_session: Broker) -> None:
    with running("gateway", "--bootstrap", headwater_session.bootstrap, "--http", "127.0.0.1:0") as (process, url):
        assert get(f"{url}/readyz").text == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_gateway_may_start_before_its_cluster() -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    with running("gateway", "--bootstrap", nowhere, "--http", "127.0.0.1:0") as (_, url):
        assert get(f"{url}/healthz").status_code == 200
        assert get(f"{url}/readyz").status_code == 503


def test_a_gateway_logs_in_with_all_its_clients(tmp_path: Path) -> None:
    """librdkafka's, which write and read, and our own, which describes."""
    with secured_broker(tmp_path, authorization="off") as secured:
        login = ("--client", str(secured.client_file()))
        with running("gateway", *login, "--http", "127.0.0.1:0") as (_, url), httpx.Client(timeout=60) as http:
            assert http.post(f"{url}/v1/topics", json={"name": "greetings"}).status_code == 201
            assert http.post(f"{url}/v1/topics/greetings/records", json={"value": "hello"}).status_code == 200
            records = http.get(f"{url}/v1/topics/greetings/records", params={"from": "earliest"}).json()["records"]
            assert [record["value"] for record in records] == ["hello"]
            assert http.get(f"{url}/v1/groups").status_code == 200


def test_a_broker_serves_http_and_stops_cleanly(tmp_path: Path) -> None:
    options = ["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    with running("serve", "--data", str(tmp_path), *options) as (process, url):
        made = httpx.post(f"{url}/v1/topics", json={"name": "greetings"}, timeout=60, trust_env=False)
        assert made.status_code == 201
        written = httpx.post(f"{url}/v1/topics/greetings/records", json={"value": "hello"}, timeout=60, trust_env=False)
        assert written.json()["records"][0]["offset"] == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_a_port_that_is_taken_is_the_end_of_a_gateway() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        alone = subprocess.run([*COMMAND, "gateway", "--http", address], capture_output=True, text=True, timeout=60)
        assert alone.returncode == 1
        assert address in alone.stderr and "Traceback" not in alone.stderr


def test_a_gateway_without_a_usable_token_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("short")
    command = [*COMMAND, "gateway", "--http", "127.0.0.1:0", "--token-file", str(tmp_path / "token")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "16 characters" in done.stderr
    wrong = subprocess.run([*COMMAND, "gateway", "--http", "nowhere"], capture_output=True, text=True, timeout=60)
    assert wrong.returncode == 2
    assert "HOST:PORT" in wrong.stderr
