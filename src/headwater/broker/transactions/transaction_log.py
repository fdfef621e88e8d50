"""One shard of the transactional ids and the partition that remembers it (`state/shard_log`).

Nothing that follows from a decision, neither a reply nor a marker, leaves before every event decided up to then is
committed.

That a transaction is complete is logged a moment later, with what comes next: nothing follows from it, and the next
transaction of the same producer takes its place.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from headwater.broker.log.partition import Partition
from headwater.broker.state.record_log import Spawn
from headwater.broker.state.shard_log import ShardLog, give
from headwater.logs.events import log_event
from headwater.model.clock import Clock
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.moment import Moment, moment
from headwater.records.record import Record
from headwater.transactions.connections import Connections
from headwater.transactions.effects import TransactionEffects, WriteMarkers
from headwater.transactions.event_bytes import decode, encode
from headwater.transactions.events import Event
from headwater.transactions.settings import TransactionSettings
from headwater.transactions.shard import TransactionShard

HOLD_S = 0.1
"""How long a completion waits for another write. After a crash within that time the markers are written again."""


class TransactionLog:
    def __init__(
        self,
        partition: Partition,
        settings: TransactionSettings,
        clock: Clock,
        spawn: Spawn,
        on_deadline: Callable[[int], None],
        on_markers: Callable[["TransactionLog", TransactionShard, WriteMarkers], None],
    ) -> None:
        """`on_deadline` is called with the shard's next deadline after every decision; `on_markers` with markers that
        are due now: it must report each that is written."""
        self._settings = settings
        self._clock = clock
        self._on_deadline = on_deadline
        self._on_markers = on_markers
        self._connections = Connections()
        """Outlives the shard: a replay in a living process leaves late requests where they are."""
        self._held: dict[str, Event] = {}
        """The last event of a transactional id, if it is not logged yet."""
        self._is_timed = False
        """Whether a timer runs at whose end the held events are logged."""
        self.shard_log = ShardLog(partition, clock, spawn, self)

    @property
    def coordinator_epoch(self) -> int:
        """Grows with each leader of the partition; markers carry it, so that those of an older leader are refused."""
        return self.shard_log.partition.leader_epoch

    @property
    def is_loaded(self) -> bool:
        return self.shard_log.is_loaded

    @property
    def shard(self) -> TransactionShard:
        """The transactional ids. Raises RequestError while they are being read."""
        return self.shard_log.shard

    def is_run_by(self, shard: TransactionShard) -> bool:
        """Whether this shard still decides, and was not replaced by a replay."""
        return self.shard_log.is_run_by(shard)

    def now(self) -> Moment:
        return moment(self._clock)

    def release(self, effects: TransactionEffects) -> None:
        """Log the events; replies and markers follow when they, and all decided before them, are committed."""
        if effects.can_wait:
            self._hold(effects.events)
        else:
            self._write(effects)
        if self.is_loaded and (next_ms := self.shard.next_deadline_ms()) is not None:
            self._on_deadline(next_ms)

    def _hold(self, events: Iterable[Event]) -> None:
        for event in events:
            self._held[event.transactional_id] = event
        if self._held and not self._is_timed:
            self._is_timed = True
            asyncio.get_running_loop().call_later(HOLD_S, self._write_held)

    def _write_held(self) -> None:
        self._is_timed = False
        if self._held:
            self._write(TransactionEffects())

    def _write(self, effects: TransactionEffects) -> None:
        for event in effects.events:
            self._held.pop(event.transactional_id, None)
        events, self._held = [*self._held.values(), *effects.events], {}
        self.shard_log.write([Record(*encode(event)) for event in events], partial(self._committed, effects))

    def _committed(self, effects: TransactionEffects, error: RequestError | None) -> None:
        give(effects.replies, error)
        if error is None and self.is_loaded:
            for markers in effects.markers:
                self._on_markers(self, self.shard, markers)

    # Called by the shard log

    def new_shard(self) -> TransactionShard:
        return TransactionShard(self._settings, self._connections)

    def replay(self, shard: TransactionShard, record: Record) -> None:
        event = decode(record.key or b"", record.value)
        if event is not None:
            shard.apply(event)

    def loaded(self, shard: TransactionShard, record_count: int) -> None:
        """Markers of transactions that were decided and may not be marked everywhere are due again."""
        effects = shard.resume(self.now())
        if record_count:
            log_event(
                "transactions_loaded", partition=self.shard_log.partition.id.index, records=record_count, ids=len(shard)
            )
        self.release(effects)

    def dropped(self, shard: TransactionShard, code: ErrorCode, error: RequestError) -> None:
        """Completions that were held are dropped, too: a replay of the log brings their markers back."""
        self._held.clear()
        give(shard.kill(code).replies, error)
