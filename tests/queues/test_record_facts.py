from headwater.queues.delivery_terms import may_have_delivery_headers, terms_reader
from headwater.queues.log_read import DeliveryTerms
from headwater.queues.settings import QueueSettings, ShareOrder
from headwater.records.batch import parse_header
from headwater.records.build import build_batch
from headwater.records.record import Record, payload


def fact(record: Record, **settings: object) -> DeliveryTerms:
    return terms_reader(QueueSettings(**settings))([record])[0]  # type: ignore[arg-type]


def with_headers(**headers: bytes | None) -> Record:
    named = tuple((f"headwater.{name.replace('_', '-')}", value) for name, value in headers.items())
    return Record(b"k", b"v", named, timestamp=1_000, offset=7)


def test_a_plain_record_has_no_facts() -> None:
    assert fact(Record(b"k", b"v", timestamp=5, offset=7)) == DeliveryTerms(7)


def test_a_key_is_looked_at_only_if_it_orders() -> None:
    assert fact(Record(b"k", b"v", offset=7), order=ShareOrder.KEY).key == b"k"


def test_a_record_is_delivered_at_a_time_or_after_a_delay() -> None:
    assert fact(with_headers(deliver_at=b"5000")).deliver_at_ms == 5_000
    assert fact(with_headers(delay=b"250")).deliver_at_ms == 1_250
    assert fact(with_headers(delay=b"250", deliver_at=b"9")).deliver_at_ms == 9


def test_a_time_to_live_begins_when_a_record_may_be_delivered() -> None:
    assert fact(with_headers(ttl=b"10")).expires_at_ms == 1_010
    assert fact(with_headers(ttl=b"10", delay=b"500")).expires_at_ms == 1_510
    assert fact(with_headers(ttl=b"10"), record_ttl_ms=99).expires_at_ms == 1_010
    assert fact(with_headers(), record_ttl_ms=99).expires_at_ms == 1_099


def test_headers_that_make_no_sense_are_as_if_they_were_not_there() -> None:
    for nonsense in (b"", b"-1", b"soon", b"1.5", b"9" * 17, b"9" * 10_000, None, "\u0661".encode(), b" 5"):
        record = with_headers(deliver_at=nonsense, delay=nonsense, ttl=nonsense)
        assert fact(record) == DeliveryTerms(7)


def test_a_record_without_a_time_has_no_age() -> None:
    assert fact(Record(b"k", b"v", offset=7), record_ttl_ms=10) == DeliveryTerms(7)


def test_the_filter_of_the_group_is_asked() -> None:
    assert fact(Record(b"k", b"v", offset=7), filter="key = 'k'").matches
    assert not fact(Record(b"k", b"v", offset=7), filter="key = 'x'").matches


def test_delivery_headers_are_found_without_decoding() -> None:
    for headers, is_there in (((("headwater.delay", b"5"),), True), ((("other", b"5"),), False)):
        batch = build_batch([Record(b"k", b"v", headers)], timestamp=1)
        assert may_have_delivery_headers(payload(batch, parse_header(batch))) is is_there
