"""The command line, called as a person would, against a real broker."""

import json
import logging
import os
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from headwater.cli.main import app
from headwater.testing import Broker
from headwater.transport import ports


class Cli:
    """Runs `headwater …` in this process, asking one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __call__(self, *args: str, input: str | bytes | None = None) -> Any:
        # A server that was begun here logs to the runner's stderr, which is closed when this returns.
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        try:
            return CliRunner().invoke(app, args, input=input, env={"HEADWATER_BOOTSTRAP": self.bootstrap})
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)

    def ok(self, *args: str, input: str | bytes | None = None) -> str:
        """The output of a command that must succeed."""
        result = self(*args, input=input)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return str(result.stdout)

    def json(self, *args: str) -> Any:
        return json.loads(self.ok(*args, "--json"))


@pytest.fixture
def bootstrap(request: pytest.FixtureRequest) -> str:
    """With HEADWATER_TEST_BOOTSTRAP the commands ask another broker, such as Apache Kafka, to check the tests."""
    if other := os.environ.get("HEADWATER_TEST_BOOTSTRAP"):
        return other
    broker: Broker = request.getfixturevalue("headwater_session")
    return broker.bootstrap


@pytest.fixture
def cli(bootstrap: str) -> Cli:
    return Cli(bootstrap)


@pytest.fixture
def cli_at() -> Callable[[str], Cli]:
    return Cli


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def free_port() -> int:
    """A port that nobody listens on."""
    return ports.free_port()
