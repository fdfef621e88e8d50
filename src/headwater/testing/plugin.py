"""The pytest plugin: fixtures that give a test a running broker.

- `headwater`: a new broker for each test, started empty and removed afterwards.
- `headwater_session`: one broker for the whole run, for tests that name their topics apart.
- `headwater_subprocess`: a broker in a separate process, which a test may kill.
- `headwater_secure`: a new broker with TLS, logins and access control; `client_config("admin")` logs in.

Each is a `headwater.testing.Broker`. A test changes the configuration with a mark:
`@pytest.mark.headwater(durability="sync")`. The ini option `headwater_mode`, or `--headwater-mode` on the command
line, decides whether the first two run in a thread (the default: starts faster) or in a process.

pytest loads this module in every project that has the package installed, so nothing of the broker is imported
before a test asks for a fixture.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from headwater.testing.broker import Broker

MODES = ("thread", "process")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("headwater")
    group.addoption("--headwater-mode", choices=MODES, default=None, help="where the headwater fixtures run the broker")
    parser.addini("headwater_mode", "where the headwater fixtures run the broker: thread or process", default="thread")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "headwater(**config): configuration of this test's Headwater broker")


@pytest.fixture
def headwater(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """An isolated broker, empty at the start of the test."""
    with Broker(subprocess=_wants_process(request.config), **_marked_config(request)) as broker:
        yield broker


@pytest.fixture(scope="session")
def headwater_session(pytestconfig: pytest.Config) -> Iterator[Broker]:
    """One broker that every test of the run shares."""
    with Broker(subprocess=_wants_process(pytestconfig)) as broker:
        yield broker


@pytest.fixture
def headwater_subprocess(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """An isolated broker in a separate process: it has a `pid`, and can be killed and restarted."""
    with Broker(subprocess=True, **_marked_config(request)) as broker:
        yield broker


@pytest.fixture
def headwater_secure(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """An isolated broker with TLS, logins and access control: `@pytest.mark.headwater(users=["alice"])` names users."""
    with Broker(subprocess=_wants_process(request.config), secure=True, **_marked_config(request)) as broker:
        yield broker


def _wants_process(config: pytest.Config) -> bool:
    mode = config.getoption("--headwater-mode") or config.getini("headwater_mode")
    if mode not in MODES:
        raise pytest.UsageError(f"headwater_mode is {mode!r}; it must be one of: {', '.join(MODES)}")
    return bool(mode == "process")


def _marked_config(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The marks nearest to the test win over those of its class and module."""
    merged: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers("headwater"))):
        merged |= mark.kwargs
    return merged
