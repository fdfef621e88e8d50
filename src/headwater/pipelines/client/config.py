"""How to reach the brokers: the `kafka.…` options of a query, read once and checked.

The names are those of Kafka's Java client, which people know from Spark's own Kafka source; for TLS the names of
librdkafka work too, because they point to PEM files as Python wants them. Options that steer a consumer group have no
meaning here, where Spark keeps the offsets: they are accepted, and ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.client.address import BrokerAddress
from headwater.client.security_options import SECURITY_OPTIONS, ClientSecurity, InvalidSecurityOption, security_of
from headwater.client.settings import ConnectionSettings, SaslLogin, TlsFiles
from headwater.pipelines.client.option_values import a_choice, an_integer
from headwater.pipelines.errors import InvalidOption

PREFIX = "kafka."
DEFAULT_PORT = 9092
DEFAULT_CLIENT_ID = "headwater-spark"
MAX_FETCH_BYTES = 512 * 1024 * 1024
"""What one response may hold: Arrow counts the bytes of a column in 31 bits."""

NO_MEANING = frozenset(
    {
        "allow.auto.create.topics",
        "check.crcs",
        "fetch.max.bytes",
        "fetch.min.bytes",
        "group.id",
        "group.instance.id",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "partition.assignment.strategy",
        "session.timeout.ms",
    }
)
REFUSED = {
    "auto.offset.reset": "say where to start with the option startingOffsets",
    "enable.auto.commit": "Spark keeps the offsets in its checkpoint",
    "interceptor.classes": "there is no Java client here to intercept",
    "key.deserializer": "keys arrive as bytes: decode them in the query",
    "value.deserializer": "values arrive as bytes: decode them in the query, for example with from_schema",
}


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Hashable: everything in one process that has the same configuration shares its connections."""

    bootstrap: tuple[BrokerAddress, ...]
    client_id: str = DEFAULT_CLIENT_ID
    tls: TlsFiles | None = None
    sasl: SaslLogin | None = None
    is_read_committed: bool = False
    fetch_bytes: int = 4 * 1024 * 1024
    """Of one partition in one response: enough rows for Arrow to work on, little enough to stay in a cache."""
    fetch_wait_ms: int = 500
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    retry_timeout_ms: int = 60_000
    """How long brokers may be away before a query fails."""
    metadata_age_ms: int = 5_000
    """After this time a running query looks for new topics and partitions."""

    @property
    def connection(self) -> ConnectionSettings:
        return ConnectionSettings(
            client_id=self.client_id,
            tls=self.tls,
            sasl=self.sasl,
            connect_timeout_s=self.connect_timeout_ms / 1000,
            request_timeout_s=self.request_timeout_ms / 1000,
        )

    @property
    def isolation_level(self) -> int:
        return int(self.is_read_committed)


def is_client_option(name: str) -> bool:
    """Whether an option, in lower case as Spark hands it over, is for reaching the brokers."""
    return name.startswith(PREFIX) or name in _KNOWN


def client_config(options: Mapping[str, str]) -> ClientConfig:
    """From the options that `is_client_option` picks, with or without the prefix `kafka.`."""
    given = _without_prefix(options)
    for name in given:
        if name in REFUSED:
            raise InvalidOption(f"Option {PREFIX}{name} is not supported: {REFUSED[name]}.")
        if name not in _KNOWN:
            raise InvalidOption(f"Option {PREFIX}{name} is unknown. Known are: {', '.join(sorted(_SETTINGS))}.")
    if "bootstrap.servers" not in given:
        raise InvalidOption("Option kafka.bootstrap.servers is missing: which broker to ask first, as host:port.")
    security = _security(given)
    return ClientConfig(
        bootstrap=_addresses(given["bootstrap.servers"]),
        client_id=given.get("client.id", DEFAULT_CLIENT_ID),
        tls=security.tls,
        sasl=security.sasl,
        is_read_committed=_is_read_committed(given),
        **{
            field: an_integer(PREFIX + name, given[name], at_least=least, at_most=most)
            for name, (field, least, most) in _NUMBERS.items()
            if name in given
        },
    )


_DAY_MS = 86_400_000
_NUMBERS = {
    "max.partition.fetch.bytes": ("fetch_bytes", 1, MAX_FETCH_BYTES),
    "fetch.max.wait.ms": ("fetch_wait_ms", 0, _DAY_MS),
    "socket.connection.setup.timeout.ms": ("connect_timeout_ms", 1, _DAY_MS),
    "request.timeout.ms": ("request_timeout_ms", 1, _DAY_MS),
    "default.api.timeout.ms": ("retry_timeout_ms", 0, _DAY_MS),
    "metadata.max.age.ms": ("metadata_age_ms", 0, _DAY_MS),
}
_SETTINGS = {"bootstrap.servers", "client.id", "isolation.level", *_NUMBERS, *SECURITY_OPTIONS}
_KNOWN = _SETTINGS | NO_MEANING | REFUSED.keys()


def _without_prefix(options: Mapping[str, str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for option, value in options.items():
        name = option.removeprefix(PREFIX)
        if given.setdefault(name, value) != value:
            raise InvalidOption(f"Option {name} is given twice, with and without the prefix {PREFIX}, and they differ.")
    return given


def _addresses(text: str) -> tuple[BrokerAddress, ...]:
    addresses = tuple(_address(part.strip()) for part in text.split(",") if part.strip())
    if not addresses:
        raise InvalidOption("Option kafka.bootstrap.servers is empty: which broker to ask first, as host:port.")
    return addresses


def _address(text: str) -> BrokerAddress:
    without_protocol = text.rpartition("://")[2]
    host, colon, port = without_protocol.rpartition(":")
    if not colon or (host.count(":") and not host.startswith("[")):
        host, port = without_protocol, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise InvalidOption(f"Option kafka.bootstrap.servers has {text!r}, which is not host:port.")
    return BrokerAddress(host, int(port))


def _is_read_committed(given: Mapping[str, str]) -> bool:
    level = a_choice("kafka.isolation.level", given.get("isolation.level", "read_uncommitted"), _ISOLATION_LEVELS)
    return level == "read_committed"


_ISOLATION_LEVELS = ("read_committed", "read_uncommitted")


def _security(given: Mapping[str, str]) -> ClientSecurity:
    try:
        return security_of(given, PREFIX)
    except InvalidSecurityOption as error:
        raise InvalidOption(f"Option {error}.") from None
