"""What commands print: tables, sizes, problems, log lines."""

import io
import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater.cli.output import CommandFailed, print_table, size
from headwater.logs.events import log_event
from headwater.logs.formats import start_logging


def test_a_table_in_a_pipe_is_plain_columns_with_numbers_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic", "records"), [("orders", 5), ("a", 12345)])
    assert capsys.readouterr().out == "TOPIC   RECORDS\norders        5\na         12345\n"


def test_a_table_without_rows_still_has_its_header_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic", "records"), [], empty="No topics yet.")
    assert capsys.readouterr().out == "TOPIC  RECORDS\n"


def test_control_characters_in_names_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("group",), [("evil\x1b[2J\nname",)])
    assert capsys.readouterr().out == "GROUP\nevil\\x1b[2J\\x0aname\n"


def test_a_table_on_a_terminal_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    print_table(("topic", "records"), [("[bold]orders", 5)])
    drawn = terminal.getvalue()
    assert "[bold]orders" in drawn and "─" in drawn


@pytest.mark.parametrize(
    ("size_bytes", "shown"), [(None, "-"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 * 1024**3, "5.0 GiB")]
)
def test_sizes_are_for_people(size_bytes: int | None, shown: str) -> None:
    assert size(size_bytes) == shown


def test_a_problem_says_what_happened_and_what_to_do() -> None:
    assert str(CommandFailed("It is full.", "Make room.")) == "It is full. Make room."


@pytest.fixture
def restored_logging() -> object:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("restored_logging")
def test_an_event_is_one_line() -> None:
    stream = io.StringIO()
    start_logging("info", as_json=False, stream=stream)
    log_event("connection_closed", peer="10.0.0.1:5", reason="two\nlines")
    log_event("not_shown", logging.DEBUG)
    assert stream.getvalue().endswith(" info connection_closed peer=10.0.0.1:5 reason='two\\nlines'\n")
    assert stream.getvalue().count("\n") == 1


@pytest.mark.usefixtures("restored_logging")
def test_an_event_in_json_has_its_fields_as_they_are() -> None:
    stream = io.StringIO()
    start_logging("info", as_json=True, stream=stream)
    fields: dict[str, Any] = {
        "peer": "10.0.0.1:5",
        "reason": "too many",
        "count": 3,
        "rate": 0.5,
        "is_over": True,
        "since": None,
    }
    log_event("connection_refused", logging.WARNING, **fields, path=Path("a b"), ratio=float("nan"))
    logging.getLogger("asyncio").warning("something of another library: %d", 7)
    event, other = map(json.loads, stream.getvalue().splitlines())
    assert event.pop("time").endswith("Z")
    assert event == {"level": "warning", "event": "connection_refused", **fields, "path": "a b", "ratio": "nan"}
    assert other["message"] == "something of another library: 7"


@pytest.mark.usefixtures("restored_logging")
def test_an_event_is_logged_under_the_name_of_its_module() -> None:
    stream = io.StringIO()
    start_logging("info", as_json=False, stream=stream)
    own = logging.getLogger(__name__)
    own.setLevel(logging.ERROR)
    try:
        log_event("left_out", logging.WARNING)
    finally:
        own.setLevel(logging.NOTSET)
    assert stream.getvalue() == ""
