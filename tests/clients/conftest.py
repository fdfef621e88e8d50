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
def bootstrap() -> Iterator[str]:
    if OTHER_BROKER:
        yield OTHER_BROKER
        return
    from headwater.testing import Broker

    with Broker(subprocess=True) as broker:
        yield broker.bootstrap


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
def open_client(request: pytest.FixtureRequest) -> Iterator[Callable[[str, str], Client]]:
    """Opens a client by name for a bootstrap address, once for each pair, and closes all at the end."""
    opened: dict[tuple[str, str], Client] = {}
    with ExitStack() as closing:

        def open_one(name: str, bootstrap: str) -> Client:
            if name == "kcat" and shutil.which("kcat") is None:
                pytest.skip("kcat is not installed (apt-get install kcat)")
            if (name, bootstrap) not in opened:
                extra = (request.getfixturevalue("java_class_path"),) if name == "java" else ()
                client = opened[name, bootstrap] = CLIENTS[name](bootstrap, *extra)
                closing.callback(client.close)
            return opened[name, bootstrap]

        yield open_one


@pytest.fixture
def client(request: pytest.FixtureRequest, bootstrap: str, open_client: Callable[[str, str], Client]) -> Client:
    return open_client(request.param, bootstrap)


@pytest.fixture(scope="session")
def open_transactor(open_client: Callable[[str, str], Client]) -> Iterator[Callable[[str, str], Transactor]]:
    """Opens what a client knows of transactions, by its name and a bootstrap address."""
    opened: dict[tuple[str, str], Transactor] = {}
    with ExitStack() as closing:

        def open_one(name: str, bootstrap: str) -> Transactor:
            if (name, bootstrap) not in opened:
                given = open_client(name, bootstrap) if name == "java" else bootstrap  # one JVM serves both
                transactor = opened[name, bootstrap] = TRANSACTORS[name](given)
                closing.callback(transactor.close)
            return opened[name, bootstrap]

        yield open_one


@pytest.fixture
def transactor(
    request: pytest.FixtureRequest, bootstrap: str, open_transactor: Callable[[str, str], Transactor]
) -> Transactor:
    return open_transactor(request.param, bootstrap)


@pytest.fixture(scope="session")
def confluent(bootstrap: str, open_client: Callable[[str, str], Client]) -> Client:
    """The client that prepares and cross-checks, whichever client is judged."""
    client = open_client(ConfluentClient.name, bootstrap)
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
