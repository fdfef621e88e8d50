"""`python -m headwater.testing.oracles.checkers FILE.jsonl …`: the violations of one run, with their events.

Several files come from several processes on one machine. Exit status: 0 nothing found, 1 violations, 2 no verdict.
"""

import argparse
import json
import sys
from itertools import islice
from pathlib import Path
from typing import TextIO

from headwater.testing.oracles.checkers.edn import edn
from headwater.testing.oracles.checkers.events import BrokenHistory
from headwater.testing.oracles.checkers.history import MAX_FILES, History
from headwater.testing.oracles.checkers.json_lines import as_object
from headwater.testing.oracles.checkers.verdict import check
from headwater.testing.oracles.checkers.violations import Violation

FOUND_NOTHING, FOUND_VIOLATIONS, NO_VERDICT = 0, 1, 2
MAX_EVENT_CHARS = 300


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m headwater.testing.oracles.checkers", description="Check what the clients of one run observed."
    )
    parser.add_argument("files", nargs="+", metavar="FILE.jsonl", help="one file per recorder of the run")
    parser.add_argument("--edn", metavar="OUT.edn", type=Path, help="write the merged history there, too")
    given = parser.parse_args(arguments)
    if len(given.files) > MAX_FILES:
        parser.error(f"{len(given.files)} files are too many, {MAX_FILES} is the limit: join some of them")
    history = History.read(*given.files)
    try:
        if given.edn is not None:
            _write_edn(history, given.edn)
        violations = check(history)
        events = _events(history, violations)
    except (BrokenHistory, OSError) as error:
        _say(f"No verdict: {error}", to=sys.stderr)
        return NO_VERDICT
    for violation in violations:
        _say(f"{violation.kind}: {violation.sentence}")
        for number in violation.operations:
            _say(f"    {number}: {events[number]}")
    _say(_total(len(violations)))
    return FOUND_VIOLATIONS if violations else FOUND_NOTHING


def _total(count: int) -> str:
    return "No violations." if count == 0 else "1 violation." if count == 1 else f"{count} violations."


def _write_edn(history: History, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{edn(event)}\n" for event in history)


def _events(history: History, violations: list[Violation]) -> dict[int, str]:
    """The events that the violations are about, as they stand in the file, long ones shortened."""
    numbers = {number for violation in violations for number in violation.operations}
    found: dict[int, str] = {}
    for number, event in enumerate(islice(history, max(numbers, default=0)), 1):
        if number in numbers:
            text = json.dumps(as_object(event))
            found[number] = text if len(text) <= MAX_EVENT_CHARS else f"{text[:MAX_EVENT_CHARS]}…"
    return found


def _say(text: str, to: TextIO | None = None) -> None:
    """Names come from the file: characters that do not print are escaped, so that they cannot control the terminal."""
    stream = to or sys.stdout
    printable = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
    encoding = stream.encoding or "utf-8"
    stream.write(printable.encode(encoding, "backslashreplace").decode(encoding) + "\n")


if __name__ == "__main__":
    sys.exit(main())
