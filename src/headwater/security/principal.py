"""Who asks: a kind and a name, written as Kafka writes it, `User:alice`.

The name of a client that was not asked who it is, is ANONYMOUS. Nodes of the cluster are principals of a kind of their
own, which neither a user nor a binding can have.
"""

from dataclasses import dataclass
from typing import Final, Self

USER: Final = "User"
NODE: Final = "Node"


class MalformedPrincipal(ValueError):
    """Not of the form `Kind:name`."""


@dataclass(frozen=True, slots=True)
class Principal:
    kind: str
    name: str

    @classmethod
    def user(cls, name: str) -> Self:
        return cls(USER, name)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The name is everything behind the first colon. Raises MalformedPrincipal."""
        kind, colon, name = text.partition(":")
        if not colon or not kind:
            raise MalformedPrincipal(f"A principal is written as User:alice, not {text[:100]!r}.")
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal.user("ANONYMOUS")
EVERY_USER: Final = "User:*"
"""What a binding names that holds for all users."""
EVERY_HOST: Final = "*"
"""What a binding names that holds for all addresses."""
EVERY_RESOURCE: Final = "*"
"""The literal name of a binding that holds for all resources of its type."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The one resource of type CLUSTER."""
