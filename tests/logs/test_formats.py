"""What clients choose, such as names, is text in the log: it begins no line, and commands no terminal that shows it."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from headwater.logs.events import log_event
from headwater.logs.formats import start_logging

HOSTILE = "g\x1b[2J\x1b]0;owned\x07\x9b31m\x00\x7f\u2028\u202egroup\nforged event=1\r\U000e0001"
"""Control sequences of terminals in seven and eight bits, ends of lines, and what turns the direction of text."""


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def logged(*, as_json: bool) -> str:
    stream = io.StringIO()
    start_logging("info", as_json=as_json, stream=stream)
    log_event("bad_request", reason=HOSTILE)
    logging.getLogger("headwater").warning("push_refused subscription=%s", HOSTILE)
    return stream.getvalue()


@pytest.mark.parametrize("as_json", [False, True])
def test_every_event_is_one_line_of_characters_that_are_seen(as_json: bool) -> None:
    lines = logged(as_json=as_json).split("\n")
    assert [len(lines), lines[-1]] == [3, ""]
    assert all(line.isprintable() for line in lines)


def test_json_has_the_text_as_it_was() -> None:
    event, message = map(json.loads, logged(as_json=True).splitlines())
    assert event["reason"] == HOSTILE
    assert message["message"] == f"push_refused subscription={HOSTILE}"


def test_a_traceback_has_lines_and_no_other_control_characters() -> None:
    stream = io.StringIO()
    start_logging("info", as_json=False, stream=stream)
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        log_event("handler_failed", logging.ERROR, error)
    lines = stream.getvalue().split("\n")
    assert lines[1].startswith("Traceback")
    assert all(line.isprintable() for line in lines)


def test_other_letters_and_spaces_stay_as_they_are() -> None:
    stream = io.StringIO()
    start_logging("info", as_json=False, stream=stream)
    log_event("started", node="Zürich 東京")
    assert stream.getvalue().endswith("info started node='Zürich 東京'\n")
