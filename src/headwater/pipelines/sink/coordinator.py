"""Conversations with coordinators: the brokers that keep the state of a transactional id, or of a group.

A coordinator moves and loads like any leader: what fails for such a reason is asked again, of the broker that is the
coordinator then, until `retry_timeout_ms` of the configuration has passed. Each of these requests may be repeated.
"""

from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from headwater.client.errors import BrokerRefused, ConnectionLost
from headwater.client.question import AnswerT, Question
from headwater.model.errors import ErrorCode, error_name
from headwater.pipelines.client.cluster_client import ClusterClient, backoff
from headwater.pipelines.client.refusals import is_passing
from headwater.pipelines.errors import RequestRefused, RetriableError, SourceError
from headwater.pipelines.sink.errors import ProducerFenced
from headwater.pipelines.sink.producer import FENCES

OUTDATED: Final = FENCES | {ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE}
"""A newer producer has the transactional id, or the coordinator ended the transaction because it took too long."""


class TransactionCoordinators:
    """Dedicated connections, one for each broker. Not thread-safe."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._brokers = cluster.own_brokers()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._brokers.close()

    def answer(self, question: Question[AnswerT], retry_timeout_ms: int | None = None) -> AnswerT:
        """Of the coordinator, or of any broker. Raises ProducerFenced, RequestRefused and BrokerUnreachable."""
        pauses = backoff(self._cluster.config.retry_timeout_ms if retry_timeout_ms is None else retry_timeout_ms)
        while True:
            try:
                return self._answer(question)
            except ConnectionLost as error:
                failure: SourceError = self._cluster.unreachable(error)
            except RetriableError as error:
                failure = error
            if not pauses.pause():
                raise failure

    def _answer(self, question: Question[AnswerT]) -> AnswerT:
        of = question.coordinator_of
        with self._cluster.in_words():
            if of is not None:
                try:
                    self._brokers.coordinator(of)
                except BrokerRefused as refused:
                    raise _no_coordinator(of.name, refused) from refused
            try:
                return self._brokers.answer(question)
            except BrokerRefused as refused:
                raise _refusal(of.name if of is not None else "a new producer", refused) from refused


def check_codes(codes: Iterable[int]) -> None:
    """Raises BrokerRefused for the first error that does not pass, or else for the first."""
    refusals = [BrokerRefused(code, None, "The coordinator") for code in codes if code]
    if refusals:
        raise min(refusals, key=is_passing)


def _no_coordinator(whose: str, refused: BrokerRefused) -> SourceError:
    if not is_passing(refused):
        return _refusal(whose, refused)
    why = f" {refused.reason}" if refused.reason else ""
    return RetriableError(f"{whose} has no coordinator now: {error_name(refused.code)}.{why}")


def _refusal(whose: str, refused: BrokerRefused) -> SourceError:
    name = error_name(refused.code)
    if is_passing(refused):
        return RetriableError(f"The coordinator of {whose} is not ready: {name}.")
    if refused.code in OUTDATED:
        return ProducerFenced(
            f"Another producer writes as {whose} by now, or the transaction took longer than its timeout ({name})."
        )
    return RequestRefused(f"The coordinator of {whose} refuses: {name}.")
