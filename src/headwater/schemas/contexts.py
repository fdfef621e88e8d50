"""Contexts: registries within the registry, each with its own subjects, ids, level and mode.

    orders-value            in the default context, whose name `.` is never shown
    :.staging:orders-value  in the context `.staging`
    :.staging:              the context itself, for its level and mode
    :.__GLOBAL:             what every context inherits
    :*:orders               any context, where subjects are listed by a prefix

A subject is kept by its shortest form: `:.:x` is `x`.
"""

from dataclasses import dataclass
from typing import Final

DEFAULT: Final = "."
ANY: Final = "*"
GLOBAL: Final = ".__GLOBAL"
_PREFIX, _ANY_PREFIX = ":.", f":{ANY}:"


class BadContext(Exception):
    """Not a name of a context."""


@dataclass(frozen=True, slots=True)
class Qualified:
    context: str
    name: str
    """Empty: the context itself."""

    def __str__(self) -> str:
        return self.name if self.context == DEFAULT else f":{self.context}:{self.name}"

    def matches(self, subject: str) -> bool:
        """Whether a subject begins so, in this context or, for `*`, in any."""
        other = parse(subject)
        return self.context in (ANY, other.context) and other.name.startswith(self.name)


def parse(subject: str) -> Qualified:
    if subject.startswith(_ANY_PREFIX):
        return Qualified(ANY, subject.removeprefix(_ANY_PREFIX))
    if subject.startswith(_PREFIX):
        context, _, name = subject[1:].partition(":")
        return Qualified(context, name)
    return Qualified(DEFAULT, subject)


def context_of(subject: str) -> str:
    return parse(subject).context


def is_qualified(subject: str) -> bool:
    """Whether it says its context, the default one, too."""
    return subject.startswith((_PREFIX, _ANY_PREFIX))


def within(context: str, subject: str) -> str:
    """A subject as it is meant where a context is given; it may name another."""
    return str(parse(subject)) if is_qualified(subject) else str(Qualified(context, subject))


def parse_context(text: str) -> str:
    """Of a path: `staging`, `.staging` or `:.staging:`. Raises BadContext."""
    name = text.removeprefix(":").removesuffix(":")
    if ":" in name or any(ord(letter) < 32 or ord(letter) == 127 for letter in name):
        raise BadContext(f"Context name '{name[:80]}' cannot contain a colon or control characters")
    return name if name.startswith(".") else f".{name}"


def settings_of(subject: str | None) -> tuple[str | None, ...]:
    """Whose level or mode holds for a subject, the nearest first: its own, its context's, that of all contexts."""
    if subject is None:
        return (None, f":{GLOBAL}:")
    context = context_of(subject)
    of_context = None if context == DEFAULT else f":{context}:"
    return tuple(dict.fromkeys((subject, of_context, f":{GLOBAL}:")))
