"""What is wrong in a pipeline file, and where: every mistake at once, each with file and line."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """Where something stands. Lines count from 1; 0 means the file as a whole."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file

    def down(self, lines: int) -> "Location":
        return Location(self.file, self.line + lines)


@dataclass(frozen=True, slots=True)
class TextFault:
    """What is wrong in a text of the file, such as a query."""

    line: int
    """Within the text, from 0."""
    what: str
    is_sure: bool = True
    """Whether Spark is known to refuse it."""


@dataclass(frozen=True, slots=True, order=True)
class Mistake:
    location: Location
    what: str
    """What is wrong and what to do, in sentences."""
    is_sure: bool = field(default=True, compare=False)
    """False: Spark has the last word, and does not say it before it has started."""

    def __str__(self) -> str:
        return f"{self.location}: {self.what}"


class BadPipeline(Exception):
    """The file does not describe a pipeline that can run."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(sorted(set(mistakes)))
        assert self.mistakes, "a pipeline is refused for a reason"
        super().__init__("\n".join(map(str, self.mistakes)))


def suggestion(name: str, known: Iterable[str]) -> str:
    """A question about the name that was probably meant; empty if none is close."""
    found = name_hint(name, known)
    return found if found.startswith(" Did") else ""


def name_hint(name: str, known: Iterable[str]) -> str:
    """A question about the name that was probably meant, else the names there are; empty if there are none."""
    names = sorted(known)
    spelled = {each.lower(): each for each in names}
    close = get_close_matches(name.lower(), spelled, n=1)
    if close:
        return f" Did you mean {spelled[close[0]]}?"
    return f" There is: {', '.join(names)}." if names else ""
