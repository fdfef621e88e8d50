"""One produce under way: check its batches, pass the gates, append, and wait until the batches are committed.

Every batch is checked before any is appended; a batch that is refused does not hold up the others of its request.
Two gates may hold a request up: that of the schemas, for topics whose records are validated, then that of the
transactions, for batches of a transaction that is not known to be open in their partition. A request that passes both
at once needs neither a task nor an await. The response is made when all appended batches are on as many replicas as
`acks` says or, with acks=-1, when the request's time is over. A client that lost rights while it waited at a gate is
judged again. Work here is per batch, never per record.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from headwater.broker.access.client_access import ClientAccess
from headwater.broker.log.batch_rules import InvalidRecords, admit
from headwater.broker.log.partition import Partition
from headwater.broker.log.refused_batches import RefusedBatches
from headwater.broker.metrics.metrics import Metrics
from headwater.broker.produce.produce_access import transaction_refusal, unnamed_transaction, write_refusal
from headwater.broker.topics.catalog import Catalog
from headwater.broker.transactions.transaction_gate import AdmissionRequest, Entrant, QueuePosition, TransactionGate
from headwater.broker.validation.schema_gate import SchemaGate, SchemaQueuePosition
from headwater.broker.validation.schema_rules import check_schemas
from headwater.model.clock import Clock
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NO_OFFSET, PartitionId
from headwater.records.batch import BatchHeader, CorruptBatch, InvalidBatch, parse_header
from headwater.transport.connection import Answer, CloseConnection, Pieces
from headwater.wire.messages import RequestHeader
from headwater.wire.produce import PartitionData, ProducePartitionResult, ProduceRequest, ProduceTopicResult, TopicData

FIRST_WITH_ABORTABLE = 11
FIRST_ADDING_PARTITIONS = 12
"""From this version on a producer leaves it to the broker to add partitions to its transaction (KIP-890)."""
_ACKS = (-1, 0, 1)

Respond: TypeAlias = Callable[[RequestHeader, ProduceRequest, list[ProduceTopicResult], Metrics], Pieces | None]
"""Makes the response when all results are final. May raise CloseConnection."""


class ProducePorts(Protocol):
    """The parts of the node that a produce uses."""

    @property
    def catalog(self) -> Catalog: ...

    @property
    def schema_gate(self) -> SchemaGate: ...

    @property
    def transaction_gate(self) -> TransactionGate: ...

    @property
    def refusals(self) -> RefusedBatches: ...

    @property
    def metrics(self) -> Metrics: ...

    @property
    def clock(self) -> Clock: ...


class _Checked(NamedTuple):
    """A batch that may be appended, and the result that it will have."""

    partition: Partition
    batch: memoryview | bytearray
    header: BatchHeader
    result: ProducePartitionResult


class Producing:
    """One request: its results, and which of its batches are not committed yet."""

    def __init__(
        self,
        ports: ProducePorts,
        access: ClientAccess,
        header: RequestHeader,
        request: ProduceRequest,
        respond: Respond,
    ) -> None:
        self._ports = ports
        self._access = access
        self._judged_version = access.version
        """Of the bindings by which the client was last judged."""
        self._header = header
        self._request = request
        self._respond = respond
        self._results: list[ProduceTopicResult] = []
        self._checked: list[_Checked] = []
        self._validated: list[_Checked] = []
        """The batches for topics whose schemas are validated."""
        self._waiting: dict[asyncio.Future[None], list[ProducePartitionResult]] = {}
        self._answer: asyncio.Future[Pieces | None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def run(self) -> Answer:
        self._check_all()
        if self._validated and self._must_wait_for_schemas():
            return self._append_later()
        return self._append()

    # Checks

    def _check_all(self) -> None:
        """The checks that need nothing but the batch and its topic, before any batch is appended."""
        now_ms = self._ports.clock.now_ms()
        is_restricted = self._access.is_restricted
        refused = transaction_refusal(self._access, self._request) if is_restricted else None
        for topic in self._request.topics:
            refusal = refused
            if is_restricted and refused is None:
                refusal = write_refusal(self._access, self._ports.catalog, topic)
            results: list[ProducePartitionResult] = []
            self._results.append(ProduceTopicResult(topic.name, topic.topic_id, results))
            for data in topic.partitions:
                result = ProducePartitionResult(data.index)
                results.append(result)
                if refusal is not None:
                    _fail(result, refusal)
                    continue
                try:
                    self._checked.append(self._check(topic, data, result, now_ms))
                except RequestError as error:
                    _fail(result, error)

    def _check_again(self) -> None:
        """After a wait: what the client may not write any more is not appended."""
        if self._access.version == self._judged_version:
            return
        self._judged_version = self._access.version
        refused = transaction_refusal(self._access, self._request)
        for topic, results in zip(self._request.topics, self._results, strict=True):
            refusal = refused or write_refusal(self._access, self._ports.catalog, topic)
            if refusal is not None:
                lost = set(map(id, results.partitions))
                for checked in self._checked:
                    if id(checked.result) in lost:
                        _fail(checked.result, refusal)
                self._checked = [each for each in self._checked if id(each.result) not in lost]

    def _check(self, topic: TopicData, data: PartitionData, result: ProducePartitionResult, now_ms: int) -> _Checked:
        if self._request.acks not in _ACKS:
            raise RequestError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is -1, 0 or 1, not {self._request.acks}.")
        known = self._ports.catalog.resolve(topic.name, topic.topic_id)
        if known.is_internal:
            raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic {known.name} is written by the broker alone.")
        try:
            partition = known.partition(data.index)
        except RequestError as error:
            raise self._not_led(PartitionId(known.topic_id, data.index), data, error) from error
        if data.records is None:
            raise RequestError(ErrorCode.INVALID_RECORD, "A partition was named without a batch.")
        batch, header = admit(data.records, partition.config, now_ms, self._header.api_version)
        if header.is_transactional and self._request.transactional_id is None:
            raise unnamed_transaction()
        checked = _Checked(partition, batch, header, result)
        if partition.config.schema_validation or partition.config.key_schema_validation:
            self._validated.append(checked)
        return checked

    def _not_led(self, partition: PartitionId, data: PartitionData, error: RequestError) -> RequestError:
        """The refusal is remembered: the partition may be led here when the producer's next batch comes."""
        try:
            header = parse_header(data.records or b"")
        except (CorruptBatch, InvalidBatch):
            return error
        return self._ports.refusals.refuse(partition, header, error, self._ports.clock.monotonic())

    # The gate of the schemas

    def _must_wait_for_schemas(self) -> bool:
        """Whether a record's schema is not known yet, or an earlier request waits for that reason."""
        gate = self._ports.schema_gate
        gate.follower.refresh()
        return gate.is_busy or any(self._schema_fault(checked) is not None for checked in self._validated)

    def _append_later(self) -> Answer:
        position = self._ports.schema_gate.queue()
        appending = asyncio.get_running_loop().create_task(self._append_after_schemas(position))
        appending.add_done_callback(lambda _: position.leave())  # a client that goes may cancel it before it begins
        return appending

    async def _append_after_schemas(self, position: SchemaQueuePosition) -> Pieces | None:
        async with position:
            unavailable: RequestError | None = None
            if any(self._schema_fault(checked) is not None for checked in self._validated):
                try:
                    await self._ports.schema_gate.follower.catch_up()
                except RequestError as error:
                    unavailable = error
            for checked in self._validated:
                fault = self._schema_fault(checked)
                if fault is not None:
                    self._checked = [each for each in self._checked if each is not checked]
                    _fail(checked.result, unavailable or fault)
            self._check_again()
            answer = self._append()
        return await answer if isinstance(answer, asyncio.Future) else answer

    def _schema_fault(self, checked: _Checked) -> RequestError | None:
        partition, registry = checked.partition, self._ports.schema_gate.follower.registry
        try:
            check_schemas(checked.batch, checked.header, partition.topic_name, partition.config, registry)
        except RequestError as error:
            return error
        return None

    # The gate of the transactions

    def _append(self) -> Answer:
        if self._request.transactional_id is not None:
            return self._append_in_transaction(self._request.transactional_id)
        self._append_all()
        return self._wait()

    def _append_in_transaction(self, transactional_id: str) -> Answer:
        """At once where the transaction is open already, else when the coordinator has answered."""
        transactional = [checked for checked in self._checked if checked.header.is_transactional]
        producers = {(checked.header.producer_id, checked.header.producer_epoch) for checked in transactional}
        if len(producers) == 1:
            partitions = tuple(checked.partition for checked in transactional)
            (producer_id, producer_epoch), *_ = producers
            if not self._ports.transaction_gate.is_open(producer_id, producer_epoch, partitions):
                return self._enter(
                    Entrant(
                        transactional_id=transactional_id,
                        producer_id=producer_id,
                        producer_epoch=producer_epoch,
                        partitions=partitions,
                        version=2 if self._header.api_version >= FIRST_ADDING_PARTITIONS else 1,
                        understands_abortable=self._header.api_version >= FIRST_WITH_ABORTABLE,
                    )
                )
        elif producers:
            several = RequestError(
                ErrorCode.INVALID_REQUEST, "Batches of several producers in one transactional request."
            )
            self._refuse({checked.partition.id: several for checked in transactional})
        self._append_all()
        return self._wait()

    def _enter(self, entrant: Entrant) -> Answer:
        gate = self._ports.transaction_gate
        admission = None if gate.has_queue(entrant.producer_id) else gate.ask(entrant)
        if admission is not None and admission.is_answered:
            self._refuse(admission.refused())
            admission.close()
            self._append_all()
            return self._wait()
        position = gate.queue(entrant.producer_id)
        entering = asyncio.get_running_loop().create_task(self._enter_later(entrant, position, admission))

        def done(_: object) -> None:  # a client that goes may cancel it before it begins
            position.leave()
            if admission is not None:
                admission.close()

        entering.add_done_callback(done)
        return entering

    async def _enter_later(
        self, entrant: Entrant, position: QueuePosition, admission: AdmissionRequest | None
    ) -> Pieces | None:
        async with position:
            admission = admission or self._ports.transaction_gate.ask(entrant)
            try:
                await admission.answered()
                self._refuse(admission.refused())
            finally:
                admission.close()
            self._check_again()
            self._append_all()
        answer = self._wait()
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

    # The log

    def _append_all(self) -> None:
        for partition, batch, header, result in self._checked:
            refusals = self._ports.refusals
            try:
                if refusals and header.producer_id not in partition.producers:
                    behind = refusals.behind(partition.id, header, self._ports.clock.monotonic())
                    if behind is not None:
                        raise behind
                appended = partition.append(batch, header, for_one=self._request.acks == 1)
            except RequestError as error:
                _fail(result, refusals.refuse(partition.id, header, error, self._ports.clock.monotonic()))
                continue
            if refusals:
                refusals.took(partition.id, header)
            result.base_offset = appended.base_offset
            result.log_append_time_ms = appended.log_append_time_ms
            result.log_start_offset = partition.log_start
            self._ports.metrics.produced(partition.topic_name, header.record_count, 1, len(batch))
            if appended.committed is not None:
                self._waiting.setdefault(appended.committed, []).append(result)

    def _wait(self) -> "Pieces | asyncio.Future[Pieces | None] | None":
        """The response, or a future of it if batches are not committed yet."""
        if not self._waiting:
            return self._respond(self._header, self._request, self._results, self._ports.metrics)
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
            self._finish()

    def _time_out(self) -> None:
        for results in self._waiting.values():
            for result in results:
                _fail(result, RequestError(ErrorCode.REQUEST_TIMED_OUT))
        self._waiting.clear()
        self._finish()

    def _finish(self) -> None:
        """Nothing is waited for any more: resolve the future of the response, unless the client has gone."""
        if self._timer is not None:
            self._timer.cancel()
        if self._answer is None or self._answer.done():
            return
        try:
            self._answer.set_result(self._respond(self._header, self._request, self._results, self._ports.metrics))
        except CloseConnection as error:
            self._answer.set_exception(error)


def _fail(result: ProducePartitionResult, error: RequestError) -> None:
    result.error_code = error.code
    result.error_message = error.message
    result.base_offset = NO_OFFSET
    result.log_append_time_ms = -1
    result.log_start_offset = NO_OFFSET
    if isinstance(error, InvalidRecords):
        result.record_errors = error.records
