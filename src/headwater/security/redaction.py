"""Text that must not be seen: passwords, tokens, keys. It shows itself to no log, message, traceback or document.

    password = Secret("hunter2")
    f"{password}"                 "•••"
    json.dumps(password)          TypeError: what is to be written down, is revealed on purpose
    password.reveal()             "hunter2"

A Secret is no str, so that nothing that takes text takes it by mistake, and it cannot be pickled. Two are compared in
constant time.
"""

import hmac
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn, TypeVar

HIDDEN: Final = "•••"
V = TypeVar("V")


class Secret:
    __slots__ = ("__text",)

    def __init__(self, text: str) -> None:
        self.__text = text

    def reveal(self) -> str:
        return self.__text

    def __repr__(self) -> str:
        return f"Secret({HIDDEN!r})"

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __bool__(self) -> bool:
        return bool(self.__text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(_octets(self.__text), _octets(other.__text))

    def __hash__(self) -> int:
        return hash(self.__text)

    def __deepcopy__(self, memo: object) -> "Secret":
        return self

    def __copy__(self) -> "Secret":
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("A Secret is not pickled: reveal it, if it is to be written down.")


def shown(value: Any) -> Any:
    """A value as it may be shown: with every Secret in it hidden, in mappings and lists, too."""
    if isinstance(value, Secret):
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: shown(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [shown(each) for each in value]
    return value


def hidden(values: Mapping[str, V], sensitive: Iterable[str]) -> dict[str, V | str]:
    """The values, those of the sensitive keys hidden; what is not set or empty can be seen to be so."""
    keys = frozenset(sensitive)
    return {key: HIDDEN if key in keys and value else value for key, value in values.items()}


def without(text: str, secrets: Iterable[Secret | str]) -> str:
    """A text of another's making, such as the message of an exception, with the secrets hidden in it."""
    texts = {each.reveal() if isinstance(each, Secret) else each for each in secrets}
    for secret in sorted(texts - {""}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
