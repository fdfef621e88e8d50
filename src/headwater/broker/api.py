"""What a handler says of its API, and what it is given beside the request."""

from dataclasses import dataclass

from headwater.broker.access.client_access import ClientAccess
from headwater.broker.access.declared_access import Access
from headwater.broker.access.sasl_session import SaslSession
from headwater.broker.quotas.request_usage import RequestUsage
from headwater.transport.connection import Connection
from headwater.wire.api_keys import ApiKey
from headwater.wire.messages import RequestHeader
from headwater.wire.typed.api_versions import ApiVersion


@dataclass(frozen=True, slots=True)
class Api:
    key: ApiKey
    name: str
    access: Access
    """What it asks of a client. There is no default: an API that nothing was said of is open to everyone."""
    min_version: int
    max_version: int
    advertised_min_version: int | None = None
    """What ApiVersions says, where that must differ from what is served."""
    overlaps: bool = False
    """Whether requests of this API may be under way at the same time on one connection."""

    def serves(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version


@dataclass(frozen=True, slots=True)
class RequestContext:
    header: RequestHeader
    connection: Connection
    access: ClientAccess
    """What the client may do: its identity is that of the moment when the request started."""
    usage: RequestUsage | None = None
    """What the request uses of its client's quotas; None if nothing limits it."""

    @property
    def api_version(self) -> int:
        return self.header.api_version

    @property
    def client_id(self) -> str:
        return self.header.client_id or ""

    @property
    def listener(self) -> str:
        """The name of the listener that the client came in by. Addresses in answers are those of this listener."""
        return self.connection.listener.name

    @property
    def login(self) -> "SaslSession | None":
        """None on a listener without SASL."""
        login: SaslSession | None = self.connection.login
        return login

    @property
    def client_host(self) -> str:
        """As Kafka writes it: the address, behind the empty place of a host name that was not looked up."""
        return f"/{self.connection.peer_host}"


def api_ranges(apis: list[Api]) -> list[ApiVersion]:
    """What ApiVersions says of each API."""
    return [
        ApiVersion(
            api_key=api.key,
            min_version=api.min_version if api.advertised_min_version is None else api.advertised_min_version,
            max_version=api.max_version,
        )
        for api in apis
    ]
