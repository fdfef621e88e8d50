"""What every judged client can be asked to do with transactions, in the same words.

Each `transacting_with_<client>.py` says them in its client's own API. A producer's `send` returns when everything is
acknowledged, so that the order of calls in a test is the order in the log."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from tests.support.eventually import gathered

READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"
CLASSIC, CONSUMER = "classic", "consumer"
"""The two protocols of groups: the older one, and KIP-848."""

TRANSACTION_TIMEOUT_MS = 60_000
CALL_TIMEOUT_S = 90.0
REQUEST_TIMEOUT_MS = 20_000
"""A node that is paused takes connections and answers nothing: who asks it asks another one after this time."""
FETCH_WAIT_MS = 100

Place: TypeAlias = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class Sent:
    topic: str
    partition: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Seen:
    topic: str
    partition: int
    offset: int
    value: bytes


class Fenced(Exception):
    """The client said, by the exception that it has for it, that another producer took over."""


class Reader(Protocol):
    def poll(self, timeout_s: float) -> list[Seen]: ...
    def close(self) -> None: ...


class Member(Reader, Protocol):
    """A reader that is a member of a group, and whose word about it is still there after `close`."""

    def committed(self, place: Place) -> int | None: ...


class TransactionalProducer(Protocol):
    """Raises `Fenced`, or `judged.Refused` with the code of the protocol or of the client itself."""

    def begin(self) -> None: ...
    def send(self, records: Sequence[Sent]) -> list[int]: ...

    def send_offsets(self, group: Member | str, positions: Mapping[Place, int]) -> None:
        """As the member that read the input, or for a group without members."""
        ...

    def commit(self) -> None: ...
    def abort(self) -> None: ...

    def close(self) -> None:
        """Leaves an open transaction as it is, as a crash would."""
        ...


class Transactor(Protocol):
    """A client library, as far as it knows transactions."""

    name: str
    protocols: tuple[str, ...]
    """Of the groups that it can be a member of."""
    tells_membership: bool
    """Whether it sends, with a group's offsets, who in the group sends them (KIP-447)."""

    def close(self) -> None: ...

    def producer(self, transactional_id: str, timeout_ms: int = TRANSACTION_TIMEOUT_MS) -> TransactionalProducer:
        """Initialised: whoever had this id before is fenced."""
        ...

    def reader(self, places: Sequence[Place], isolation: str, wait_ms: int = FETCH_WAIT_MS, offset: int = 0) -> Reader:
        """From that offset on. Its fetches wait up to `wait_ms` for something to read."""
        ...

    def member(self, topic: str | None, group: str, protocol: str = CLASSIC, isolation: str = READ_COMMITTED) -> Member:
        """Without a topic it only asks for the group's offsets."""
        ...


END = b"the end"
"""A record outside of any transaction, behind all that a test wrote: whoever sees it has seen everything before."""
READ_TIMEOUT_S = 60.0


def sent(places: Iterable[Place], *values: bytes) -> list[Sent]:
    """Each of the values to each of the places."""
    return [Sent(topic, partition, value) for topic, partition in places for value in values]


def seen_to_the_end(reader: Reader, places: Sequence[Place]) -> dict[Place, list[Seen]]:
    """The records of each place, in the order in which they came; the last is its END. Closes the reader."""
    found: dict[Place, list[Seen]] = {place: [] for place in places}
    deadline_s = time.monotonic() + READ_TIMEOUT_S
    try:
        while not all(records and records[-1].value == END for records in found.values()):
            assert time.monotonic() < deadline_s, f"{ {place: len(records) for place, records in found.items()} } came"
            for record in reader.poll(0.2):
                records = found[record.topic, record.partition]
                assert not records or record.offset > records[-1].offset, f"{record} came after {records[-1]}"
                records.append(record)
    finally:
        reader.close()
    return found


def read_to_the_end(reader: Reader, places: Sequence[Place]) -> dict[Place, list[bytes]]:
    """The values of each place before its END. Closes the reader."""
    found = seen_to_the_end(reader, places)
    return {place: [record.value for record in records[:-1]] for place, records in found.items()}


def poll_until(reader: Reader, count: int) -> list[Seen]:
    """At least so many records; polls no longer than it takes them to come."""
    return gathered(lambda: reader.poll(0.2), count, patience_s=READ_TIMEOUT_S)
