"""Conversations with coordinators: the brokers that keep the state of a transactional id, or of a group.

A coordinator moves and loads like any leader: what fails for such a reason is asked again, of the broker that is the
coordinator then, until `retry_timeout_ms` of the configuration has passed. Each of these requests may be repeated.
"""

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from headwater.model.errors import ErrorCode
from headwater.pipelines.client.apis import FIND_COORDINATOR
from headwater.pipelines.client.cluster import ClusterClient, RetriableError, error_name
from headwater.pipelines.client.config import BrokerAddress
from headwater.pipelines.client.connection import BrokerConnection, ConnectionLost
from headwater.pipelines.client.retry import RetryBackoff
from headwater.pipelines.errors import RequestRefused, SourceError
from headwater.pipelines.sink.errors import ProducerFenced
from headwater.pipelines.sink.producer import FENCES
from headwater.wire.message import Message

GROUP: Final = 0
TRANSACTION: Final = 1

MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
COORDINATOR_RETRIABLE: Final = MOVED | {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}
OUTDATED: Final = FENCES | {ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE}
"""A newer producer has the transactional id, or the coordinator ended the transaction because it took too long."""


class Coordinated(NamedTuple):
    """What has a coordinator: a GROUP or a TRANSACTION of this name."""

    kind: int
    name: str


class TransactionCoordinators:
    """Dedicated connections, one for each broker. Not thread-safe."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._connections: dict[BrokerAddress, BrokerConnection] = {}
        self._found: dict[Coordinated, BrokerAddress] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections.values():
            connection.close()

    def ask(
        self,
        of: Coordinated | None,
        api_key: int,
        errors: Callable[[Message], Iterable[int]] = lambda answer: (answer.error_code,),
        retry_timeout_ms: int | None = None,
        **fields: Any,
    ) -> Message:
        """Ask the coordinator of a group or transactional id; None: any broker. `errors` gives the error codes in an
        answer. Raises ProducerFenced, RequestRefused and BrokerUnreachable."""
        whose = of.name if of is not None else "a new producer"
        backoff = RetryBackoff(self._cluster.config.retry_timeout_ms if retry_timeout_ms is None else retry_timeout_ms)
        while True:
            try:
                answer = self._responsible(of).ask(api_key, **fields)
            except ConnectionLost as error:
                failure: SourceError = self._cluster.unreachable(error)
                self._found.clear()
            except RetriableError as error:
                failure = error
            else:
                wrong = [code for code in errors(answer) if code != ErrorCode.NONE]
                if not wrong:
                    return answer
                if not COORDINATOR_RETRIABLE.issuperset(wrong):
                    raise _refusal(whose, next(code for code in wrong if code not in COORDINATOR_RETRIABLE))
                if not MOVED.isdisjoint(wrong):
                    self._found.clear()
                failure = RetriableError(f"The coordinator of {whose} is not ready: {error_name(wrong[0])}.")
            if not backoff.pause():
                raise failure

    def _responsible(self, of: Coordinated | None) -> BrokerConnection:
        if of is None:
            return self._any_connection()
        found = self._found.get(of)
        if found is None:
            answer = self._any_connection().ask(FIND_COORDINATOR, key=of.name, key_type=of.kind)
            if answer.error_code in COORDINATOR_RETRIABLE:
                why = f" {answer.error_message}" if answer.error_message else ""
                raise RetriableError(f"{of.name} has no coordinator now: {error_name(answer.error_code)}.{why}")
            if answer.error_code:
                raise _refusal(of.name, answer.error_code)
            found = self._found[of] = BrokerAddress(answer.host, answer.port)
        return self._connection(found)

    def _any_connection(self) -> BrokerConnection:
        failure = ConnectionLost("no address is known")
        for address in (*self._connections, *self._cluster.config.bootstrap):
            try:
                return self._connection(address)
            except ConnectionLost as error:
                failure = error
        raise failure

    def _connection(self, address: BrokerAddress) -> BrokerConnection:
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            connection = self._connections[address] = BrokerConnection(address, self._cluster.config)
        return connection


def _refusal(whose: str, code: int) -> SourceError:
    if code in OUTDATED:
        return ProducerFenced(
            f"Another producer writes as {whose} by now, or the transaction took longer than its timeout "
            f"({error_name(code)})."
        )
    return RequestRefused(f"The coordinator of {whose} refuses: {error_name(code)}.")
