"""One listener for clients, as a table `[[listener]]` of the configuration file:

    [[listener]]
    name = "clients"
    protocol = "SSL"
    listen = "0.0.0.0:9093"
    advertise = "broker-1.example.com:9093"
    certificate = "/etc/headwater/tls/node.pem"
    key = "/etc/headwater/tls/node.key"

Without such a table there is one, of `listen` and `advertise`, that is called PLAINTEXT.
"""

import enum
import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headwater.broker.settings import setting
from headwater.broker.settings.setting import Address, ConfigError
from headwater.model.cluster import PLAINTEXT_LISTENER
from headwater.model.config_key import MAX_INT
from headwater.security.sasl_mechanisms import SaslMechanism

if TYPE_CHECKING:  # they read certificates, and most brokers need none
    from headwater.security.principal_rules import CertificatePrincipals

DEFAULT_MECHANISMS: Final = (SaslMechanism.SCRAM_SHA_512, SaslMechanism.SCRAM_SHA_256)
SERVED_MECHANISMS: Final = (*DEFAULT_MECHANISMS, SaslMechanism.PLAIN, SaslMechanism.OAUTHBEARER)
_SECRETS_AS_THEY_ARE: Final = {SaslMechanism.PLAIN: "passwords", SaslMechanism.OAUTHBEARER: "tokens"}
MAX_LISTENERS: Final = 16
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
CLIENT_CERTIFICATES: Final = ("none", "request", "require")
PRINCIPAL_SOURCES: Final = ("dn", "cn", "san-dns", "san-uri")
MAX_PRINCIPAL_RULES: Final = 100


class SecurityProtocol(enum.StrEnum):
    """How a listener's connections are protected, in the words of Kafka's clients."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_encrypted(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_login(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


def _protocol(value: object) -> SecurityProtocol:
    return setting.one_of(SecurityProtocol, value)


def _name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ConfigError("a name of 1 to 64 letters, digits, - and _ is needed")
    return value


def _client_certificates(value: object) -> str:
    if value not in CLIENT_CERTIFICATES:
        raise ConfigError(f"one of {', '.join(CLIENT_CERTIFICATES)} is needed")
    return str(value)


def _principal_source(value: object) -> str:
    if value not in PRINCIPAL_SOURCES:
        raise ConfigError(f"one of {', '.join(PRINCIPAL_SOURCES)} is needed")
    return str(value)


def _principal_rules(value: object) -> tuple[str, ...]:
    """A list of rules, or one text as Kafka has it: commas may be part of a rule, so it is not divided here."""
    rules = [value] if isinstance(value, str) else value
    if not isinstance(rules, list | tuple) or not 1 <= len(rules) <= MAX_PRINCIPAL_RULES:
        raise ConfigError(f"a list of 1 to {MAX_PRINCIPAL_RULES} rules is needed")
    if not all(isinstance(each, str) for each in rules):
        raise ConfigError("a list of texts is needed")
    return tuple(rules)


def _mechanisms(value: object) -> tuple[SaslMechanism, ...]:
    served = {each.value: each for each in SERVED_MECHANISMS}
    words = setting.words(value)
    if not words or any(word not in served for word in words):
        raise ConfigError(f"one or more of {', '.join(served)} are needed")
    return tuple(dict.fromkeys(served[word] for word in words))


def _milliseconds(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_INT:
        raise ConfigError("a number of milliseconds is needed; 0 sets no limit")
    return value


def _connections(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError("a whole number above 0 is needed")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig:
    name: str
    listen: Address
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    advertise: Address | None = None
    certificate: Path | None = None
    """PEM: the chain, the listener's own certificate first."""
    key: Path | None = None
    client_ca: Path | None = None
    """Who signs certificates of clients."""
    client_certificates: str = "none"
    revoked: Path | None = None
    """Revoked certificates of clients (a CRL)."""
    principal_from: str = "dn"
    """The part of a client's certificate that names its user."""
    principal_rules: tuple[str, ...] = ()
    """What becomes of a distinguished name, in Kafka's words; without any it is the user's name as it is."""
    max_connections: int = MAX_INT
    mechanisms: tuple[SaslMechanism, ...] = ()
    """Of SASL; SCRAM, unless something else is given."""
    reauth_ms: int = 0
    """How long a login lasts; 0: as long as the connection."""

    @property
    def asks_who(self) -> bool:
        """Whether every client that gets in has said who it is."""
        return self.protocol.has_login or self.client_certificates == "require"

    @property
    def takes_passwords(self) -> bool:
        """By SCRAM, which does not show them."""
        return any(mechanism in DEFAULT_MECHANISMS for mechanism in self.offered)

    @property
    def offered(self) -> tuple[SaslMechanism, ...]:
        return self.mechanisms or (DEFAULT_MECHANISMS if self.protocol.has_login else ())

    def principals(self) -> "CertificatePrincipals":
        """Raises ConfigError."""
        from headwater.security.principal_rules import (
            CertificatePrincipals,
            MalformedRule,
            PrincipalRules,
            PrincipalSource,
        )

        try:
            rules = PrincipalRules(self.principal_rules) if self.principal_rules else None
            return CertificatePrincipals(PrincipalSource(self.principal_from), rules)
        except MalformedRule as error:
            raise ConfigError(f"principal_rules: {error}") from None

    def advertised(self, port: int) -> tuple[str, int]:
        """The address that clients are given. A port of 0 was replaced by the one that was bound."""
        if self.advertise is not None:
            return self.advertise.host, self.advertise.port or port
        return self.listen.host, port

    def check(self) -> None:
        """What no key can say by itself. Raises ConfigError."""
        if self.advertise is not None and self.advertise.port == 0:
            raise ConfigError("advertise needs the port that clients connect to, not 0")
        self._check_login()
        self._check_principals()
        files = {"certificate": self.certificate, "key": self.key}
        if self.protocol.is_encrypted:
            missing = [name for name, path in files.items() if path is None]
            if missing:
                raise ConfigError(f"{self.protocol.value} needs {' and '.join(missing)}: PEM files")
            if self.client_certificates != "none" and self.client_ca is None:
                raise ConfigError("client_certificates needs client_ca: a PEM file with who signs them")
            return
        unused = files | {"client_ca": self.client_ca, "revoked": self.revoked}
        given = [name for name, path in unused.items() if path is not None]
        if given or self.client_certificates != "none":
            name = given[0] if given else "client_certificates"
            raise ConfigError(f"{name} is for listeners with TLS; the protocol of this one is {self.protocol.value}")

    def _check_principals(self) -> None:
        if not self.principal_rules and self.principal_from == "dn":
            return
        name = "principal_rules" if self.principal_rules else "principal_from"
        if self.protocol is not SecurityProtocol.SSL:
            raise ConfigError(f"{name} is for listeners with SSL; the protocol of this one is {self.protocol.value}")
        if self.client_certificates == "none":
            raise ConfigError(f'{name} is for certificates of clients: set client_certificates = "require"')
        self.principals()

    def _check_login(self) -> None:
        if not self.protocol.has_login and (self.mechanisms or self.reauth_ms):
            name = "mechanisms" if self.mechanisms else "reauth_ms"
            raise ConfigError(f"{name} is for listeners with SASL; the protocol of this one is {self.protocol.value}")
        is_open = not self.protocol.is_encrypted and not is_loopback(self.listen.host)
        for mechanism, secrets in _SECRETS_AS_THEY_ARE.items():
            if is_open and mechanism in self.mechanisms:
                raise ConfigError(f"{mechanism} sends {secrets} as they are: it needs SASL_SSL, or a loopback address")


_READERS: Final[Mapping[str, Callable[[object], Any]]] = {
    "name": _name,
    "listen": setting.address,
    "protocol": _protocol,
    "advertise": setting.address,
    "certificate": setting.path,
    "key": setting.path,
    "client_ca": setting.path,
    "client_certificates": _client_certificates,
    "revoked": setting.path,
    "principal_from": _principal_source,
    "principal_rules": _principal_rules,
    "max_connections": _connections,
    "mechanisms": _mechanisms,
    "reauth_ms": _milliseconds,
}
"""Of each key: from a TOML value, or ConfigError with what is allowed."""


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def plaintext(listen: Address, advertise: Address | None) -> ListenerConfig:
    """The listener of a configuration that names none."""
    return ListenerConfig(name=PLAINTEXT_LISTENER, listen=listen, advertise=advertise)


def read_listeners(value: object) -> tuple[ListenerConfig, ...]:
    """From the tables `[[listener]]`. Raises ConfigError."""
    if not isinstance(value, list | tuple) or not all(isinstance(each, Mapping | ListenerConfig) for each in value):
        raise ConfigError("tables are needed, each under [[listener]]")
    if len(value) > MAX_LISTENERS:
        raise ConfigError(f"there are at most {MAX_LISTENERS} listeners")
    listeners = tuple(each if isinstance(each, ListenerConfig) else _read_listener(each) for each in value)
    names = [each.name for each in listeners]
    if len(set(names)) < len(names):
        raise ConfigError("two listeners have one name")
    addresses = [each.listen for each in listeners if each.listen.port]
    if len(set(addresses)) < len(addresses):
        raise ConfigError("two listeners have one address")
    return listeners


def _read_listener(table: Mapping[str, object]) -> ListenerConfig:
    called = f"listener {table['name']!r:.100}" if "name" in table else "a listener without a name"
    try:
        values = setting.read_keys(table, _READERS)
    except ConfigError as problem:
        raise ConfigError(f"{called}: {problem}") from None
    for needed in ("name", "listen"):
        if needed not in values:
            raise ConfigError(f"{called}: {needed} is missing")
    listener = ListenerConfig(**values)
    try:
        listener.check()
    except ConfigError as problem:
        raise ConfigError(f"{called}: {problem}") from None
    return listener
