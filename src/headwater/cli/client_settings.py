"""Settings with which a client logs in, as each client takes them: ready to be copied or written into a file."""

import enum
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headwater.client.properties import property_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from headwater.client.security_options import ClientSecurity


class ClientKind(enum.StrEnum):
    LIBRDKAFKA = "librdkafka"
    JAVA = "java"
    KAFKA_PYTHON = "kafka-python"
    AIOKAFKA = "aiokafka"
    FRANZ_GO = "franz-go"
    KCAT = "kcat"


@dataclass(frozen=True, slots=True)
class ClientLogin:
    """Of a user at brokers."""

    bootstrap: str
    security: "ClientSecurity"

    @property
    def user(self) -> str:
        assert self.security.sasl is not None, "a login has a user"
        return self.security.sasl.user

    @property
    def password(self) -> str:
        assert self.security.sasl is not None, "a login has a password"
        return self.security.sasl.password

    @property
    def mechanism(self) -> str:
        assert self.security.sasl is not None, "a login has a mechanism"
        return self.security.sasl.mechanism.value

    @property
    def authorities(self) -> str | None:
        return self.security.tls.authorities if self.security.tls is not None else None


def settings_text(kind: ClientKind, login: ClientLogin) -> str:
    """Without a newline at the end. The certificate of the client that asks is not another user's: it is left out."""
    if login.security.tls is not None:
        tls = replace(login.security.tls, certificate=None, key=None, key_password=None)
        login = replace(login, security=replace(login.security, tls=tls))
    return _WRITERS[kind](login)


def _librdkafka_options(login: ClientLogin) -> dict[str, str]:
    return {"bootstrap.servers": login.bootstrap, **login.security.options()}


def _librdkafka(login: ClientLogin) -> str:
    return json.dumps(_librdkafka_options(login), indent=2, ensure_ascii=False)


def _kcat(login: ClientLogin) -> str:
    """For `kcat -F FILE`, which takes values as they are."""
    return "\n".join(f"{name}={value}" for name, value in _librdkafka_options(login).items())


def _java(login: ClientLogin) -> str:
    """Which the commands take as a client file, too."""
    module = "plain.PlainLoginModule" if login.mechanism == "PLAIN" else "scram.ScramLoginModule"
    user, password = (text.replace("\\", "\\\\").replace('"', '\\"') for text in (login.user, login.password))
    options = {
        "bootstrap.servers": login.bootstrap,
        "security.protocol": login.security.protocol,
        "sasl.mechanism": login.mechanism,
        "sasl.jaas.config": (
            f'org.apache.kafka.common.security.{module} required username="{user}" password="{password}";'
        ),
    }
    if login.authorities is not None:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": login.authorities}
    if login.security.tls is not None and not login.security.tls.checks_host_name:
        options["ssl.endpoint.identification.algorithm"] = ""
    return "\n".join(property_line(name, value) for name, value in options.items())


def _python_options(login: ClientLogin) -> dict[str, str]:
    return {
        "bootstrap_servers": login.bootstrap,
        "security_protocol": login.security.protocol,
        "sasl_mechanism": login.mechanism,
        "sasl_plain_username": login.user,
        "sasl_plain_password": login.password,
    }


def _kafka_python(login: ClientLogin) -> str:
    options: dict[str, object] = dict(_python_options(login))
    if login.authorities is not None:
        options["ssl_cafile"] = login.authorities
    if login.security.tls is not None and not login.security.tls.checks_host_name:
        options["ssl_check_hostname"] = False
    return _dictionary(options)


def _aiokafka(login: ClientLogin) -> str:
    if login.security.tls is None:
        return _dictionary(_python_options(login))
    file = repr(login.authorities) if login.authorities is not None else ""
    lines = ["import ssl", "", f"context = ssl.create_default_context(cafile={file})" if file else _SYSTEM_CONTEXT]
    if not login.security.tls.checks_host_name:
        lines.append("context.check_hostname = False")
    return "\n".join([*lines, _dictionary(_python_options(login), "ssl_context=context")])


def _franz_go(login: ClientLogin) -> str:
    hash_word = login.mechanism.removeprefix("SCRAM-SHA-")
    auth = f"Auth{{User: {_go(login.user)}, Pass: {_go(login.password)}}}"
    mechanism = f"plain.{auth}.AsMechanism()"
    if login.mechanism != "PLAIN":
        mechanism = f"scram.{auth}.AsSha{hash_word}Mechanism()"
    lines = [f"kgo.SeedBrokers({', '.join(_go(each.strip()) for each in login.bootstrap.split(','))}),"]
    lines.append(f"kgo.SASL({mechanism}),")
    if login.security.tls is not None:
        if login.authorities is not None:
            lines.append(f"// pool := x509.NewCertPool(), filled by AppendCertsFromPEM with {login.authorities}")
        pool = "RootCAs: pool" if login.authorities is not None else ""
        lines.append(f"kgo.DialTLSConfig(&tls.Config{{{pool}}}),")
    return "\n".join(lines)


def _go(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _dictionary(options: "dict[str, object] | dict[str, str]", *more: str) -> str:
    """As an expression of Python; `more` are keywords that are no texts."""
    inner = [f"    {name}={value!r}," for name, value in options.items()] + [f"    {each}," for each in more]
    return "\n".join(["settings = dict(", *inner, ")"])


_SYSTEM_CONTEXT = "context = ssl.create_default_context()"
_WRITERS: "dict[ClientKind, Callable[[ClientLogin], str]]" = {
    ClientKind.LIBRDKAFKA: _librdkafka,
    ClientKind.JAVA: _java,
    ClientKind.KAFKA_PYTHON: _kafka_python,
    ClientKind.AIOKAFKA: _aiokafka,
    ClientKind.FRANZ_GO: _franz_go,
    ClientKind.KCAT: _kcat,
}
