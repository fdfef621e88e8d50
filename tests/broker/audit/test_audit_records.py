"""Records of the audit as bytes: what is written is read, and what is no record is refused."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.broker.audit.audit_event import (
    MAX_CHANGES,
    MAX_TEXT_CHARS,
    AuditEvent,
    AuditKind,
    AuditRecord,
    AuditVerdict,
    CorruptAuditRecord,
)
from tests.support.effort import amount

LAST_MS = 253_402_300_799_999
"""Of the year 9999."""
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=MAX_TEXT_CHARS)
EVENTS = st.builds(
    AuditEvent,
    kind=st.sampled_from(AuditKind),
    verdict=st.sampled_from(AuditVerdict),
    operation=TEXTS,
    listener=TEXTS,
    address=TEXTS,
    principal=TEXTS,
    mechanism=TEXTS,
    api=TEXTS,
    resource_type=TEXTS,
    name=TEXTS,
    pattern=TEXTS,
    rule=TEXTS,
    client_id=TEXTS,
    changes=st.lists(TEXTS, max_size=MAX_CHANGES).map(tuple),
    is_others=st.booleans(),
)
TIMES = st.integers(0, LAST_MS)
RECORDS = st.builds(
    AuditRecord, event=EVENTS, time_ms=TIMES, until_ms=TIMES, node=st.integers(0, 2**31), count=st.integers(1)
)
REFUSED = AuditEvent(kind=AuditKind.AUTHORIZATION, verdict=AuditVerdict.REFUSED, principal="User:alice", name="orders")
RECORD = AuditRecord(event=REFUSED, time_ms=1_763_526_360_123, until_ms=1_763_526_360_123, node=1)


@settings(max_examples=amount(2_000, 200))
@given(RECORDS)
def test_what_is_written_is_read(record: AuditRecord) -> None:
    assert AuditRecord.from_json(record.to_json()) == record


@settings(max_examples=amount(2_000, 200))
@given(
    st.binary(max_size=200) | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(repr).map(str.encode)
)
def test_bytes_of_others_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptAuditRecord):
        AuditRecord.from_json(data)


def test_the_form_is_that_of_the_documents() -> None:
    assert RECORD.to_json().decode() == (
        '{"version":1,"time":"2025-11-19T04:26:00.123Z","node":1,"kind":"authorization","verdict":"refused",'
        '"principal":"User:alice","name":"orders","count":1}'
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", 2), ("version", None), ("time", 5), ("time", "yesterday"), ("time", "2025-11-19T04:26:00"),
        ("kind", "gossip"), ("verdict", "perhaps"), ("count", -1), ("count", True), ("count", "1"), ("node", None),
        ("name", 7), ("changes", [1]), ("changes", 3), ("until", []),
    ],
)  # fmt: skip
def test_a_field_with_another_value_is_refused(field: str, value: object) -> None:
    content = {**json.loads(RECORD.to_json()), field: value}
    with pytest.raises(CorruptAuditRecord):
        AuditRecord.from_json(json.dumps(content).encode())


def test_fields_of_later_versions_are_passed_over() -> None:
    content = {**json.loads(RECORD.to_json()), "weather": {"is": "fine"}}
    assert AuditRecord.from_json(json.dumps(content).encode()) == RECORD


def test_long_texts_are_cut_and_many_changes_are_counted() -> None:
    event = AuditEvent(
        kind=AuditKind.MANAGEMENT, verdict=AuditVerdict.DONE, name="x" * 40_000, changes=("y" * 1_000,) * 5_000
    )
    assert len(event.name) == len(event.changes[0]) == MAX_TEXT_CHARS and event.name.endswith("…")
    assert len(event.changes) == MAX_CHANGES and event.changes[-1] == f"and {5_000 - MAX_CHANGES + 1} more"
    assert AuditRecord.from_json(AuditRecord(event=event, time_ms=0, until_ms=0, node=1).to_json()).event == event


def test_a_name_that_is_no_text_of_unicode_does_no_harm() -> None:
    event = AuditEvent(kind=AuditKind.AUTHORIZATION, verdict=AuditVerdict.REFUSED, name="\ud800")
    assert AuditRecord.from_json(AuditRecord(event=event, time_ms=0, until_ms=0, node=1).to_json()).event.name == "?"
