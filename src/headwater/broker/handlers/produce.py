"""Produce (0): append batches. Versions 3 to 13 are served; 0 is advertised as the lowest, because older librdkafka
otherwise sends its batches uncompressed (KAFKA-18659).

    acks  0 no answer (an error closes the connection, as in Kafka), 1 and -1 the batch is committed: with one replica
          both mean the same
"""

import asyncio
from typing import TYPE_CHECKING

from headwater.broker.batch_rules import InvalidRecords, admit
from headwater.broker.dispatch import Api, RequestContext
from headwater.broker.partition import Appended
from headwater.model.errors import ErrorCode, RequestError
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


def handle_frame(broker: "Broker", frame: bytearray, context: RequestContext) -> Answer:
    request = produce.read_request(frame, context.header)
    producing = _Producing(broker, context, request)
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
        known = self._broker.catalog.resolve(topic.name, topic.topic_id)
        partition = known.partition(data.index)
        if known.is_internal:
            raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic {known.name} is written by the broker alone.")
        if data.records is None:
            raise RequestError(ErrorCode.INVALID_RECORD, "A partition was named without a batch.")
        batch, header = admit(data.records, partition.config, self._broker.clock.now_ms(), self._context.api_version)
        if header.is_transactional:
            raise RequestError(ErrorCode.INVALID_TXN_STATE, "Transactions are not supported yet.")
        appended = partition.append(batch, header)
        result.log_start_offset = partition.log_start
        self._broker.metrics.produced(known.name, header.record_count, 1, len(batch))
        return appended

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
