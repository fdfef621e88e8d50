"""`headwater.testing.processes.forks`: a forked `headwater serve` is what a new interpreter would be."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from headwater.testing import Broker
from headwater.testing.processes import forks
from headwater.testing.processes.forks import ForkServer
from headwater.transport.ports import free_port
from tests.support.effort import IS_LONG
from tests.support.eventually import eventually

WAIT_S = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer() as server:
        yield server


def start(server: ForkServer, directory: Path, *options: str) -> tuple[forks.ForkedProcess, socket.socket]:
    ours, theirs = socket.socketpair()
    with theirs, (directory / "log").open("ab") as log:
        arguments = ["serve", "--metrics", "off", "--http", "off", "--parent-fd", str(theirs.fileno()), *options]
        return server.start(arguments, log.fileno(), theirs.fileno()), ours


def address_of(lifeline: socket.socket) -> tuple[str, int]:
    lifeline.settimeout(WAIT_S)
    host, _, port = lifeline.recv(1024).decode().strip().partition(":")
    return host, int(port)


def options_for(directory: Path) -> list[str]:
    return ["--listen", f"127.0.0.1:{free_port()}", "--data", str(directory / "data")]


def test_a_child_serves_until_it_is_asked_to_stop_and_its_words_are_in_its_log(
    server: ForkServer, tmp_path: Path
) -> None:
    process, lifeline = start(server, tmp_path, *options_for(tmp_path))
    with lifeline:
        address = address_of(lifeline)
        socket.create_connection(address, WAIT_S).close()
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.terminate()
        assert process.wait(WAIT_S) == 0
    assert f"listening on   {address[0]}:{address[1]}" in (tmp_path / "log").read_text()
    process.kill()  # nothing: the number may be that of another process
    assert process.poll() == 0


def test_a_child_that_is_killed_ends_with_the_signal(server: ForkServer, tmp_path: Path) -> None:
    process, lifeline = start(server, tmp_path, *options_for(tmp_path))
    with lifeline:
        address_of(lifeline)
        process.send_signal(signal.SIGSTOP)
        process.kill()
        assert process.wait(WAIT_S) == -signal.SIGKILL


def test_a_child_that_gives_up_says_why_with_its_status(server: ForkServer, tmp_path: Path) -> None:
    process, lifeline = start(server, tmp_path, "--listen", "nowhere")
    with lifeline:
        assert process.wait(WAIT_S) == 2
    assert "nowhere" in (tmp_path / "log").read_text()


def test_a_child_has_the_environment_and_the_directory_of_its_start(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_DATA", "data-of-the-environment")
    monkeypatch.chdir(tmp_path)
    process, lifeline = start(server, tmp_path, "--listen", f"127.0.0.1:{free_port()}")
    with lifeline:
        address_of(lifeline)
        assert (tmp_path / "data-of-the-environment").is_dir()
        process.terminate()
        assert process.wait(WAIT_S) == 0


def test_a_child_keeps_nothing_open_of_the_server_and_of_other_children(server: ForkServer, tmp_path: Path) -> None:
    running = []
    for name in ("one", "two"):
        directory = tmp_path / name
        directory.mkdir()
        process, lifeline = start(server, directory, *options_for(directory))
        address_of(lifeline)
        running.append((process, lifeline))
    (one, its_lifeline), (two, other_lifeline) = running
    with other_lifeline:
        its_lifeline.close()  # would be held open by the other child, if that had it
        assert one.wait(WAIT_S) == 0
        names = [str(fd.readlink()) for fd in Path(f"/proc/{two.pid}/fd").iterdir()]
        assert not [name for name in names if str(tmp_path / "one") in name]
        two.terminate()
        assert two.wait(WAIT_S) == 0


def test_the_server_ends_with_its_user_and_its_children_do_not(tmp_path: Path) -> None:
    with ForkServer() as server:
        process, lifeline = start(server, tmp_path, *options_for(tmp_path))
        address = address_of(lifeline)
    child = psutil.Process(process.pid)
    with closing(lifeline):
        socket.create_connection(address, WAIT_S).close()
    eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, "the child ends by itself")


@pytest.fixture(params=["interpreter", "fork"])
def preference(request: pytest.FixtureRequest) -> Iterator[str]:
    forks.prefer_forks(request.param == "fork")
    yield request.param
    forks.prefer_forks(not IS_LONG)


def test_a_broker_process_is_a_new_interpreter_or_a_fork(preference: str) -> None:
    with Broker(subprocess=True) as broker:
        pid = broker.pid
        is_child = psutil.Process(pid).ppid() == os.getpid()
        assert is_child == (preference == "interpreter")
        broker.kill()
        assert not psutil.pid_exists(pid)
        broker.start()
        assert broker.pid != pid
