"""A record as text."""

import json
from dataclasses import dataclass, field

import pytest

from headwater.cli.output import CommandFailed
from headwater.cli.record_format import as_json, compile_format


@dataclass
class Record:
    """What a confluent-kafka message offers to a reader."""

    key_bytes: bytes | None = b"k"
    value_bytes: bytes | None = b"v"
    header_list: list[tuple[str, bytes | None]] = field(default_factory=list)

    def key(self) -> bytes | None:
        return self.key_bytes

    def value(self) -> bytes | None:
        return self.value_bytes

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.header_list or None

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 41

    def timestamp(self) -> tuple[int, int]:
        return 1, 1700000000000


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("%v", b"v\n"),
        ("%k %v", b"k v\n"),
        (r"%t/%p/%o\t%T", b"orders/3/41\t1700000000000\n"),
        ("100%% %h", b"100% a=1,b=\n"),
        ("", b"\n"),
    ],
)
def test_a_format_shows_the_fields_it_names(text: str, line: bytes) -> None:
    assert compile_format(text)(Record(header_list=[("a", b"1"), ("b", None)])) == line


def test_bytes_that_are_not_text_pass_through_unchanged() -> None:
    assert compile_format("%v")(Record(value_bytes=b"\xff\x00")) == b"\xff\x00\n"


@pytest.mark.parametrize("text", ["%x", "%", "%k %"])
def test_an_unknown_field_is_refused_before_the_first_record(text: str) -> None:
    with pytest.raises(CommandFailed, match="has no field"):
        compile_format(text)


def test_json_keeps_everything_even_what_is_not_text() -> None:
    record = Record(key_bytes=None, value_bytes=b"\xff", header_list=[("trace", b"1"), ("raw", b"\xfe")])
    assert json.loads(as_json(record)) == {
        "topic": "orders",
        "partition": 3,
        "offset": 41,
        "timestamp_ms": 1700000000000,
        "key": None,
        "value_base64": "/w==",
        "headers": [{"name": "trace", "value": "1"}, {"name": "raw", "value_base64": "/g=="}],
    }
