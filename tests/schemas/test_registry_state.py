"""The registry's state: decided, logged, applied; and the same again from its log, compacted or not."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.schemas import decisions
from headwater.schemas.contexts import context_of
from headwater.schemas.event_records import UnknownRecord, from_record
from headwater.schemas.events import Config, SubjectDeleted
from headwater.schemas.levels import Level, Mode
from headwater.schemas.refusal import SchemaRefused
from headwater.schemas.registry import Registry
from headwater.schemas.schema import Reference, Schema, SchemaType
from tests.schemas.registry_log import Log

SUBJECTS = st.sampled_from(["a-value", "b-value", "c/ü", ":.x:a-value", ":.y:b-value"])
SETTINGS = st.one_of(SUBJECTS, st.sampled_from([None, ":.x:", ":.__GLOBAL:"]))
SCHEMAS = st.builds(
    Schema,
    st.sampled_from(SchemaType),
    st.sampled_from(["one", "two", "three", 'fo"ur\n\u2028']),
    st.sampled_from([(), (Reference("n", "a-value", 1),)]),
)
NUMBERS = st.one_of(st.none(), st.integers(1, 4))


OPERATIONS = st.one_of(
    st.tuples(st.just("register"), SUBJECTS, SCHEMAS),
    st.tuples(st.just("delete"), SUBJECTS, st.booleans()),
    st.tuples(st.just("delete version"), SUBJECTS, NUMBERS, st.booleans()),
    st.tuples(st.just("config"), SETTINGS, st.sampled_from(Level)),
    st.tuples(st.just("no config"), SETTINGS),
    st.tuples(st.just("mode"), SUBJECTS, st.sampled_from([Mode.READWRITE, Mode.READONLY])),
    st.tuples(st.just("delete context"), st.sampled_from([".x", ".y"])),
)


def perform(log: Log, operation: tuple) -> None:  # type: ignore[type-arg]
    match operation:
        case ("register", subject, schema):
            log.register(subject, schema)
        case ("delete", subject, permanent):
            log.write(decisions.delete_subject(log.registry, subject, permanent=permanent)[1])
        case ("delete version", subject, number, permanent):
            log.write(decisions.delete_version(log.registry, subject, number, permanent=permanent)[1])
        case ("config", subject, level):
            log.write(decisions.set_config(subject, Config(level)))
        case ("no config", subject):
            log.write(decisions.delete_config(log.registry, subject)[1])
        case ("delete context", context):
            log.write(decisions.delete_context(log.registry, context))
        case ("mode", subject, mode):
            log.write(decisions.set_mode(log.registry, subject, mode, force=False))


def replayed(records: Sequence[tuple[bytes, bytes | None]]) -> Registry:
    registry = Registry()
    for key, value in records:
        event = from_record(key, value)
        if event is not None:
            registry.apply(event)
    return registry


def compacted(records: Sequence[tuple[bytes, bytes | None]]) -> list[tuple[bytes, bytes | None]]:
    """The last record of each key, and no tombstones."""
    last = {key: index for index, (key, _) in enumerate(records)}
    return [(key, value) for index, (key, value) in enumerate(records) if last[key] == index and value is not None]


def facts(registry: Registry) -> object:
    subjects = registry.subjects(with_deleted=True)
    return (
        list(registry.all_versions(with_deleted=True)),
        [(context, registry.last_id(context)) for context in registry.contexts()],
        [(registry.config(subject), registry.mode(subject)) for subject in (None, ":.x:", *subjects)],
        [registry.referrers(subject, number) for subject in ("a-value", ":.x:a-value") for number in range(1, 5)],
        registry.size_bytes,
        [
            registry.id_of(version.schema, context_of(version.subject))
            for version in registry.all_versions(with_deleted=True)
        ],
    )


@settings(max_examples=300, deadline=None)
@given(st.lists(OPERATIONS, max_size=40))
def test_the_log_gives_the_same_state_again_whole_or_compacted(operations: list[tuple]) -> None:  # type: ignore[type-arg]
    log = Log()
    for operation in operations:
        try:
            perform(log, operation)
        except SchemaRefused:
            continue
    assert facts(replayed(log.records)) == facts(log.registry)
    assert facts(replayed(compacted(log.records))) == facts(log.registry)


def test_what_another_registry_deleted_is_deleted() -> None:
    log = Log()
    log.register("s", Schema(SchemaType.AVRO, "one"))
    log.write([SubjectDeleted("s", 1)])
    assert not log.registry.versions("s") and len(log.registry.versions("s", with_deleted=True)) == 1


@pytest.mark.parametrize(
    "key, value",
    [
        (None, b"{}"), (b"", b"{}"), (b"[]", b"{}"), (b"5", None), (b'{"keytype":"SCHEMA"}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1}', b"5"), (b'{"keytype":"NEW"}', b"{}"), (b"\xff", None),
        (b'{"keytype":"SCHEMA","subject":"s","version":1}', b'{"id":"x","schema":"s"}'),
        (b'{"keytype":"SCHEMA","subject":5,"version":1}', b'{"id":1,"schema":"s"}'), (b"[" * 100_000, None),
        (b'{"keytype":"MODE","subject":"s"}', b'{"mode":"ASLEEP"}'), (b'{"keytype":"CONFIG"}', b"[1]"),
    ],
)  # fmt: skip
def test_a_record_that_says_nothing_is_told_as_such(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(UnknownRecord):
        from_record(key, value)
