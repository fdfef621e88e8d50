"""Produce (0): append batches. Versions 3 to 13 are served; 0 is advertised as the lowest, because older librdkafka
otherwise sends its batches uncompressed (KAFKA-18659).

    acks  0 no answer (an error closes the connection, as in Kafka), 1 the first replica has the batch, -1 all have it
"""

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from headwater.broker.api import Api, RequestContext
from headwater.broker.log.batch_rules import InvalidRecords, admit
from headwater.broker.log.partition import Partition
from headwater.broker.transactions.transaction_gate import Entrant, Question, Turn
from headwater.broker.validation.schema_gate import Turn as SchemaTurn
from headwater.broker.validation.schema_rules import check_schemas
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId
from headwater.records.batch import BatchHeader, CorruptBatch, InvalidBatch, parse_header
from headwater.transport.connection import Answer, CloseConnection, Pieces
from headwater.wire import produce
from headwater.wire.produce import PartitionData, ProducePartitionResult, ProduceRequest, ProduceTopicResult, TopicData

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=produce.KEY,
    name="Produce",
    min_version=produce.MIN_VERSION,
    max_version=produce.MAX_VERSION,
    advertised_min_version=0,
    overlaps=True,
)

_ACKS = (-1, 0, 1)
FIRST_WITH_ABORTABLE = 11
FIRST_ADDING_PARTITIONS = 12
"""From here on a producer leaves it to the broker to add partitions to its transaction (KIP-890)."""


def handle_frame(broker: "Broker", frame: bytearray, context: RequestContext) -> Answer:
    request = produce.read_request(frame, context.header)
    producing = _Producing(broker, context, request)
    producing.check_all()
    if producing.waits_for_schemas:
        return producing.append_after_schemas()
    return producing.append()


class _Checked(NamedTuple):
    """A batch that may be appended, and the result that it will have."""

    partition: Partition
    batch: memoryview | bytearray
    header: BatchHeader
    result: ProducePartitionResult


class _Producing:
    """One request under way: its results, and how many of its batches are not committed yet."""

    def __init__(self, broker: "Broker", context: RequestContext, request: ProduceRequest) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._results: list[ProduceTopicResult] = []
        self._checked: list[_Checked] = []
        self._validated: list[_Checked] = []
        """Those of topics whose schemas are validated."""
        self._waiting: dict[asyncio.Future[None], list[ProducePartitionResult]] = {}
        self._answer: asyncio.Future[Pieces | None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def check_all(self) -> None:
        """Everything that a batch can be asked by itself, before any is appended."""
        now_ms = self._broker.clock.now_ms()
        for topic in self._request.topics:
            results: list[ProducePartitionResult] = []
            self._results.append(ProduceTopicResult(topic.name, topic.topic_id, results))
            for data in topic.partitions:
                result = ProducePartitionResult(data.index)
                results.append(result)
                try:
                    self._checked.append(self._check(topic, data, result, now_ms))
                except InvalidRecords as error:
                    _fail(result, error)
                    result.record_errors = error.records
                except RequestError as error:
                    _fail(result, error)

    def _check(self, topic: TopicData, data: PartitionData, result: ProducePartitionResult, now_ms: int) -> _Checked:
        if self._request.acks not in _ACKS:
            raise RequestError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is -1, 0 or 1, not {self._request.acks}.")
        known = self._broker.catalog.resolve(topic.name, topic.topic_id)
        if known.is_internal:
            raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic {known.name} is written by the broker alone.")
        try:
            partition = known.partition(data.index)
        except RequestError as error:
            raise self._not_led(PartitionId(known.topic_id, data.index), data, error) from error
        if data.records is None:
            raise RequestError(ErrorCode.INVALID_RECORD, "A partition was named without a batch.")
        batch, header = admit(data.records, partition.config, now_ms, self._context.api_version)
        if header.is_transactional and self._request.transactional_id is None:
            raise RequestError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "The request names no transactional id."
            )
        checked = _Checked(partition, batch, header, result)
        if partition.config.schema_validation or partition.config.key_schema_validation:
            self._validated.append(checked)
        return checked

    # Schemas

    @property
    def waits_for_schemas(self) -> bool:
        """Whether a record's schema is not known yet, or somebody before waits because of that."""
        if not self._validated:
            return False
        gate = self._broker.schema_gate
        gate.follower.refresh()
        return gate.is_busy or any(self._schema_fault(checked) is not None for checked in self._validated)

    def append_after_schemas(self) -> Answer:
        turn = self._broker.schema_gate.queue()
        appending = asyncio.get_running_loop().create_task(self._append_after_schemas(turn))
        appending.add_done_callback(lambda _: turn.leave())  # a client that goes may cancel it before it begins
        return appending

    async def _append_after_schemas(self, turn: SchemaTurn) -> Pieces | None:
        async with turn:
            unavailable: RequestError | None = None
            if any(self._schema_fault(checked) is not None for checked in self._validated):
                try:
                    await self._broker.schema_gate.follower.catch_up()
                except RequestError as error:
                    unavailable = error
            for checked in self._validated:
                fault = self._schema_fault(checked)
                if fault is not None:
                    self._checked = [each for each in self._checked if each is not checked]
                    _fail(checked.result, unavailable or fault)
                    if unavailable is None and isinstance(fault, InvalidRecords):
                        checked.result.record_errors = fault.records
            answer = self.append()
        return await answer if isinstance(answer, asyncio.Future) else answer

    def _schema_fault(self, checked: _Checked) -> RequestError | None:
        partition, registry = checked.partition, self._broker.schema_gate.follower.registry
        try:
            check_schemas(checked.batch, checked.header, partition.topic_name, partition.config, registry)
        except RequestError as error:
            return error
        return None

    def _not_led(self, partition: PartitionId, data: PartitionData, error: RequestError) -> RequestError:
        """It may be led here a moment later, when the next request comes."""
        try:
            header = parse_header(data.records or b"")
        except (CorruptBatch, InvalidBatch):
            return error
        return self._broker.refusals.refuse(partition, header, error, self._broker.clock.monotonic())

    def append(self) -> Answer:
        if self._request.transactional_id is not None:
            return self.append_in_transaction(self._request.transactional_id)
        self.append_all()
        return self.answer()

    def append_in_transaction(self, transactional_id: str) -> Answer:
        """At once where the transaction is open already, else when the coordinator has been asked."""
        transactional = [checked for checked in self._checked if checked.header.is_transactional]
        producers = {(checked.header.producer_id, checked.header.producer_epoch) for checked in transactional}
        if len(producers) == 1:
            partitions = tuple(checked.partition for checked in transactional)
            (producer_id, producer_epoch), *_ = producers
            if not self._broker.transaction_gate.is_open(producer_id, producer_epoch, partitions):
                version = 2 if self._context.api_version >= FIRST_ADDING_PARTITIONS else 1
                understands_abortable = self._context.api_version >= FIRST_WITH_ABORTABLE
                return self._enter(
                    Entrant(transactional_id, producer_id, producer_epoch, partitions, version, understands_abortable)
                )
        elif producers:
            several = RequestError(
                ErrorCode.INVALID_REQUEST, "Batches of several producers in one transactional request."
            )
            self._refuse({checked.partition.id: several for checked in transactional})
        self.append_all()
        return self.answer()

    def _enter(self, entrant: Entrant) -> Answer:
        gate = self._broker.transaction_gate
        question = None if gate.has_queue(entrant.producer_id) else gate.ask(entrant)
        if question is not None and question.is_answered:
            self._refuse(question.refused())
            question.close()
            self.append_all()
            return self.answer()
        turn = gate.queue(entrant.producer_id)
        entering = asyncio.get_running_loop().create_task(self._enter_later(entrant, turn, question))

        def done(_: object) -> None:  # a client that goes may cancel it before it begins
            turn.leave()
            if question is not None:
                question.close()

        entering.add_done_callback(done)
        return entering

    async def _enter_later(self, entrant: Entrant, turn: Turn, question: Question | None) -> Pieces | None:
        async with turn:
            question = question or self._broker.transaction_gate.ask(entrant)
            try:
                await question.answered()
                self._refuse(question.refused())
            finally:
                question.close()
            self.append_all()
        answer = self.answer()
        return await answer if isinstance(answer, asyncio.Future) else answer

    def _refuse(self, refused: dict[PartitionId, RequestError]) -> None:
        """Transactional batches for these partitions are not appended."""
        if not refused:
            return
        admitted = []
        for checked in self._checked:
            error = refused.get(checked.partition.id)
            if error is not None and checked.header.is_transactional:
                _fail(checked.result, error)
            else:
                admitted.append(checked)
        self._checked = admitted

    def append_all(self) -> None:
        for partition, batch, header, result in self._checked:
            refusals = self._broker.refusals
            try:
                if refusals and header.producer_id not in partition.producers:
                    behind = refusals.behind(partition.id, header, self._broker.clock.monotonic())
                    if behind is not None:
                        raise behind
                appended = partition.append(batch, header, for_one=self._request.acks == 1)
            except RequestError as error:
                _fail(result, refusals.refuse(partition.id, header, error, self._broker.clock.monotonic()))
                continue
            if refusals:
                refusals.took(partition.id, header)
            result.base_offset = appended.base_offset
            result.log_append_time_ms = appended.log_append_time_ms
            result.log_start_offset = partition.log_start
            self._broker.metrics.produced(partition.topic_name, header.record_count, 1, len(batch))
            if appended.committed is not None:
                self._waiting.setdefault(appended.committed, []).append(result)

    def answer(self) -> "Pieces | asyncio.Future[Pieces | None] | None":
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


def _fail(result: ProducePartitionResult, error: RequestError) -> None:
    result.error_code = error.code
    result.error_message = error.message
    result.base_offset = -1
    result.log_append_time_ms = -1
    result.log_start_offset = -1
