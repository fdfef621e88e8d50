"""How to reach the brokers: the `kafka.…` options of a query, read once and checked.

The names are those of Kafka's Java client, which people know from Spark's own Kafka source; for TLS the names of
librdkafka work too, because they point to PEM files as Python wants them. Options that steer a consumer group have no
meaning here, where Spark keeps the offsets: they are accepted, and ignored.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from headwater.client.address import BrokerAddress
from headwater.client.settings import ConnectionSettings, SaslLogin, TlsFiles
from headwater.pipelines.client.option_values import a_choice, an_integer
from headwater.pipelines.errors import InvalidOption
from headwater.security.sasl_mechanisms import SaslMechanism

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
    return ClientConfig(
        bootstrap=_addresses(given["bootstrap.servers"]),
        client_id=given.get("client.id", DEFAULT_CLIENT_ID),
        tls=_tls(given),
        sasl=_sasl(given),
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
_TLS_FILES = {
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.endpoint.identification.algorithm",
}
_SASL = {"sasl.mechanism", "sasl.username", "sasl.password", "sasl.jaas.config"}
_MECHANISMS = {each.value.lower(): each for each in SaslMechanism if each is not SaslMechanism.OAUTHBEARER}
_JAAS = re.compile(r"""\s*[\w.]+LoginModule\s+required\b(?P<options>[^;]*);?\s*""")
_JAAS_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')""")
_SETTINGS = {"bootstrap.servers", "client.id", "isolation.level", "security.protocol", *_NUMBERS, *_TLS_FILES, *_SASL}
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
_PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")


def _protocol(given: Mapping[str, str]) -> str:
    return a_choice("kafka.security.protocol", given.get("security.protocol", "plaintext"), _PROTOCOLS)


def _sasl(given: Mapping[str, str]) -> SaslLogin | None:
    if not _protocol(given).startswith("sasl"):
        return None
    name = a_choice("kafka.sasl.mechanism", given.get("sasl.mechanism", "none"), tuple(_MECHANISMS))
    user, password = given.get("sasl.username"), given.get("sasl.password")
    if "sasl.jaas.config" in given:
        user, password = _jaas(given["sasl.jaas.config"])
    if user is None or password is None:
        raise InvalidOption(
            "A login needs kafka.sasl.username and kafka.sasl.password, or kafka.sasl.jaas.config with both."
        )
    return SaslLogin(mechanism=_MECHANISMS[name], user=user, password=password)


def _jaas(text: str) -> tuple[str | None, str | None]:
    """User and password, as Java's clients have them. What is wrong is said without the text, which is a secret."""
    found = _JAAS.fullmatch(text)
    if found is None:
        raise InvalidOption(
            'Option kafka.sasl.jaas.config is not of the form: a login module, required, username="…" password="…";'
        )
    options = {name: _unescaped(double or single) for name, double, single in _JAAS_OPTION.findall(found["options"])}
    return options.get("username"), options.get("password")


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _tls(given: Mapping[str, str]) -> TlsFiles | None:
    if not _protocol(given).endswith("ssl"):
        return None
    for store in ("keystore", "truststore"):
        if f"ssl.{store}.location" in given and given.get(f"ssl.{store}.type", "JKS").upper() != "PEM":
            raise InvalidOption(
                f"Option kafka.ssl.{store}.location names a Java key store, which only Java reads. Export it as PEM, "
                f"name that file instead and say kafka.ssl.{store}.type=PEM."
            )
    keystore = given.get("ssl.keystore.location")
    return TlsFiles(
        authorities=given.get("ssl.ca.location", given.get("ssl.truststore.location")),
        certificate=given.get("ssl.certificate.location", keystore),
        key=given.get("ssl.key.location", keystore),
        key_password=given.get("ssl.key.password"),
        checks_host_name=given.get("ssl.endpoint.identification.algorithm", "https").lower() == "https",
    )
