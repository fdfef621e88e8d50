"""Fixtures of the client suite: one broker and one of each client for all its tests.

With HEADWATER_TEST_BOOTSTRAP=host:port the suite judges another broker instead, to check the suite itself:
`python -m bench.kafka` starts an Apache Kafka and prints where it listens."""

import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from bench import maven

from tests.clients.every_client import CLIENTS
from tests.clients.every_transactor import TRANSACTORS
from tests.clients.judged import OTHER_BROKER, Client, NewTopic
from tests.clients.opening import Opening
from tests.clients.transacting import Transactor
from tests.clients.with_confluent import ConfluentClient
from tests.clients.with_java import judge_class_path
from tests.support.eventually import eventually

TOPIC_TIMEOUT_S = 60.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    not_our_sockets = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.clients)
            item.add_marker(not_our_sockets)  # a client that drops a socket unclosed is not judged


@pytest.fixture(scope="session")
def lasting() -> set[str]:
    """Addresses of brokers that live as long as the tests do."""
    return set()


@pytest.fixture(scope="session")
def bootstrap(lasting: set[str]) -> Iterator[str]:
    with ExitStack() as closing:
        if OTHER_BROKER:
            address = OTHER_BROKER
        else:
            from headwater.testing import Broker

            address = closing.enter_context(Broker(subprocess=True)).bootstrap
        lasting.add(address)
        yield address


@pytest.fixture(scope="session")
def ours_only() -> None:
    """For tests that stop and start the broker."""
    if OTHER_BROKER:
        pytest.skip("HEADWATER_TEST_BOOTSTRAP names a broker that this suite may not restart")


@pytest.fixture(scope="module")
def cluster_bootstrap(ours_only: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Three nodes that share their metadata in a file."""
    from headwater.testing import Broker

    directory = tmp_path_factory.mktemp("cluster")
    with ExitStack() as closing:
        nodes = [
            Broker(node_id=number, metadata=f"sqlite:{directory / 'metadata.db'}", peer_listen="127.0.0.1:0")
            for number in (1, 2, 3)
        ]
        yield ",".join(closing.enter_context(node).bootstrap for node in nodes)


@pytest.fixture(scope="session")
def java_class_path() -> str:
    try:
        return judge_class_path()
    except maven.JarsUnavailable as reason:
        pytest.skip(f"Java's client is not judged: {reason}")


@pytest.fixture(scope="session")
def open_lasting_client(request: pytest.FixtureRequest) -> Iterator[Opening[Client]]:
    """Opens a client by name for the broker of all tests, and closes it at the end."""
    with Opening(_client_opener(request)) as opening:
        yield opening


@pytest.fixture(scope="module")
def open_client(
    request: pytest.FixtureRequest, lasting: set[str], open_lasting_client: Opening[Client]
) -> Iterator[Callable[[str, str], Client]]:
    """Opens a client by name for a bootstrap address, once for each pair. Clients of a broker that a module started end
    with the module: a client whose broker is gone looks for it for ever, beside the tests that follow."""
    with Opening(_client_opener(request)) as opening:
        yield lambda name, address: (open_lasting_client if address in lasting else opening)(name, address)


def _client_opener(request: pytest.FixtureRequest) -> Callable[[str, str], Client]:
    def open_one(name: str, bootstrap: str) -> Client:
        if name == "kcat" and shutil.which("kcat") is None:
            pytest.skip("kcat is not installed (apt-get install kcat)")
        extra = (request.getfixturevalue("java_class_path"),) if name == "java" else ()
        client: Client = CLIENTS[name](bootstrap, *extra)
        return client

    return open_one


@pytest.fixture
def client(request: pytest.FixtureRequest, bootstrap: str, open_client: Callable[[str, str], Client]) -> Client:
    return open_client(request.param, bootstrap)


@pytest.fixture(scope="session")
def open_lasting_transactor(open_lasting_client: Opening[Client]) -> Iterator[Opening[Transactor]]:
    with Opening(_transactor_opener(open_lasting_client)) as opening:
        yield opening


@pytest.fixture(scope="module")
def open_transactor(
    lasting: set[str], open_client: Callable[[str, str], Client], open_lasting_transactor: Opening[Transactor]
) -> Iterator[Callable[[str, str], Transactor]]:
    """Opens what a client knows of transactions, by its name and a bootstrap address."""
    with Opening(_transactor_opener(open_client)) as opening:
        yield lambda name, address: (open_lasting_transactor if address in lasting else opening)(name, address)


def _transactor_opener(open_client: Callable[[str, str], Client]) -> Callable[[str, str], Transactor]:
    def open_one(name: str, bootstrap: str) -> Transactor:
        given = open_client(name, bootstrap) if name == "java" else bootstrap  # one JVM serves both
        transactor: Transactor = TRANSACTORS[name](given)
        return transactor

    return open_one


@pytest.fixture
def transactor(
    request: pytest.FixtureRequest, bootstrap: str, open_transactor: Callable[[str, str], Transactor]
) -> Transactor:
    return open_transactor(request.param, bootstrap)


@pytest.fixture(scope="session")
def confluent(bootstrap: str, open_lasting_client: Opening[Client]) -> Client:
    """The client that prepares and cross-checks, whichever client is judged."""
    client = open_lasting_client(ConfluentClient.name, bootstrap)
    assert isinstance(client, ConfluentClient)
    return client


@pytest.fixture
def new_topic(confluent: Client) -> NewTopic:
    """Creates a topic with a name of its own."""

    def create(partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        name = f"judged-{uuid.uuid4().hex[:12]}"
        confluent.create_topic(name, partitions, config)
        eventually(lambda: name in confluent.topics(), f"{name} is known")  # Kafka answers before its broker knows it
        return name

    return create
