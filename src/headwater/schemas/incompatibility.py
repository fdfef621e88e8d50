"""Why data that one schema wrote cannot be read with another: kind, path and reason of each difference."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headwater.schemas.limits import MAX_COMPARISONS, MAX_REASONS

TOO_COMPLEX: Final = "TOO_COMPLEX"


class Incompatibility(NamedTuple):
    kind: str
    """A word for programs, as in READER_FIELD_MISSING_DEFAULT_VALUE."""
    path: str
    """Where in the schema: a JSON pointer, or the names of messages and fields."""
    reason: str

    def __str__(self) -> str:
        return f"{self.kind} at {self.path}: {self.reason}"


@dataclass(slots=True)
class Findings:
    """What was found so far. Reasons beyond the limit are left out; comparing too much is itself a reason."""

    found: list[Incompatibility] = field(default_factory=list)
    compared: int = 0

    def add(self, kind: str, path: str, reason: str) -> None:
        if kind == TOO_COMPLEX and any(each.kind == TOO_COMPLEX for each in self.found):
            return
        if len(self.found) < MAX_REASONS or kind == TOO_COMPLEX:
            self.found.append(Incompatibility(kind, path or "/", reason))

    def forget(self, mark: int) -> None:
        """What was found since there were so many does not matter: another choice is readable, or none is. That a bound
        was met stays."""
        self.found[mark:] = [each for each in self.found[mark:] if each.kind == TOO_COMPLEX]

    def may_compare(self, path: str) -> bool:
        """Counts one comparison more."""
        self.compared += 1
        if self.compared == MAX_COMPARISONS:
            self.add(TOO_COMPLEX, path, f"the schemas need more than {MAX_COMPARISONS} comparisons")
        return self.compared < MAX_COMPARISONS
