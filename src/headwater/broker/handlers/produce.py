"""Produce (0): append batches. Versions 3 to 13 are served; 0 is advertised as the lowest, because older librdkafka
otherwise sends its batches uncompressed (KAFKA-18659).

    acks  0 no answer (an error closes the connection, as in Kafka), 1 and -1 the batch is committed: with one replica
          both mean the same
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING

from headwater.broker.batch_rules import InvalidRecords, admit
from headwater.broker.dispatch import Api, RequestContext
from headwater.broker.partition import Appended, Partition
from headwater.broker.transaction_gate import Entrant, Turn
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId
from headwater.records.batch import BatchHeader, CorruptBatch, OldMessageFormat, parse_header
from headwater.transport.connection import Answer, CloseConnection, Pieces
from headwater.wire import produce
from headwater.wire.produce import PartitionData, PartitionResult, ProduceRequest, TopicData, TopicResult

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=produce.KEY,
    name="Produce",
    min_version=produce.MIN_VERSION,
    max_version=produce.MAX_VERSION,
    advertised_min_version=0,
)

FIRST_WITH_ABORTABLE = 11
FIRST_ADDING_PARTITIONS = 12
"""From here on a producer leaves it to the broker to add partitions to its transaction (KIP-890)."""


def handle_frame(broker: "Broker", frame: bytearray, context: RequestContext) -> Answer:
    request = produce.read_request(frame, context.header)
    producing = _Producing(broker, context, request)
    if request.transactional_id is not None:
        return producing.append_in_transaction()
    producing.append_all()
    return producing.answer()


class _Producing:
    """One request under way: its results, and how many of its batches are not committed yet."""

    def __init__(self, broker: "Broker", context: RequestContext, request: ProduceRequest) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._results: list[TopicResult] = []
        self._waiting: dict[asyncio.Future[None], list[PartitionResult]] = {}
        self._answer: asyncio.Future[Pieces | None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._entrant: Entrant | None = None
        self._refused: dict[PartitionId, RequestError] = {}

    def append_in_transaction(self) -> Answer:
        """At once where the transaction is open already, else when the coordinator has been asked."""
        self._entrant = entrant = self._find_entrant(self._request.transactional_id)
        gate = self._broker.transaction_gate
        if entrant is None or gate.is_open(entrant):
            self.append_all()
            return self.answer()
        turn = gate.queue(entrant.producer_id)
        entering = asyncio.get_running_loop().create_task(self._enter(entrant, turn))
        entering.add_done_callback(lambda _: turn.leave())  # a client that goes may cancel it before it begins
        return entering

    async def _enter(self, entrant: Entrant, turn: Turn) -> Pieces | None:
        async with turn:
            self._refused = await self._broker.transaction_gate.ask(entrant)
            self.append_all()
        answer = self.answer()
        return await answer if isinstance(answer, asyncio.Future) else answer

    def _find_entrant(self, transactional_id: str | None) -> Entrant | None:
        """Who writes where, as far as that can be read. What cannot is refused when it is appended."""
        assert transactional_id is not None, "only a transactional producer enters"
        producers: set[tuple[int, int]] = set()
        partitions: list[Partition] = []
        for topic in self._request.topics:
            for data in topic.partitions:
                with contextlib.suppress(RequestError, CorruptBatch, OldMessageFormat):
                    header = parse_header(data.records or b"")
                    if header.is_transactional:
                        partitions.append(self._find(topic, data))
                        producers.add((header.producer_id, header.producer_epoch))
        if len(producers) != 1:
            return None
        version = 2 if self._context.api_version >= FIRST_ADDING_PARTITIONS else 1
        understands_abortable = self._context.api_version >= FIRST_WITH_ABORTABLE
        return Entrant(transactional_id, *producers.pop(), tuple(partitions), version, understands_abortable)

    def append_all(self) -> None:
        for topic in self._request.topics:
            partitions = [self._append(topic, data) for data in topic.partitions]
            self._results.append(TopicResult(topic.name, topic.topic_id, partitions))

    def _append(self, topic: TopicData, data: PartitionData) -> PartitionResult:
        result = PartitionResult(data.index)
        try:
            appended = self._append_batch(topic, data, result)
        except InvalidRecords as error:
            _fail(result, error)
            result.record_errors = error.records
        except RequestError as error:
            _fail(result, error)
        else:
            result.base_offset = appended.base_offset
            result.log_append_time_ms = appended.log_append_time_ms
            if appended.committed is not None:
                self._waiting.setdefault(appended.committed, []).append(result)
        return result

    def _append_batch(self, topic: TopicData, data: PartitionData, result: PartitionResult) -> Appended:
        if self._request.acks not in (-1, 0, 1):
            raise RequestError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is -1, 0 or 1, not {self._request.acks}.")
        partition = self._find(topic, data)
        if data.records is None:
            raise RequestError(ErrorCode.INVALID_RECORD, "A partition was named without a batch.")
        batch, header = admit(data.records, partition.config, self._broker.clock.now_ms(), self._context.api_version)
        if header.is_transactional:
            self._check_entered(partition, header)
        appended = partition.append(batch, header)
        result.log_start_offset = partition.log_start
        self._broker.metrics.produced(partition.topic_name, header.record_count, 1, len(batch))
        return appended

    def _find(self, topic: TopicData, data: PartitionData) -> Partition:
        known = self._broker.catalog.resolve(topic.name, topic.topic_id)
        if known.is_internal:
            raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic {known.name} is written by the broker alone.")
        return known.partition(data.index)

    def _check_entered(self, partition: Partition, header: BatchHeader) -> None:
        if self._request.transactional_id is None:
            raise RequestError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "The request names no transactional id."
            )
        if self._entrant is None:
            raise RequestError(ErrorCode.INVALID_REQUEST, "Batches of several producers in one transactional request.")
        if partition.id in self._refused:
            raise self._refused[partition.id]

    def answer(self) -> Answer:
        if not self._waiting:
            return self._finish()
        loop = asyncio.get_running_loop()
        self._answer = loop.create_future()
        for committed in self._waiting:
            committed.add_done_callback(self._committed)
        if self._request.acks == -1:
            self._timer = loop.call_later(max(self._request.timeout_ms, 0) / 1000, self._time_out)
        return self._answer

    def _committed(self, committed: "asyncio.Future[None]") -> None:
        results = self._waiting.pop(committed, [])
        error = None if committed.cancelled() else committed.exception()
        if isinstance(error, RequestError):
            for result in results:
                _fail(result, error)
        if not self._waiting:
            self._settle()

    def _time_out(self) -> None:
        for results in self._waiting.values():
            for result in results:
                _fail(result, RequestError(ErrorCode.REQUEST_TIMED_OUT))
        self._waiting.clear()
        self._settle()

    def _settle(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._answer is None or self._answer.done():
            return
        try:
            self._answer.set_result(self._finish())
        except CloseConnection as error:
            self._answer.set_exception(error)

    def _finish(self) -> Pieces | None:
        errors = [result for topic in self._results for result in topic.partitions if result.error_code]
        for result in errors:
            self._broker.metrics.error(API.name, result.error_code)
        if self._request.acks != 0:
            return [produce.write_response(self._context.header, self._results)]
        if errors:
            raise CloseConnection(f"acks=0 and {errors[0].error_code.name}: the client has no other way to learn of it")
        return None


def _fail(result: PartitionResult, error: RequestError) -> None:
    result.error_code = error.code
    result.error_message = error.message
    result.base_offset = -1
    result.log_append_time_ms = -1
    result.log_start_offset = -1
