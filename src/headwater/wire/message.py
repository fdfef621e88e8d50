"""What the classes of `typed/` have in common: structs of the protocol, and requests, which know what answers them.

A class is written out by `make schemas` with its slots and its constructor. That is what a dataclass would make of its
fields at every start of a process, for a tenth of a second (docs/decisions/0021-typed-messages.md). An unknown field is
an error of mypy, and of the run.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

Records: TypeAlias = bytes | bytearray | memoryview
"""Record batches back to back: never copied, neither on their way in nor out."""


class Message:
    """A struct of the protocol, whatever its version: fields that a version does not have keep their defaults."""

    __slots__: tuple[str, ...] = ()
    STRUCTS: ClassVar[Mapping[str, "type[Message]"]] = {}
    """The classes of the fields that are structs, or arrays of structs."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)


ResponseT = TypeVar("ResponseT", bound=Message)


class Request(Message, Generic[ResponseT]):
    __slots__ = ()
    API_KEY: ClassVar[int]
    RESPONSE: ClassVar[Any]
    """The class of its response."""

    def __class_getitem__(cls, response: object) -> type:
        """Generic for the type checker alone: `typing` would take its time for each class, at each start."""
        return cls
