"""What clients can cause as often as they like costs a few lines of log a second, and is counted."""

import ast
import logging
import re
from pathlib import Path

import pytest

import headwater
from headwater.logs.events import LINES_PER_SECOND, RateLimitedLog
from tests.support.log_lines import own_lines, own_records


class Seconds:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def every_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def test_a_flood_of_one_event_is_a_few_lines_and_a_number(caplog: pytest.LogCaptureFixture) -> None:
    seconds = Seconds()
    log = RateLimitedLog(seconds)
    for _ in range(1000):
        log.log("bad_request", peer="a")
    assert own_lines(caplog) == ["bad_request peer=a"] * LINES_PER_SECOND
    seconds.now += 1
    log.log("bad_request", peer="b")
    assert own_lines(caplog)[-1] == f"bad_request peer=b left_out={1000 - LINES_PER_SECOND}"
    log.log("bad_request", peer="c")
    assert own_lines(caplog)[-1] == "bad_request peer=c"


def test_events_do_not_take_each_other_s_room(caplog: pytest.LogCaptureFixture) -> None:
    log = RateLimitedLog(Seconds())
    for _ in range(10):
        log.log("bad_request", peer="a")
    log.log("connection_refused", peer="b")
    assert own_lines(caplog)[-1] == "connection_refused peer=b"


def test_the_number_is_written_though_no_line_follows(caplog: pytest.LogCaptureFixture) -> None:
    seconds = Seconds()
    log = RateLimitedLog(seconds)
    for _ in range(LINES_PER_SECOND + 7):
        log.log("handler_failed", logging.ERROR)
    log.flush()
    assert len(own_lines(caplog)) == LINES_PER_SECOND, "the second is not over"
    seconds.now += 1
    log.flush()
    log.flush()
    assert own_lines(caplog)[LINES_PER_SECOND:] == ["handler_failed left_out=7"]
    assert own_records(caplog)[-1].levelno == logging.ERROR


FAILURES = re.compile(r"(^|_)(failed|unreadable|refused|stuck|not|lost|doubt)(_|$)")
LOUD = {"logging.WARNING", "logging.ERROR", "logging.CRITICAL"}
BY_CLIENTS = {"connection_refused"}
"""A limit that an operator set did its work."""
BY_DESIGN = {"takeover_lost"}
"""Another node was faster."""


def test_failures_are_warnings() -> None:
    """Wherever an event is logged by a name that says that something went wrong."""
    sources = Path(headwater.__file__).parent.rglob("*.py")
    calls = [node for path in sources for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    quiet, checked = [], 0
    for call in calls:
        named = [each.value for each in call.args[:1] if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        if ast.unparse(call.func) != "log_event" or not named or not FAILURES.search(named[0]):
            continue
        checked += 1
        level = ast.unparse(call.args[1]) if len(call.args) > 1 else "logging.INFO"
        if level not in LOUD and named[0] not in BY_CLIENTS | BY_DESIGN:
            quiet.append(named[0])
    assert checked > 20
    assert quiet == []
