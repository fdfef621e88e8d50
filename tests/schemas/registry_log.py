"""A registry's state and the log of its events."""

from collections.abc import Sequence

from headwater.schemas import decisions
from headwater.schemas.contexts import context_of
from headwater.schemas.event_records import from_record, to_record
from headwater.schemas.events import Event
from headwater.schemas.registry import Registry
from headwater.schemas.schema import Schema


class Log:
    """A registry with its log."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.records: list[tuple[bytes, bytes | None]] = []
        self.given: dict[tuple[str, int], Schema] = {}

    def write(self, events: Sequence[Event]) -> None:
        for event in events:
            key, value = to_record(event)
            read = from_record(key, value)
            assert read == event, "what is written is what is read"
            self.records.append((key, value))
            self.registry.apply(event)

    def register(self, subject: str, schema: Schema) -> None:
        done = decisions.register(self.registry, subject, schema)
        self.write(done.events)
        known = self.given.setdefault((context_of(subject), done.version.schema_id), schema)
        assert known.fingerprint == schema.fingerprint, "an id is given to one schema of a context"
        assert self.registry.find(subject, schema) is not None
