"""TLS and the login, from the options of Kafka's clients: `security.protocol`, `sasl.…`, `ssl.…`.

The names are those of Kafka's Java client; for TLS and for the password those of librdkafka work too, because they name
PEM files and texts as Python wants them. Client files and the `kafka.…` options of queries are read here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headwater.client.settings import SaslLogin, TlsFiles
from headwater.security.sasl_mechanisms import SaslMechanism

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
TLS_OPTIONS: Final = frozenset(
    {
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
)
SASL_OPTIONS: Final = frozenset({"sasl.mechanism", "sasl.username", "sasl.password", "sasl.jaas.config"})
SECURITY_OPTIONS: Final = frozenset({"security.protocol", *TLS_OPTIONS, *SASL_OPTIONS})
SECRET_OPTIONS: Final = frozenset({"sasl.password", "sasl.jaas.config", "ssl.key.password"})
_MECHANISMS: Final = {each.value: each for each in SaslMechanism if each is not SaslMechanism.OAUTHBEARER}
_HOST_CHECKS: Final = {"https": True, "none": False, "": False}
_JAAS_VALUE: Final = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"'=]+)"""
_JAAS: Final = re.compile(
    rf"\s*[\w.]*LoginModule\s+(?:required|requisite|sufficient|optional)(?P<options>(?:\s+\w+\s*=\s*{_JAAS_VALUE})*)\s*;?\s*"
)
_JAAS_OPTION: Final = re.compile(rf"(\w+)\s*=\s*({_JAAS_VALUE})")


class InvalidSecurityOption(ValueError):
    """An option that cannot be used. The message names it, and never a secret; `option` is its name without a
    prefix."""

    def __init__(self, option: str, message: str) -> None:
        super().__init__(message)
        self.option = option


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """How a client gets in. Hashable, as part of what makes connections the same."""

    tls: TlsFiles | None = None
    sasl: SaslLogin | None = None

    @property
    def protocol(self) -> str:
        """Kafka's `security.protocol`."""
        return PROTOCOLS[2 * (self.sasl is not None) + (self.tls is not None)]

    def options(self) -> dict[str, str]:
        """For another client that takes these names: librdkafka, and queries with the prefix `kafka.`."""
        options: dict[str, str | None] = {"security.protocol": self.protocol}
        if self.sasl is not None:
            options |= {
                "sasl.mechanism": self.sasl.mechanism.value,
                "sasl.username": self.sasl.user,
                "sasl.password": self.sasl.password,
            }
        if self.tls is not None:
            options |= {
                "ssl.ca.location": self.tls.authorities,
                "ssl.certificate.location": self.tls.certificate,
                "ssl.key.location": self.tls.key,
                "ssl.key.password": self.tls.key_password,
                "ssl.endpoint.identification.algorithm": "https" if self.tls.checks_host_name else "none",
            }
        return {name: value for name, value in options.items() if value is not None}


def security_of(options: Mapping[str, str], prefix: str = "") -> ClientSecurity:
    """From options without their prefix, with which messages name them; other options are left alone. Raises
    InvalidSecurityOption."""
    protocol = _choice(prefix, "security.protocol", options.get("security.protocol", PROTOCOLS[0]), PROTOCOLS)
    return ClientSecurity(
        tls=_tls(options, prefix) if protocol.endswith("SSL") else None,
        sasl=_sasl(options, prefix) if protocol.startswith("SASL") else None,
    )


def _sasl(options: Mapping[str, str], prefix: str) -> SaslLogin:
    mechanism = _choice(prefix, "sasl.mechanism", options.get("sasl.mechanism", ""), tuple(_MECHANISMS))
    user, password = options.get("sasl.username"), options.get("sasl.password")
    if "sasl.jaas.config" in options:
        user, password = _jaas(options["sasl.jaas.config"], prefix)
    if not user or not password:
        missing = "sasl.jaas.config" if "sasl.jaas.config" in options else "sasl.password" if user else "sasl.username"
        raise InvalidSecurityOption(
            missing,
            f"{prefix}{missing} lacks something: a login needs {prefix}sasl.username and {prefix}sasl.password, or "
            f"{prefix}sasl.jaas.config with both",
        )
    return SaslLogin(mechanism=_MECHANISMS[mechanism], user=user, password=password)


def _jaas(text: str, prefix: str) -> tuple[str | None, str | None]:
    """User and password, as Java's clients have them. What is wrong is said without the text, which is a secret."""
    statement = _JAAS.fullmatch(text)
    if statement is None:
        raise InvalidSecurityOption(
            "sasl.jaas.config",
            f'{prefix}sasl.jaas.config is not of the form: a login module, required, username="…" password="…";',
        )
    values = {name: _unquoted(value) for name, value in _JAAS_OPTION.findall(statement["options"])}
    return values.get("username"), values.get("password")


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text[0] in "\"'" else text


def _tls(options: Mapping[str, str], prefix: str) -> TlsFiles:
    for store in ("keystore", "truststore"):
        location = f"ssl.{store}.location"
        if location in options and options.get(f"ssl.{store}.type", "JKS").upper() != "PEM":
            raise InvalidSecurityOption(
                location,
                f"{prefix}{location} names a Java key store, which only Java reads. Export it as PEM, name that file "
                f"instead and say {prefix}ssl.{store}.type=PEM",
            )
    check = options.get("ssl.endpoint.identification.algorithm", "https").lower()
    if check not in _HOST_CHECKS:
        raise InvalidSecurityOption(
            "ssl.endpoint.identification.algorithm",
            f"{prefix}ssl.endpoint.identification.algorithm is {check!r}; it can be https, or none for no check of the "
            "server's name",
        )
    keystore = options.get("ssl.keystore.location") or None
    return TlsFiles(
        authorities=options.get("ssl.ca.location") or options.get("ssl.truststore.location") or None,
        certificate=options.get("ssl.certificate.location") or keystore,
        key=options.get("ssl.key.location") or keystore,
        key_password=options.get("ssl.key.password"),
        checks_host_name=_HOST_CHECKS[check],
    )


def _choice(prefix: str, option: str, text: str, choices: tuple[str, ...]) -> str:
    chosen = text.strip().upper()
    if chosen not in choices:
        shown = repr(text[:100]) if text else "missing"
        raise InvalidSecurityOption(option, f"{prefix}{option} is {shown}; it can be {' or '.join(choices)}")
    return chosen
