"""The audit topic as commands read it: from a time on, in its order, and what comes meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from headwater.broker.audit.audit_event import AuditRecord, CorruptAuditRecord
from headwater.cli.output import CommandFailed, note
from headwater.model.cluster import AUDIT_TOPIC
from headwater.model.errors import ErrorCode

if TYPE_CHECKING:
    from headwater.client.blocking_cluster import BlockingCluster
    from headwater.client.fetch import FetchedPartition
    from headwater.client.topic_partition import TopicPartition

MAX_WAIT_MS: Final = 500
MAX_BYTES: Final = 4 * 1024 * 1024
PATIENCE_S: Final = 30.0
"""For a partition that is being moved to another leader."""
PASSING: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_OUT_OF_RANGE})
"""Another node leads by now; or retention was faster, and the next try begins where the log does."""


class AuditReader:
    def __init__(self, cluster: "BlockingCluster", since_ms: int) -> None:
        """Events that lasted until `since_ms`, or happened later. Raises CommandFailed, ClientError."""
        self._cluster = cluster
        self._since_ms = since_ms
        with _not_allowed():
            if AUDIT_TOPIC not in cluster.topics([AUDIT_TOPIC]):
                raise CommandFailed(
                    f"There is no topic {AUDIT_TOPIC}.",
                    'Nodes make it with the first event: where a listener asks for logins, or with audit = "on".',
                )
            self._offset, self._end = self._starts_at(since_ms)

    def to_end(self) -> Iterator[AuditRecord]:
        """What was there at the beginning."""
        while self._offset < self._end:
            yield from self.more()

    def more(self) -> list[AuditRecord]:
        """What comes next, after a wait if need be. Raises CommandFailed, ClientError."""
        from headwater.client.blocking_cluster import retried

        with _not_allowed():
            fetched = retried(self._fetch, patience_s=PATIENCE_S, also=PASSING)
        return [each for each in self._read(fetched) if each.until_ms >= self._since_ms]

    # Inside

    @property
    def _partition(self) -> "TopicPartition":
        from headwater.client.topic_partition import TopicPartition

        return TopicPartition(AUDIT_TOPIC, 0)

    def _starts_at(self, since_ms: int) -> tuple[int, int]:
        from headwater.client.offsets import LATEST, NOT_FOUND

        end = self._offset_at(LATEST)
        found = self._offset_at(max(since_ms, 0))
        return (end if found == NOT_FOUND else found), end

    def _offset_at(self, timestamp: int) -> int:
        from headwater.client.blocking_cluster import retried
        from headwater.client.offsets import list_offsets

        def ask() -> int:
            with self._forgetting():
                leader = self._cluster.leader(self._partition)
                return self._cluster.answer_at(leader, list_offsets({self._partition: timestamp}, 0))[self._partition]

        return retried(ask, patience_s=PATIENCE_S, also=PASSING)

    def _fetch(self) -> "FetchedPartition":
        from headwater.client.errors import check
        from headwater.client.fetch import FetchLimits, FetchPosition, plain_fetch
        from headwater.client.offsets import EARLIEST

        with self._forgetting():
            connection = self._cluster.connection(self._cluster.leader(self._partition))
            limits = FetchLimits(MAX_WAIT_MS, MAX_BYTES, 0)
            fetch = plain_fetch([FetchPosition(self._partition, self._offset)], limits)
            sent = connection.send(fetch.request, at_most=fetch.at_most, wait_ms=MAX_WAIT_MS)
            answer = fetch.read(connection.receive(sent))
            check(answer.error_code, None, f"Topic {AUDIT_TOPIC}")
            fetched = answer.partitions[self._partition]
            if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:  # retention was faster
                self._offset = self._offset_at(EARLIEST)
            check(fetched.error_code, None, f"Topic {AUDIT_TOPIC}")
        return fetched

    @contextmanager
    def _forgetting(self) -> Iterator[None]:
        """Who leads is asked anew after a failure."""
        from headwater.client.errors import ClientError

        try:
            yield
        except ClientError:
            self._cluster.view.forget_topic(AUDIT_TOPIC)
            raise

    def _read(self, fetched: "FetchedPartition") -> Iterator[AuditRecord]:
        from headwater.records.batch import CorruptBatch, batches
        from headwater.records.record import records

        before = self._offset
        try:
            for header, batch in batches(fetched.records):
                for record in records(batch, header) if not header.is_control else ():
                    if record.offset >= before:
                        yield from _decoded(record.value)
                self._offset = header.last_offset + 1
        except CorruptBatch as error:
            if self._offset == before:  # otherwise the response was cut off there
                raise CommandFailed(f"The audit cannot be read at offset {before}: {error}.") from error


def _decoded(value: bytes | None) -> Iterator[AuditRecord]:
    try:
        yield AuditRecord.from_json(value or b"")
    except CorruptAuditRecord as error:
        note(f"An event of another version is left out: {error}.")


@contextmanager
def _not_allowed() -> Iterator[None]:
    from headwater.client.errors import BrokerRefused

    try:
        yield
    except BrokerRefused as error:
        if error.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        raise CommandFailed(
            "This user may not read the audit.",
            f"Neither '*' nor a prefix allows it; an administrator does with `headwater acl allow USER read topic "
            f"{AUDIT_TOPIC}`.",
        ) from error
