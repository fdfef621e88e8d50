"""The page about Kafka's own command-line tools: each of its commands runs, in their order, and does what it says."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.testing import Broker
from tests.clients.judged import OTHER_BROKER
from tests.clients.kafka_commands import CLASSES, Command, Done, read_command, run_all

PAGE = Path(__file__).parents[2] / "docs" / "kafka-tools.md"
FAILS = "fails"
"""What the page says of a block whose commands do."""

WRONG = re.compile(r"Exception|^\s+at \S+\(|does not support|^Error|^WARNING|failed|timed out", re.MULTILINE)
"""What tools print that go wrong and end with 0 all the same."""
ANYTHING = "…"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> list[Done]:
    """All of them have run, in one JVM: a tool costs a second or two of computing to start."""
    commands = list(read_page(PAGE.read_text()))
    folder = tmp_path_factory.mktemp("tools")
    if OTHER_BROKER:
        return run_all(commands, OTHER_BROKER, folder)
    with Broker(subprocess=True) as broker:
        return run_all(commands, broker.bootstrap, folder)


def read_page(page: str) -> Iterator[Command]:
    """Lines of the page's blocks. What a block prints that follows is that of its last command."""
    blocks = re.findall(r"^```(\w+)(?: (\w+))?\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    for (language, told, text), following in zip(blocks, [*blocks[1:], ("", "", "")], strict=True):
        lines = text.replace("\\\n", " ").splitlines() if language == "sh" else []
        expected = tuple(following[2].splitlines()) if following[0] == "text" else ()
        for line in lines:
            yield read_command(line, told == FAILS, expected if line == lines[-1] else ())


def test_the_page_has_an_example_of_every_tool(done: list[Done]) -> None:
    named = set(re.findall(r"`(kafka-[a-z0-9-]+)`", PAGE.read_text().split("\n## ")[0]))
    of_files = {"kafka-dump-log", "kafka-storage", "kafka-metadata-shell"}
    assert named == {tool.removesuffix(".sh") for tool in CLASSES} | of_files
    assert {one.command.tool for one in done} == set(CLASSES)


def test_what_works_ends_well(done: list[Done]) -> None:
    wrong = [one for one in done if not one.command.is_refused and (one.status != 0 or WRONG.search(one.printed))]
    assert not wrong, "\n\n".join(one.shown() for one in wrong)


def test_what_does_not_work_fails(done: list[Done]) -> None:
    assert [one.command.text for one in done if one.command.is_refused and one.status == 0] == []


def test_each_prints_what_the_page_says(done: list[Done]) -> None:
    assert sum(bool(one.command.expected) for one in done) > 30
    for one in done:
        printed = [plain(line) for line in one.printed.splitlines()]
        for line in one.command.expected:
            pattern = re.compile(".*".join(re.escape(part) for part in plain(line).split(ANYTHING)))
            assert any(map(pattern.fullmatch, printed)), f"{line}\n\n{one.shown()}"


def plain(line: str) -> str:
    """Columns are as wide as what stands in them, which is not always the same."""
    return " ".join(line.split())
