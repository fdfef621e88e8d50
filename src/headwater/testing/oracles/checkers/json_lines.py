"""A history as a file: one JSON object per line, in the order of the events.

    {"event":"send_began","producer":"p","topic":"orders","value":"v1","partition":0,"at_ns":81}
    {"event":"send_ended","topic":"orders","value":"v1","outcome":"ok","partition":0,"offset":7,"at_ns":95}
    {"event":"polled","consumer":"c","isolation":"read_committed","partition":["orders",0],
     "records":[[7,"v1"]],"at_ns":99}                                  (one line in the file)

An event has the name of its class in `events.py` and the fields it has there; fields with their default may be left
out. A partition is `[topic, partition]`, offsets are `[[partition, offset], …]`. `at_ns` is any clock that the writers
of all files of a run share: it puts the lines of several files in one order.

Any program can write such files, so nothing in them is trusted: what is not right is refused with its file and line.
"""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, TypeAlias

from headwater.testing.oracles.checkers.events import (
    Assigned,
    BrokenHistory,
    CallOutcome,
    CommitBegan,
    CommitEnded,
    CutOff,
    Event,
    FinalRead,
    Isolation,
    OffsetsAdded,
    OffsetsRead,
    Polled,
    Positions,
    Records,
    SendBegan,
    SendEnded,
    Sought,
    TopicPartition,
    TransactionBegan,
    TransactionEnded,
    TransactionEnding,
)

MAX_LINE_BYTES = 64 << 20
MAX_TEXT_CHARS = 1024
"""Of a name or a value. A test that sends larger values notes a digest of them."""
MAX_RECORDS_PER_EVENT = 10_000
MAX_OFFSET = (1 << 63) - 1

Reader: TypeAlias = Callable[[object], object]


class Stamped(NamedTuple):
    at_ns: int
    event: Event


def as_object(event: Event) -> dict[str, object]:
    """The event as JSON would have it, without what has its default."""
    kind = type(event)
    given = ((name, getattr(event, name), default) for name, default in _FIELDS[kind])
    return {"event": _NAMES[kind], **{name: value for name, value, default in given if value != default}}


def encode(stamped: Stamped) -> bytes:
    """One line, with its end."""
    body = {**as_object(stamped.event), "at_ns": stamped.at_ns}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace") + b"\n"


def decode(line: bytes) -> Stamped:
    """Raise `BrokenHistory` for anything that `encode` could not have written."""
    try:
        body = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        raise BrokenHistory(f"this is not JSON ({error})") from error
    if not isinstance(body, dict):
        raise BrokenHistory("each line must be a JSON object")
    name = body.pop("event", None)
    known = _KNOWN.get(name) if isinstance(name, str) else None
    if known is None:
        raise BrokenHistory(f"there is no event {_shortened(name)}; known are {', '.join(_KNOWN)}")
    kind, readers = known
    at_ns = 0
    given: dict[str, object] = {}
    for field, value in body.items():
        try:
            if field == "at_ns":
                at_ns = _offset(value)
            else:
                given[field] = readers[field](value)
        except KeyError:
            text = f"the event {name} has no field {_shortened(field)}; it has {', '.join(readers)}"
            raise BrokenHistory(text) from None
        except ValueError as error:
            raise BrokenHistory(f"{field} is {_shortened(value)}: {error}") from error
    try:
        return Stamped(at_ns, kind(**given))  # type: ignore[arg-type]
    except TypeError:
        missing = [field for field, default in _FIELDS[kind] if default is MISSING and field not in given]
        raise BrokenHistory(f"the event {name} needs {', '.join(missing)}") from None


def read_lines(path: Path) -> Iterator[Stamped]:
    """The events of a file. A last line that was cut short is left out: its writer was killed before it did, or
    reported, what the line would have said."""
    with path.open("rb") as file:
        for number, line in enumerate(_lines(file, path), 1):
            try:
                yield decode(line)
            except BrokenHistory as error:
                if not line.endswith(b"\n"):
                    return
                raise BrokenHistory(f"{path}:{number}: {error}") from error


def _lines(file: BinaryIO, path: Path) -> Iterator[bytes]:
    while line := file.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise BrokenHistory(
                f"{path}: a line is longer than {MAX_LINE_BYTES} bytes; split the poll or read it notes"
            )
        yield line


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT_CHARS:
        raise ValueError(f"it must be a text of at most {MAX_TEXT_CHARS} characters")
    return value


def _name(value: object) -> str:
    """A text that comes again and again, and need be in memory once."""
    return sys.intern(_text(value))


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("it must be true or false")
    return value


def _offset(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MAX_OFFSET:
        raise ValueError("it must be a whole number from 0 to 2^63 - 1")
    return value


def _outcome(value: object) -> CallOutcome:
    return CallOutcome(_text(value))


def _isolation(value: object) -> Isolation:
    return Isolation(_text(value))


def _partition(value: object) -> TopicPartition:
    topic, index = _pair(value)
    return TopicPartition(_name(topic), _offset(index))


def _records(value: object) -> Records:
    return tuple([(_offset(offset), _text(text)) for offset, text in map(_pair, _list(value))])


def _offsets(value: object) -> tuple[tuple[TopicPartition, int], ...]:
    return tuple([(_partition(partition), _offset(offset)) for partition, offset in map(_pair, _list(value))])


def _positions(value: object) -> Positions:
    pairs = map(_pair, _list(value))
    return tuple([(_partition(partition), None if offset is None else _offset(offset)) for partition, offset in pairs])


def _pair(value: object) -> list[object]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("it must consist of pairs")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list) or len(value) > MAX_RECORDS_PER_EVENT:
        raise ValueError(f"it must be a list of at most {MAX_RECORDS_PER_EVENT} entries")
    return value


def _or_none(reader: Reader) -> Reader:
    return lambda value: None if value is None else reader(value)


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


_KNOWN: Final[dict[str, tuple[type[Event], dict[str, Reader]]]] = {
    "send_began": (
        SendBegan,
        {
            "producer": _name,
            "topic": _name,
            "value": _text,
            "partition": _or_none(_offset),
            "transaction": _or_none(_name),
            "key": _or_none(_text),
            "is_idempotent": _flag,
        },
    ),
    "send_ended": (
        SendEnded,
        {
            "topic": _name,
            "value": _text,
            "outcome": _outcome,
            "partition": _or_none(_offset),
            "offset": _or_none(_offset),
        },
    ),
    "transaction_began": (TransactionBegan, {"transaction": _name, "producer": _name}),
    "offsets_added": (
        OffsetsAdded,
        {"transaction": _name, "group": _name, "offsets": _offsets, "consumer": _or_none(_name)},
    ),
    "transaction_ending": (TransactionEnding, {"transaction": _name, "is_commit": _flag}),
    "transaction_ended": (TransactionEnded, {"transaction": _name, "outcome": _outcome}),
    "commit_began": (CommitBegan, {"commit": _text, "group": _name, "offsets": _offsets}),
    "commit_ended": (CommitEnded, {"commit": _text, "outcome": _outcome}),
    "assigned": (Assigned, {"consumer": _name, "positions": _positions}),
    "sought": (Sought, {"consumer": _name, "partition": _partition, "position": _or_none(_offset)}),
    "polled": (
        Polled,
        {
            "consumer": _name,
            "isolation": _isolation,
            "partition": _partition,
            "records": _records,
            "before": _or_none(_offset),
            "after": _or_none(_offset),
        },
    ),
    "final_read": (
        FinalRead,
        {"isolation": _isolation, "partition": _partition, "records": _records, "start": _offset, "end": _offset},
    ),
    "offsets_read": (OffsetsRead, {"reader": _name, "group": _name, "offsets": _positions, "is_final": _flag}),
    "cut_off": (CutOff, {"max_events": _offset}),
}
_NAMES: Final[dict[type, str]] = {kind: name for name, (kind, _) in _KNOWN.items()}
_FIELDS: Final[dict[type, tuple[tuple[str, object], ...]]] = {
    kind: tuple((field.name, field.default) for field in fields(kind)) for kind, _ in _KNOWN.values()
}
