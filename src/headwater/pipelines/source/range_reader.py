"""One range of offsets, from the first record to the last, as a task of Spark reads it.

The next fetch is sent before the last one is decoded, so that broker and reader work at the same time. A leader that
moves, a broker that restarts and a range that is no longer there are met here, and either overcome or reported.
"""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from headwater.client.blocking_connection import BlockingConnection
from headwater.client.errors import ConnectionLost
from headwater.client.exchange import Sent
from headwater.client.fetch import FetchedPartition, FetchLimits, FetchPosition, PlainFetch, plain_fetch
from headwater.client.offsets import EARLIEST, LATEST
from headwater.logs.events import log_event
from headwater.model.errors import ErrorCode
from headwater.pipelines.client.cluster_client import ClusterClient, backoff
from headwater.pipelines.client.offsets import OffsetRange
from headwater.pipelines.client.refusals import check_partition
from headwater.pipelines.errors import RetriableError, UnknownTopic, UnreadableRecords
from headwater.pipelines.source.data_loss import Losses
from headwater.pipelines.source.decoding.decoder import Decoder
from headwater.pipelines.source.decoding.selection import Selection, select_batches
from headwater.records.batch import CorruptBatch, InvalidBatch
from headwater.records.compression import DecompressedTooLarge
from headwater.wire.typed.fetch import FetchResponse

SMALLEST_FETCH_BYTES = 64 * 1024
FIRST_GUESS_ROW_BYTES = 1024
ROOM = 1.25
"""More is asked for than the rows that were seen would need, because a fetch for the rest costs a round trip."""
GAP_TIMEOUT_MS = 20_000
"""A broker that has offsets up to the range's end, and says for so long that there are no records, has compacted them.
It may also wait for storage that is far away, which must not be taken for a gap."""
MAX_THROTTLE_MS = 30_000
NEW_TOPIC_TIMEOUT_MS = 5_000
"""A broker may learn of a topic later than the broker that named it to us."""


@dataclass(frozen=True, slots=True)
class _Underway:
    """A fetch that has no response yet, and the connection to the leader."""

    connection: BlockingConnection
    fetch: PlainFetch
    sent: Sent[FetchResponse]


class RangeReader:
    def __init__(
        self, cluster: ClusterClient, offset_range: OffsetRange, schema: pa.Schema, losses: Losses, poll_timeout_ms: int
    ) -> None:
        self._cluster = cluster
        self._range = offset_range
        self._position = offset_range.start
        self._decoder = Decoder(offset_range.topic, offset_range.partition, schema)
        self._losses = losses
        self._poll_timeout_ms = poll_timeout_ms
        self._underway: _Underway | None = None
        self._row_bytes = float(FIRST_GUESS_ROW_BYTES)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Raises DataLost if a part of the range is gone, UnreadableRecords if it is damaged."""
        try:
            while (fetched := self._next()) is not None:
                start = self._position
                selection = self._select(fetched)
                self._position = selection.next_offset
                if self._position < self._range.end:
                    self._send_ahead()
                yield from self._decode(fetched, selection, start)
        finally:
            self._hang_up()

    def _next(self) -> FetchedPartition | None:
        """What lies at the position, or None if the range has nothing more."""
        pauses, topic_pauses = backoff(self._poll_timeout_ms), backoff(NEW_TOPIC_TIMEOUT_MS)
        gap_pauses = backoff(min(GAP_TIMEOUT_MS, self._poll_timeout_ms))
        while self._position < self._range.end:
            try:
                fetched = self._exchange()
            except UnknownTopic as error:
                self._look_again()
                if not topic_pauses.pause():
                    self._give_up(str(error).rstrip("."))
            except ConnectionLost as error:
                self._look_again()
                if not pauses.pause():
                    raise self._cluster.unreachable(error) from error
            except RetriableError:
                self._look_again()
                if not pauses.pause():
                    raise
            else:
                if fetched.records:
                    return fetched
                if self._readable_end(fetched) >= self._range.end:
                    if not gap_pauses.pause():
                        self._pass_gap()
                elif not pauses.pause():
                    self._give_up(f"the log ends at {self._readable_end(fetched)}, and did not grow")
        return None

    def _exchange(self) -> FetchedPartition:
        """The answer to the fetch that is under way, or to a new one."""
        if self._underway is None:
            self._underway = self._send()
        underway, address = self._underway, self._underway.connection.address
        answer = underway.fetch.read(underway.connection.receive(underway.sent))
        self._underway = None
        partition = self._range.topic_partition
        check_partition(answer.error_code, address, partition)
        fetched = answer.partitions.get(partition)
        if fetched is None:
            raise RetriableError(f"Broker {address} left {partition} out in its answer.")
        if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._skip_lost()
            raise RetriableError(f"Broker {address} has no offset {self._position} of {partition}.")
        check_partition(fetched.error_code, address, partition)
        if answer.throttle_ms > 0 and not fetched.records:
            time.sleep(min(answer.throttle_ms, MAX_THROTTLE_MS) / 1000)
            raise RetriableError(f"Broker {address} holds this client back.")
        return fetched

    def _send(self) -> _Underway:
        topic, config = self._range.topic, self._cluster.config
        connection = self._cluster.leader(self._range.topic_partition)
        known_id = self._cluster.topic_id(topic)
        if None not in (known_id, self._range.topic_id) and known_id != self._range.topic_id:
            raise UnknownTopic(f"topic {topic} was deleted and made again")
        rows_left = self._range.end - self._position
        needed_bytes = int(rows_left * self._row_bytes * ROOM)
        max_bytes = min(max(needed_bytes, SMALLEST_FETCH_BYTES), config.fetch_bytes)
        limits = FetchLimits(config.fetch_wait_ms, max_bytes, config.isolation_level)
        position = FetchPosition(self._range.topic_partition, self._position, self._range.topic_id)
        fetch = plain_fetch([position], limits)
        sent = connection.send(fetch.request, at_most=fetch.at_most, wait_ms=limits.max_wait_ms)
        return _Underway(connection, fetch, sent)

    def _send_ahead(self) -> None:
        try:
            self._underway = self._send()
        except (ConnectionLost, RetriableError, UnknownTopic):
            self._look_again()  # when the answer is needed, there is time to try again

    def _skip_lost(self) -> None:
        """Go on where the log begins now, or give up if it does not reach so far."""
        partition = self._range.topic_partition
        earliest = self._cluster.list_offsets({partition: EARLIEST})[partition]
        latest = self._cluster.list_offsets({partition: LATEST})[partition]
        if self._position < earliest:
            first_there = min(earliest, self._range.end)
            reason = f"the log begins at {earliest} now, because of its retention or a deletion"
            self._losses.report(partition, self._position, first_there, reason)
            self._position = first_there
        elif self._position > latest:
            self._give_up(f"the log ends at {latest}; was the topic deleted and made again?")

    def _give_up(self, reason: str) -> None:
        self._losses.report(self._range.topic_partition, self._position, self._range.end, reason)
        self._position = self._range.end

    def _pass_gap(self) -> None:
        offset_range = self._range
        log_event(
            "no_records_in_range",
            logging.WARNING,
            topic=offset_range.topic,
            partition=offset_range.partition,
            first_offset=self._position,
            last_offset=offset_range.end - 1,
        )
        self._position = offset_range.end

    def _readable_end(self, fetched: FetchedPartition) -> int:
        return fetched.last_stable_offset if self._cluster.config.is_read_committed else fetched.high_watermark

    def _select(self, fetched: FetchedPartition) -> Selection:
        aborted = fetched.aborted if self._cluster.config.is_read_committed else None
        try:
            selection = select_batches(fetched.records, self._position, self._range.end, aborted)
        except CorruptBatch as error:
            raise self._unreadable(self._position, error) from error
        offsets = selection.next_offset - self._position
        if offsets <= 0:
            raise self._unreadable(self._position, CorruptBatch("the batch there is cut off"))
        self._row_bytes = len(fetched.records) / offsets
        return selection

    def _decode(self, fetched: FetchedPartition, selection: Selection, start: int) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._decoder.decode(fetched.records, selection.batches, start, self._range.end)
        except (CorruptBatch, InvalidBatch, DecompressedTooLarge) as error:
            raise self._unreadable(start, error) from error

    def _unreadable(self, start: int, error: Exception) -> UnreadableRecords:
        return UnreadableRecords(
            f"Records of topic {self._range.topic}, partition {self._range.partition}, at offset {start} or after "
            f"it, cannot be read: {error}. To go on behind them, start a query with startingOffsets after them."
        )

    def _look_again(self) -> None:
        """The leader is elsewhere, or the connection is of no use."""
        self._hang_up()
        self._cluster.forget(self._range.topic)

    def _hang_up(self) -> None:
        """A response that is still under way would be taken for the next one."""
        if self._underway is not None:
            self._underway.connection.close()
            self._underway = None
