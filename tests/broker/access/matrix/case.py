"""One shape of a request of one API, and what of the API's declaration holds for it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from headwater.broker.access.declared_access import ANY_VERSION, LEFT_OUT, REFUSALS, AccessCheck
from headwater.broker.api import Api
from headwater.broker.dispatch import load_handlers
from headwater.model.errors import ErrorCode
from headwater.security.access_codes import ResourceType
from headwater.wire.api_keys import ApiKey
from tests.broker.access.matrix.scene import Scene

Fields: TypeAlias = dict[str, Any]
APIS: Final = {ApiKey(key): entry.api for key, entry in sorted(load_handlers().items())}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    api_key: ApiKey
    title: str
    """Beside the API's name: what is asked for."""
    build: Callable[[Scene, int], Awaitable[Fields]]
    """The request's fields, in a version; those that the version does not have are left away."""
    picks: Callable[[AccessCheck], bool] = lambda check: True
    """Which of the API's checks hold for this shape."""
    versions: range = ANY_VERSION
    left_out: ResourceType | None = None
    """Resources of this type that are refused are not in the response, although the declared place is there for other
    shapes."""
    closes: bool = False
    """A refusal closes the connection: there is no response."""
    spoils: bool = False
    """The request cannot be sent twice: it takes what it names away, or changes it."""
    shows_all: bool = False
    """As in Kafka, a client that is allowed sees names that it may not describe."""
    has_session: bool = False
    """A request is the next one of a session, also if what it asks for is refused."""
    also: frozenset[ErrorCode] = frozenset()
    """Errors that say that the request was allowed, and came to nothing."""

    @property
    def api(self) -> Api:
        return APIS[self.api_key]

    @property
    def name(self) -> str:
        return f"{self.api.name} {self.title}".strip()

    @property
    def served(self) -> list[int]:
        versions = range(self.api.min_version, self.api.max_version + 1)
        return [version for version in versions if version in self.versions]

    def checks(self, version: int) -> list[AccessCheck]:
        return [each for each in self.api.access.checks if version in each.versions and self.picks(each)]

    def place(self, check: AccessCheck) -> str:
        return LEFT_OUT if check.resource_type is self.left_out else check.refused_at


def alternatives(check: AccessCheck) -> list[AccessCheck]:
    """The check, and what does as well."""
    return [check] if check.or_else is None else [check, *alternatives(check.or_else)]


def refusal(check: AccessCheck) -> ErrorCode:
    """Of the narrowest resource that the request names, as in Kafka."""
    named = [each for each in alternatives(check) if each.named_at]
    return REFUSALS[(named[-1] if named else check).resource_type]
