"""A client file: where the brokers are and how to get in, as Kafka's tools take it (`--command-config`).

    bootstrap.servers=broker-1.example.com:9093
    security.protocol=SASL_SSL
    sasl.mechanism=SCRAM-SHA-512
    sasl.username=alice
    sasl.password=…
    ssl.ca.location=ca.pem

It is for what it says and nothing else: an option that is not understood here is refused, because what it protects
would go unprotected. Paths that are not absolute start where the file is. Messages name the line and the option, and
never a value that may be a secret.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from headwater.client.address import InvalidAddress, parse_bootstrap
from headwater.client.properties import MalformedProperties, Property, parse_properties
from headwater.client.security_options import (
    SASL_OPTIONS,
    SECRET_OPTIONS,
    SECURITY_OPTIONS,
    TLS_OPTIONS,
    ClientSecurity,
    InvalidSecurityOption,
    security_of,
)

KNOWN_OPTIONS: Final = frozenset({"bootstrap.servers", "client.id", *SECURITY_OPTIONS})
_OPTION_NAME: Final = re.compile(r"[a-z]+(?:[.-][a-z]+)+")
_INLINE_PEM: Final = frozenset({"ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.truststore.certificates"})
_STORE_PASSWORDS: Final = frozenset({"ssl.keystore.password", "ssl.truststore.password"})


class BadClientFile(ValueError):
    """A client file that cannot be used. The message says which line and why, and not which file."""


@dataclass(frozen=True, slots=True)
class ClientFile:
    bootstrap: str | None
    """As it stands there."""
    client_id: str | None
    security: ClientSecurity
    has_secret: bool
    """Others should not read it."""


def read_client_file(text: str, folder: PurePath) -> ClientFile:
    """Raises BadClientFile."""
    try:
        properties = parse_properties(text)
    except MalformedProperties as error:
        raise BadClientFile(str(error)) from None
    options: dict[str, str] = {}
    lines: dict[str, int] = {}
    for each in properties:
        _check(each, lines)
        options[each.key], lines[each.key] = each.value, each.line
    try:
        security = security_of({name: _located(name, value, folder) for name, value in options.items()})
    except InvalidSecurityOption as error:
        line = lines.get(error.option)
        raise BadClientFile(f"line {line}: {error}" if line is not None else str(error)) from None
    _check_protocol(security, lines)
    return ClientFile(
        bootstrap=_bootstrap(options, lines),
        client_id=options.get("client.id") or None,
        security=security,
        has_secret=not SECRET_OPTIONS.isdisjoint(options),
    )


def _check(each: Property, lines: Mapping[str, int]) -> None:
    key = each.key
    if key in _INLINE_PEM:
        raise BadClientFile(
            f"line {each.line}: {key} holds PEM itself; put it into a file, and name the file with ssl.ca.location, "
            "ssl.certificate.location and ssl.key.location"
        )
    if key in _STORE_PASSWORDS:
        raise BadClientFile(
            f"line {each.line}: {key} is for Java key stores, which only Java reads; PEM files have no password but "
            "ssl.key.password"
        )
    if key not in KNOWN_OPTIONS:
        shown = f"{key} is not understood" if _OPTION_NAME.fullmatch(key) else "this is not an option"
        raise BadClientFile(f"line {each.line}: {shown}. Understood are: {', '.join(sorted(KNOWN_OPTIONS))}")
    if key in lines:
        raise BadClientFile(f"line {each.line}: {key} is given twice, first in line {lines[key]}")
    if "\0" in each.value:
        raise BadClientFile(f"line {each.line}: {key} has a NUL character")


def _check_protocol(security: ClientSecurity, lines: Mapping[str, int]) -> None:
    """What the protocol leaves unused was meant to be used."""
    unused: Sequence[str] = sorted(
        option
        for options, part in ((TLS_OPTIONS, security.tls), (SASL_OPTIONS, security.sasl))
        for option in options & lines.keys()
        if part is None
    )
    if unused:
        raise BadClientFile(
            f"line {lines[unused[0]]}: {unused[0]} has no meaning with security.protocol={security.protocol}; "
            "with TLS it is SSL or SASL_SSL, with a login SASL_SSL or SASL_PLAINTEXT"
        )


def _bootstrap(options: Mapping[str, str], lines: Mapping[str, int]) -> str | None:
    text = options.get("bootstrap.servers", "").strip()
    if not text:
        return None
    try:
        parse_bootstrap(text)
    except InvalidAddress as error:
        raise BadClientFile(f"line {lines['bootstrap.servers']}: bootstrap.servers: {error}") from None
    return text


def _located(name: str, value: str, folder: PurePath) -> str:
    return str(folder / value) if name.endswith(".location") and value else value
